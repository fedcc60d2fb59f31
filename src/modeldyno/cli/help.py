"""``modeldyno help``."""

from __future__ import annotations

import click

from modeldyno.base.errors import UnknownName
from modeldyno.cli import COMMANDS


@click.command(name="help")
@click.argument("name", metavar="COMMAND", required=False)
@click.pass_context
def command(ctx: click.Context, name: str | None) -> None:
    """Show the help of COMMAND, like COMMAND --help; without COMMAND, list the commands."""
    root = ctx.parent
    assert root is not None
    if name is None:
        click.echo(root.get_help())
        return
    if name not in COMMANDS:
        raise UnknownName.among("command", name, COMMANDS)
    subcommand = root.command.get_command(root, name)  # type: ignore[attr-defined]
    click.echo(subcommand.get_help(click.Context(subcommand, parent=root, info_name=name)))

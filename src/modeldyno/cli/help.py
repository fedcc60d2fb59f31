"""``modeldyno help``."""

from __future__ import annotations

import click

from modeldyno.cli import COMMANDS
from modeldyno.errors import UnknownName


@click.command(name="help")
@click.argument("name", metavar="COMMAND", required=False)
@click.pass_context
def command(ctx: click.Context, name: str | None) -> None:
    """Show how COMMAND is used, as COMMAND --help does; without one, what commands there are."""
    root = ctx.parent
    assert root is not None
    if name is None:
        click.echo(root.get_help())
        return
    if name not in COMMANDS:
        raise UnknownName.among("command", name, COMMANDS)
    found = root.command.get_command(root, name)  # type: ignore[attr-defined]
    click.echo(found.get_help(click.Context(found, parent=root, info_name=name)))

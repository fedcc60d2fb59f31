"""``modeldyno servers``."""

from __future__ import annotations

import click

from modeldyno.cli.declare import declare, load_action
from modeldyno.cli.output_options import JSON


@click.group(name="servers", invoke_without_command=True)
@click.option("--stats", is_flag=True, help="Also measure what the processes of each use.")
@JSON
@click.pass_context
def command(ctx: click.Context, *, stats: bool, json_path: str | None) -> None:
    """List the servers that run: name, model, backend, URL, since when.

    They are those that modeldyno serve has started, and containers of Docker or Podman that publish a port.
    modeldyno load takes the name of any of them.
    """
    if ctx.invoked_subcommand is None:
        load_action("servers.list_servers")(json_path, stats=stats)


@declare("stop", within=command)
@click.argument("names", nargs=-1)
@click.option("--all", "all_servers", is_flag=True, help="Stop every server of this user on this machine.")
def _stop() -> None:
    """Stop the servers NAMES, with all of their processes."""

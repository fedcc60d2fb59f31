"""``modeldyno ui``."""

from __future__ import annotations

import click

from modeldyno.cli.declare import declare


@declare("ui")
@click.option("--port", type=click.IntRange(0, 65535), default=8500, show_default=True, help="Port; 0: any.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen at; others need --token-file."
)
@click.option(
    "--token-file", metavar="FILE", help="Ask for a token of this file, which is made if there is none."
)
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="NAME",
    help="Another name that browsers reach it by.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open it in the browser.")
@click.option("--export", metavar="DIR", help="Write all pages as files into a new folder instead.")
def command() -> None:
    """Show what the store has in a browser, until Ctrl-C."""

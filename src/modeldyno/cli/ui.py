"""``modeldyno ui``."""

from __future__ import annotations

import click

from modeldyno.cli import actions


@click.command(name="ui")
@click.option("--port", type=click.IntRange(0, 65535), default=8500, show_default=True, help="Port; 0: any.")
@click.option("--open", "open_browser", is_flag=True, help="Open it in the browser.")
@click.option("--export", metavar="DIR", help="Write all pages as files into a new folder instead.")
def command(port: int, open_browser: bool, export: str | None) -> None:
    """Show what the store has in the browser of this machine, until Ctrl-C."""
    actions.ui.run(port, open_browser=open_browser, export=export)

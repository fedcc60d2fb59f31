"""``modeldyno list``."""

from __future__ import annotations

import click

from modeldyno.cli import actions
from modeldyno.cli.help_pages import HelpCommand


@click.command(name="list", cls=HelpCommand)
@click.option("--name", help="Only models of this name.")
@click.option("--tag", help="Only results with this tag.")
@click.option(
    "--where",
    metavar="CONDITIONS",
    help="Only results that match, such as 'latency.p99 < 20ms and batch_size = 8 and not failed'.",
)
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="Maximum number to list."
)
def command(name: str | None, tag: str | None, where: str | None, limit: int) -> None:
    """List stored results, studies, comparisons, load series and conversions, newest first."""
    actions.list_.run(name, tag, where, limit)

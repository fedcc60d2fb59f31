"""``modeldyno list``."""

from __future__ import annotations

import click

from modeldyno import plugins
from modeldyno.cli.help_pages import Command
from modeldyno.cli.printing import print_tables
from modeldyno.views import listing
from modeldyno.views.lists import conclusions
from modeldyno.views.study.tables import studies

_NOTHING = "There is nothing stored yet; modeldyno profile MODEL keeps what it measures."
_MORE = 5
_NO_SUCH = "The store has no such results; modeldyno list shows all that it has."


@click.command(name="list", cls=Command)
@click.option("--name", help="Only models of this name.")
@click.option("--tag", help="Only results with this tag.")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
def command(name: str | None, tag: str | None, limit: int) -> None:
    """List the results in the store, newest first, the studies of sweeps, and what was concluded."""
    most = limit + 1  # one more tells whether there are others
    with plugins.store() as store:
        entries = store.find(name=name, tag=tag, limit=most)
        sweeps = () if tag else store.studies(name=name, limit=most)
        concluded = () if tag else store.conclusions(name=name, limit=most)
    if not (entries or sweeps or concluded):
        click.echo(_NO_SUCH if name or tag else _NOTHING)
        return
    tables = (listing(entries[:limit]), studies(sweeps[:limit]), conclusions(concluded[:limit]))
    print_tables(*(table for table in tables if table.rows))
    if max(map(len, (entries, sweeps, concluded))) > limit:
        click.echo(f"There are older ones; to see more: --limit {_MORE * limit}", err=True)

"""What ``modeldyno list`` does."""

from __future__ import annotations

import click

from modeldyno.cli.actions.printing import print_blocks
from modeldyno.profiling.views import listing
from modeldyno.profiling.views.lists import conclusions, studies
from modeldyno.stores.catalog import list_documents

_NOTHING = "Nothing is stored yet; modeldyno profile MODEL stores what it measures."
_MORE = 5
_NO_MATCH = "The store has no such results; modeldyno list shows all."
_NO_NUMBER = "No stored result matches; a percentile that is not certified matches only as latency.p99.raw."


def run(name: str | None, tag: str | None, where: str | None, limit: int) -> None:
    """List what is stored."""
    listed = list_documents(name=name, tag=tag, limit=limit, where=where)
    if not listed.entries:
        click.echo(_NO_NUMBER if where else _NO_MATCH if name or tag else _NOTHING)
        return
    tables = (listing(listed.results), studies(listed.studies), conclusions(listed.conclusions))
    print_blocks(*(table for table in tables if table.rows))
    if listed.more:
        click.echo(f"There are older ones; to see more: --limit {_MORE * limit}", err=True)

"""What ``modeldyno list`` does."""

from __future__ import annotations

import click

from modeldyno import plugins
from modeldyno.cli.actions.printing import print_tables
from modeldyno.views import listing
from modeldyno.views.lists import conclusions
from modeldyno.views.study.tables import studies

_NOTHING = "Nothing is stored yet; modeldyno profile MODEL stores what it measures."
_MORE = 5
_NO_MATCH = "The store has no such results; modeldyno list shows all."


def run(name: str | None, tag: str | None, limit: int) -> None:
    """List what is stored."""
    fetch_limit = limit + 1  # one more shows whether there are others
    with plugins.store() as store:
        entries = store.find(name=name, tag=tag, limit=fetch_limit)
        study_entries = () if tag else store.studies(name=name, limit=fetch_limit)
        conclusion_entries = () if tag else store.conclusions(name=name, limit=fetch_limit)
    if not (entries or study_entries or conclusion_entries):
        click.echo(_NO_MATCH if name or tag else _NOTHING)
        return
    tables = (
        listing(entries[:limit]),
        studies(study_entries[:limit]),
        conclusions(conclusion_entries[:limit]),
    )
    print_tables(*(table for table in tables if table.rows))
    if max(map(len, (entries, study_entries, conclusion_entries))) > limit:
        click.echo(f"There are older ones; to see more: --limit {_MORE * limit}", err=True)

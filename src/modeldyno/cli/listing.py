"""``modeldyno list``."""

from __future__ import annotations

import click

from modeldyno import plugins
from modeldyno.cli.output import print_tables
from modeldyno.views import listing
from modeldyno.views.study_numbers import studies


@click.command(name="list")
@click.option("--name", help="Only models of this name.")
@click.option("--tag", help="Only results with this tag.")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
def command(name: str | None, tag: str | None, limit: int) -> None:
    """List the results in the store, newest first, and the studies of sweeps."""
    with plugins.store() as store:
        entries = store.find(name=name, tag=tag, limit=limit)
        sweeps = () if tag else store.studies(name=name, limit=limit)
    if not entries and not sweeps:
        click.echo("The store has no such results; modeldyno profile MODEL makes one.")
        return
    print_tables(*((listing(entries),) if entries else ()), *((studies(sweeps),) if sweeps else ()))

"""``modeldyno rm``."""

from __future__ import annotations

import click

from modeldyno import plugins


@click.command(name="rm")
@click.argument("results", nargs=-1, required=True)
def command(results: tuple[str, ...]) -> None:
    """Remove RESULTS (ids or prefixes) and their artifacts from the store."""
    with plugins.store() as store:
        for identifier in [store.get(result).id for result in results]:
            click.echo(f"removed {store.remove(identifier)}")

"""``modeldyno tag``."""

from __future__ import annotations

import click

from modeldyno import plugins
from modeldyno.core.report.blocks import clean


@click.command(name="tag")
@click.argument("result")
@click.argument("tags", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Remove the tags.")
def command(result: str, tags: tuple[str, ...], remove: bool) -> None:
    """Add one or more TAGS to the stored RESULT (an id or its prefix)."""
    with plugins.store() as store:
        entry = store.tag(result, **{"remove" if remove else "add": tags})
    click.echo(clean(f"{entry.id} {entry.name}: {', '.join(entry.tags) or 'no tags'}"))

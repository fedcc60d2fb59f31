"""What ``modeldyno tag`` does."""

from __future__ import annotations

import click

from modeldyno import plugins
from modeldyno.core.report.blocks import clean


def run(result: str, tags: tuple[str, ...], remove: bool) -> None:
    """Add or remove tags of a stored result."""
    with plugins.store() as store:
        entry = store.tag(result, **{"remove" if remove else "add": tags})
    click.echo(clean(f"{entry.id} {entry.name}: {', '.join(entry.tags) or 'no tags'}"))

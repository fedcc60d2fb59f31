"""What ``modeldyno tag`` does."""

from __future__ import annotations

import click

from modeldyno.base.report.blocks import clean
from modeldyno.stores.catalog import change_tags


def run(result: str, tags: tuple[str, ...], remove: bool) -> None:
    """Add or remove tags of a stored result."""
    entry = change_tags(result, tags, remove=remove)
    click.echo(clean(f"{entry.id} {entry.name}: {', '.join(entry.tags) or 'no tags'}"))

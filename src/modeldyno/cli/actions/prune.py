"""What ``modeldyno prune`` does."""

from __future__ import annotations

import click

from modeldyno.base.stats.units import BYTES, format_quantity
from modeldyno.base.views.text import count
from modeldyno.stores.catalog import prune_documents


def run(*, before: str, keep: int, dry_run: bool) -> None:
    """Remove old documents."""
    pruned = prune_documents(before, keep=keep, dry_run=dry_run)
    verb = "would be removed" if dry_run else "removed"
    size = format_quantity(sum(one.size for one in pruned), BYTES, 3)
    click.echo(f"{count(len(pruned), 'document')} {verb}, {size} of the store")

"""What ``modeldyno rm`` does."""

from __future__ import annotations

import click

from modeldyno.stores.catalog import remove_documents


def run(results: tuple[str, ...]) -> None:
    """Remove documents from the store."""
    for removed in remove_documents(results):
        baselines = ", ".join(removed.baselines)
        click.echo(f"removed {removed.id}{baselines and f', the baseline {baselines}'}")

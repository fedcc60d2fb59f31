"""What ``modeldyno export`` does."""

from __future__ import annotations

import click

from modeldyno.exchange.export import export_to


def run(document: str, places: tuple[str, ...]) -> None:
    """Export a document to other tools."""
    for where in export_to(document, places):
        click.echo(f"Exported to {where}.")

"""What ``modeldyno export`` does."""

from __future__ import annotations

import click

from modeldyno.documents import export as documents_export
from modeldyno.documents.lookup import find_any


def run(document: str, places: tuple[str, ...]) -> None:
    """Export a document to other tools."""
    for target in places:
        documents_export.resolve_target(target)  # a mistake here is told before one in the document
    for where in documents_export.export_to(find_any(document), places, document):
        click.echo(f"Exported to {where}.")

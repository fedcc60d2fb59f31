"""What ``modeldyno report`` does."""

from __future__ import annotations

from pathlib import Path

import click

from modeldyno.documents.lookup import find_any
from modeldyno.documents.write import write_report


def run(documents: tuple[str, ...], output: str, require: tuple[str, ...], chart: str | None) -> None:
    """Write documents as a report."""
    write_report([find_any(document) for document in documents], Path(output), require, chart=chart)
    click.echo(f"Wrote {output}.")

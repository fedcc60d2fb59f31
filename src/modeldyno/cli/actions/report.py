"""What ``modeldyno report`` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from modeldyno.reports.write import write_report
from modeldyno.stores.lookup import find_any


def run(**options: Any) -> None:
    """Write documents as a report."""
    pictures, outputs = options["pictures"], options["reports"]
    documents = [find_any(document) for document in options["documents"]]
    for index, output in enumerate(outputs):
        write_report(
            documents,
            Path(output),
            options["require"],
            chart=options["chart"],
            configurations=options["configurations"],
            plots=options["plots"],
            pictures=None if pictures is None or index else Path(pictures),
            fields=options["fields"],
        )
    click.echo(
        f"Wrote {' and '.join(outputs)}{'' if pictures is None else f' and the charts in {pictures}'}."
    )

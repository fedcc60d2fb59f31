"""``modeldyno report``."""

from __future__ import annotations

from pathlib import Path

import click

from modeldyno.cli.output import find_any, write_report, write_study
from modeldyno.core.study import Study


@click.command(name="report")
@click.argument("document")
@click.option(
    "-o", "--output", required=True, metavar="FILE", help=".csv .html .md .json; a study .csv .json"
)
def command(document: str, output: str) -> None:
    """Write DOCUMENT (a JSON file, or a stored id or tag) in the format that FILE's suffix names."""
    found = find_any(document)
    if isinstance(found, Study):
        write_study(found, Path(output))
    else:
        write_report(found, Path(output))
    click.echo(f"Wrote {output}.")

"""``modeldyno report``."""

from __future__ import annotations

from pathlib import Path

import click

from modeldyno.cli.output import find, write_report


@click.command(name="report")
@click.argument("document")
@click.option("-o", "--output", required=True, metavar="FILE", help=".csv .html .md .json")
def command(document: str, output: str) -> None:
    """Write DOCUMENT (a JSON file, or a stored id or tag) in the format that FILE's suffix names."""
    write_report(find(document), Path(output))
    click.echo(f"Wrote {output}.")

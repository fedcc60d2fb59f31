"""``modeldyno report``."""

from __future__ import annotations

from pathlib import Path

import click

from modeldyno.cli import options as cli_options
from modeldyno.cli.help_pages import HelpCommand
from modeldyno.core.result.result import Result
from modeldyno.documents.lookup import find_any
from modeldyno.documents.write import write, write_several
from modeldyno.errors import RequestError


@click.command(name="report", cls=HelpCommand)
@click.argument("documents", nargs=-1, required=True)
@click.option(
    "-o", "--output", required=True, metavar="FILE", help=".html .pdf .md, or only the numbers: .csv .json"
)
@cli_options.require_option("Bounds to judge the result by; shown with their verdicts.")
def command(documents: tuple[str, ...], output: str, require: tuple[str, ...]) -> None:
    """Write DOCUMENTS as a report, in the format of FILE's suffix; several go into one file.

    A document is a JSON file, the id or tag of a stored result, the name of a study, or the id of a
    comparison, a load curve or a search for the largest load.
    """
    loaded = [find_any(document) for document in documents]
    path = Path(output)
    if len(loaded) > 1:
        if require:
            raise RequestError("--require applies to one result; write a report for each.")
        write_several(loaded, path)
    elif isinstance(loaded[0], Result):
        write(loaded[0], path, [loaded[0].judge(bound) for bound in require])
    elif require:
        raise RequestError("--require applies to a result; studies and load series have bounds of their own.")
    else:
        write(loaded[0], path)
    click.echo(f"Wrote {output}.")

"""``modeldyno report``."""

from __future__ import annotations

from pathlib import Path

import click

from modeldyno.cli import options as cli_options
from modeldyno.cli.help_pages import Command
from modeldyno.core.result.result import Result
from modeldyno.documents.lookup import find_any
from modeldyno.documents.write import write, write_several
from modeldyno.errors import RequestError


@click.command(name="report", cls=Command)
@click.argument("documents", nargs=-1, required=True)
@click.option(
    "-o", "--output", required=True, metavar="FILE", help=".html .pdf .md, or the numbers alone: .csv .json"
)
@cli_options.bounds("Bounds that a result is to hold, shown with their verdicts.")
def command(documents: tuple[str, ...], output: str, require: tuple[str, ...]) -> None:
    """Write DOCUMENTS in the format that FILE's suffix names; several go into one file.

    A document is a JSON file, a stored id or tag of a result, the name of a study, or the id of a comparison,
    of a ladder of loads or of a search for the largest one.
    """
    found = [find_any(document) for document in documents]
    path = Path(output)
    if len(found) > 1:
        if require:
            raise RequestError("--require is judged on one result; write each of several by itself.")
        write_several(found, path)
    elif isinstance(found[0], Result):
        write(found[0], path, [found[0].judge(bound) for bound in require])
    elif require:
        raise RequestError(
            "--require is judged on a result; studies and series of loads have bounds of their own."
        )
    else:
        write(found[0], path)
    click.echo(f"Wrote {output}.")

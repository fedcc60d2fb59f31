"""What ``modeldyno report`` does."""

from __future__ import annotations

from pathlib import Path

import click

from modeldyno.core.result.result import Result
from modeldyno.documents.lookup import find_any
from modeldyno.documents.write import write, write_several
from modeldyno.errors import RequestError


def run(documents: tuple[str, ...], output: str, require: tuple[str, ...]) -> None:
    """Write documents as a report."""
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

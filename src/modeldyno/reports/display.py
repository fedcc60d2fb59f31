"""Presentation of documents in Python: as text, HTML, a table or a file.

The advice of a Result names Python arguments for the fields that the document names; the others show what the
terminal does.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.kinds import kind_of
from modeldyno.base.metrics.queries import list_numbers
from modeldyno.base.report.blocks import shorten
from modeldyno.base.result.result import Result
from modeldyno.base.views.python_wording import translate_doubts
from modeldyno.reports.write import write

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from modeldyno.base.report.blocks import Block


_COLUMNS = ["metric", "scope", "statistic", "value", "low", "high", "unit"]


def text(document: Any) -> str:
    """Return the report as plain text of 80 columns."""
    return plugins.terminal().text(_blocks(document)).rstrip("\n")


def fragment(document: Any) -> str:
    """Return the report as an HTML fragment without scripts, for a notebook."""
    return plugins.html().fragment_of(_blocks(document))


def _blocks(document: Any) -> Iterable[Block]:
    """Return what the terminal shows of a document."""
    shown = _with_python_wording(document) if isinstance(document, Result) else document
    return kind_of(document).blocks(shown)


def page(result: Result) -> str:
    """Return the report as one self-contained HTML page."""
    return str(plugins.reporter("html").render(_with_python_wording(result)))


def show(result: Result) -> None:
    """Print the report, in colour where the terminal has it."""
    from rich.console import Console  # slow at start-up

    plugins.terminal().print_blocks(
        kind_of(result).blocks(_with_python_wording(result)), console=Console(highlight=False)
    )


def brief(document: Any) -> str:
    """Return the verdict in a line of at most so many characters."""
    return shorten(kind_of(document).brief(document), _BRIEF)


_BRIEF = 200


def data_frame(document: Any) -> Any:
    """Return a pandas.DataFrame: of a Result with a row for each number, else of the table of its numbers.

    Raises:
        MissingExtra: pandas is not installed.
    """
    plugins.require(("pandas",), "table of a document, to_pandas(),")
    pandas = import_module("pandas")
    if isinstance(document, Result):
        return pandas.DataFrame(_rows(document), columns=_COLUMNS)
    table = kind_of(document).numbers(document)
    columns = [column.title for column in table.columns]
    return pandas.DataFrame([[_cell(text) for text in row] for row in table.rows], columns=columns)


def _cell(text: str) -> float | str | None:
    """Read a cell of numbers: a float, a text, or None for an empty one."""
    try:
        return float(text) if text else None
    except ValueError:
        return text


def _rows(result: Result) -> list[tuple[Any, ...]]:
    return [
        (
            query.metric,
            query.scope,
            query.statistic or "",
            value,
            *_interval_ends(result, str(query)),
            query.unit,
        )
        for query, value in list_numbers(result.measurements)
    ]


def save(document: Any, path: str | PathLike[str]) -> None:
    """Write a document in the format that the suffix of `path` names.

    Raises:
        RequestError: no reporter writes such files, or the file cannot be written.
        MissingExtra: the format needs a program that is not installed.
    """
    file = Path(path)
    if isinstance(document, Result) and file.suffix != ".json":
        document = _with_python_wording(document)
    write(document, file)


def _with_python_wording(result: Result) -> Result:
    return replace(result, doubts=translate_doubts(result.doubts))


def _interval_ends(result: Result, query: str) -> tuple[float | None, float | None]:
    interval = result.ask(query).interval
    return (None, None) if interval is None else (interval.low, interval.high)

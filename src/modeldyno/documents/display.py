"""Presentation of a Result in Python: as text, HTML, a table or a file.

Its advice names Python arguments for the fields that the document names.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno import plugins, views
from modeldyno.core.metrics.queries import list_numbers
from modeldyno.documents.write import write
from modeldyno.views.python_wording import translate_doubts

if TYPE_CHECKING:
    from os import PathLike

    from modeldyno.core.result.result import Result


_COLUMNS = ["metric", "scope", "statistic", "value", "low", "high", "unit"]


def text(result: Result) -> str:
    """Return the report as plain text of 80 columns."""
    return str(plugins.reporter("terminal").render(_with_python_wording(result))).rstrip("\n")


def fragment(result: Result) -> str:
    """Return the report as an HTML fragment without scripts, for a notebook."""
    return plugins.html().fragment_of(views.blocks(_with_python_wording(result)))


def page(result: Result) -> str:
    """Return the report as one self-contained HTML page."""
    return str(plugins.reporter("html").render(_with_python_wording(result)))


def show(result: Result) -> None:
    """Print the report, in colour where the terminal has it."""
    from rich.console import Console  # noqa: PLC0415 - slow at start-up

    plugins.terminal().print_blocks(
        views.blocks(_with_python_wording(result)), console=Console(highlight=False)
    )


def data_frame(result: Result) -> Any:
    """Return a pandas.DataFrame with a row for each number.

    Raises:
        MissingExtra: pandas is not installed.
    """
    plugins.require(("pandas",), "table of a Result, to_pandas(),")
    rows = [
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
    return import_module("pandas").DataFrame(rows, columns=_COLUMNS)


def save(result: Result, path: str | PathLike[str]) -> None:
    """Write a Result in the format that the suffix of `path` names.

    Raises:
        RequestError: no reporter writes such files, or the file cannot be written.
        MissingExtra: the format needs a program that is not installed.
    """
    file = Path(path)
    is_document = file.suffix == ".json"  # the unchanged document
    write(result if is_document else _with_python_wording(result), file)


def _with_python_wording(result: Result) -> Result:
    return replace(result, doubts=translate_doubts(result.doubts))


def _interval_ends(result: Result, query: str) -> tuple[float | None, float | None]:
    interval = result.ask(query).interval
    return (None, None) if interval is None else (interval.low, interval.high)

"""How a Result shows itself in Python: as text, as a page, as a table, as a file.

What it advises is said in the words of Python, also where the document has those of the command line.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno import codec, plugins
from modeldyno.core.metrics.queries import list_numbers
from modeldyno.views.python_wording import translate_doubts

if TYPE_CHECKING:
    from os import PathLike

    from modeldyno.core.result.result import Result


_COLUMNS = ["metric", "scope", "statistic", "value", "low", "high", "unit"]


def text(result: Result) -> str:
    """Give the report as plain text of 80 columns."""
    return str(plugins.reporter("terminal").render(_in_python(result))).rstrip("\n")


def fragment(result: Result) -> str:
    """Give the report as a piece of HTML that runs nothing, for a notebook."""
    return str(plugins.resolve("reporter", "html").fragment(_in_python(result)))


def page(result: Result) -> str:
    """Give the report as one self-contained page."""
    return str(plugins.reporter("html").render(_in_python(result)))


def show(result: Result) -> None:
    """Print the report, in colour where the terminal has it."""
    from rich.console import Console  # noqa: PLC0415 - dear at start-up

    plugins.resolve("reporter", "terminal").draw(_in_python(result), console=Console(highlight=False))


def data_frame(result: Result) -> Any:
    """Give a pandas.DataFrame, a row for each number.

    Raises:
        MissingExtra: pandas is not installed.
    """
    plugins.require(("pandas",), "table of a Result, to_pandas(),")
    rows = [
        (query.metric, query.scope, query.statistic or "", value, *_ends(result, str(query)), query.unit)
        for query, value in list_numbers(result.measurements)
    ]
    return import_module("pandas").DataFrame(rows, columns=_COLUMNS)


def save(result: Result, path: str | PathLike[str]) -> None:
    """Write a Result in the format that the suffix of `path` names.

    Raises:
        RequestError: no reporter writes such files, or the file cannot be written.
        MissingExtra: the format needs a program that is not there.
    """
    file = Path(path)
    whole = file.suffix == ".json"  # the document itself, as it was measured
    data = plugins.reporter_for(file).render(result if whole else _in_python(result))
    codec.write(file, data.encode() if isinstance(data, str) else data)


def _in_python(result: Result) -> Result:
    return replace(result, doubts=translate_doubts(result.doubts))


def _ends(result: Result, query: str) -> tuple[float | None, float | None]:
    found = result.ask(query).interval
    return (None, None) if found is None else (found.low, found.high)

"""Presentation of documents in Python: as text, HTML, a table or a file.

The advice of a Result names Python arguments for the fields that the document names; the others show what the
terminal does.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno import codec, plugins, views
from modeldyno.core.advice.advice import Advice
from modeldyno.core.comparison.gate_report import GateReport
from modeldyno.core.comparison.trend import Trend
from modeldyno.core.load.reconciliation import Reconciliation
from modeldyno.core.metrics.queries import list_numbers
from modeldyno.core.recompute.checks import Recomputation
from modeldyno.core.registry.answer import RegistryAnswer
from modeldyno.core.registry.overview import VersionOverview
from modeldyno.core.report.blocks import Notice, Table, make_table, shorten
from modeldyno.core.result.result import Result
from modeldyno.documents.write import check_format, save_file, write
from modeldyno.interfaces.reporter import LaysOut, Tabulates
from modeldyno.kinds import Stored, kind_of
from modeldyno.views import recomputation
from modeldyno.views.advice import blocks as advice_blocks
from modeldyno.views.comparison import gate
from modeldyno.views.load import reconciliation
from modeldyno.views.python_wording import translate_doubts
from modeldyno.views.registry import answer, version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from os import PathLike

    from modeldyno.core.report.blocks import Block


_VIEWS: dict[type[Any], Callable[[Any], Iterable[Block]]] = {
    Advice: advice_blocks.advice,
    GateReport: gate.blocks,
    Recomputation: recomputation.blocks,
    Reconciliation: reconciliation.blocks,
    RegistryAnswer: answer.blocks,
    VersionOverview: version.blocks,
}
"""Views of what is no kind of document; answers of use cases lay out their blocks themselves."""
_COLUMNS = ["metric", "scope", "statistic", "value", "low", "high", "unit"]


def text(document: Any) -> str:
    """Return the report as plain text of 80 columns."""
    return plugins.terminal().text(_blocks(document)).rstrip("\n")


def fragment(document: Any) -> str:
    """Return the report as an HTML fragment without scripts, for a notebook."""
    return plugins.html().fragment_of(_blocks(document))


def _blocks(document: Any) -> Iterable[Block]:
    """Return what the terminal shows of a document."""
    if isinstance(document, Result):
        return views.blocks(_with_python_wording(document))
    if isinstance(document, Stored | Trend):
        return kind_of(document).blocks(document)
    view = _VIEWS.get(type(document))
    blocks: Iterable[Block] = document.blocks() if view is None else view(document)
    return blocks


def page(result: Result) -> str:
    """Return the report as one self-contained HTML page."""
    return str(plugins.reporter("html").render(_with_python_wording(result)))


def show(result: Result) -> None:
    """Print the report, in colour where the terminal has it."""
    from rich.console import Console  # noqa: PLC0415 - slow at start-up

    plugins.terminal().print_blocks(
        views.blocks(_with_python_wording(result)), console=Console(highlight=False)
    )


def brief(document: Any) -> str:
    """Return the verdict in a line of at most so many characters."""
    if isinstance(document, Stored | Trend):
        return shorten(kind_of(document).brief(document), _BRIEF)
    notices = (block.text for block in _blocks(document) if isinstance(block, Notice))
    return shorten(next(notices, ""), _BRIEF)


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
    table = _table(document)
    columns = [column.title for column in table.columns]
    return pandas.DataFrame([[_cell(text) for text in row] for row in table.rows], columns=columns)


def _cell(text: str) -> float | str | None:
    """Read a cell of numbers: a float, a text, or None for an empty one."""
    try:
        return float(text) if text else None
    except ValueError:
        return text


def _table(document: Any) -> Table:
    """Return the numbers of a document, or else its first table, or else what it says."""
    if isinstance(document, Stored | Trend):
        return kind_of(document).numbers(document)
    blocks = tuple(_blocks(document))
    notices = [(str(block.severity), block.code, block.text) for block in blocks if isinstance(block, Notice)]
    tables = (block for block in blocks if isinstance(block, Table))
    return next(tables, None) or make_table("", ("severity", "code", "text"), notices)


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
    if isinstance(document, Stored | Trend):
        write(document, file)
        return
    check_format(file)
    reporter = plugins.reporter_for(file)
    if file.suffix == ".json":
        save_file(file, codec.encode_document(document))
    elif isinstance(reporter, LaysOut):
        save_file(file, reporter.lay_out(tuple(_blocks(document)), title=brief(document)))
    elif isinstance(reporter, Tabulates):
        save_file(file, reporter.table(_table(document)))


def _with_python_wording(result: Result) -> Result:
    return replace(result, doubts=translate_doubts(result.doubts))


def _interval_ends(result: Result, query: str) -> tuple[float | None, float | None]:
    interval = result.ask(query).interval
    return (None, None) if interval is None else (interval.low, interval.high)

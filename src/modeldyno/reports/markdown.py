"""GitHub-flavoured Markdown: for issues, pull requests and job summaries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from modeldyno.base.kinds import kind_of
from modeldyno.base.report.blocks import Align, Block, Heading, Notice, Severity, Table
from modeldyno.base.report.charts import Bins
from modeldyno.base.views.chart_text import chart_numbers, describe_chart
from modeldyno.base.views.view_options import ViewOptions
from modeldyno.reports import terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.report.charts import Picture
    from modeldyno.base.result.result import Result

suffix = ".md"
_SIGNS = {
    Severity.HELD: "✅",
    Severity.BROKEN: "❌",
    Severity.UNDECIDED: "❔",
    Severity.FAILURE: "❌",
    Severity.DOUBT: "⚠️",
    Severity.NOTE: "ℹ️",
}
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_MARKUP = re.compile(r"[\\`*\[\]|~$#!]|(?<!\w)_|_(?!\w)")
_MENTION = re.compile(r"(?<!\w)@(?=\w)")
_LINK = re.compile(r"(?i)\b(https?|ftp|www)(?=[:.])")


def render(document: Result, *, judgements: Sequence[Judgement] = ()) -> str:
    """Write a Result."""
    kind = kind_of(document)
    options = ViewOptions(judgements=tuple(judgements))
    return lay_out(kind.blocks(document, options), title=kind.headline(document))


def lay_out(blocks: Iterable[Block], *, title: str, foot: str = "") -> str:
    """Write blocks; the first of them serves as the title, and there is no foot."""
    del title, foot
    parts: list[str] = []
    before: Block | None = None
    for block in blocks:
        alike = (
            isinstance(before, Notice) and isinstance(block, Notice) and _is_item(before) and _is_item(block)
        )
        parts.append(("" if alike or before is None else "\n") + "\n".join(_lines(block)) + "\n")
        before = block
    return "".join(parts)


def _is_item(notice: Notice) -> bool:
    return notice.severity is not Severity.VERDICT


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Notice():
            return _notice(block)
        case Table():
            return _table(block)
        case Heading():
            return iter((f"{'#' * (block.level + 1)} {escape(block.title)}",))
        case _:
            return _picture(block)


def _notice(block: Notice) -> Iterator[str]:
    if not _is_item(block):
        yield f"**{escape(block.text)}**"
        return
    code = f"**{escape(block.code)}**: " if block.code else ""
    advice = f" _{escape(block.advice)}_" if block.advice else ""
    yield f"- {_SIGNS[block.severity]} {code}{escape(block.text)}{advice}"
    if block.log:
        yield from (f"  {line}" for line in _fenced(block.log))


def _table(block: Table) -> Iterator[str]:
    if block.title:
        yield from (f"### {escape(block.title)}", "")
    yield _row([column.title for column in block.columns])
    yield _row([("--:" if column.align is Align.RIGHT else ":--") for column in block.columns], raw=True)
    yield from map(_row, block.rows)


def _row(cells: Sequence[str], *, raw: bool = False) -> str:
    return f"| {' | '.join(cell if raw else escape(cell) for cell in cells)} |"


def _picture(block: Picture) -> Iterator[str]:
    """Draw a histogram in characters; of any other chart, write its numbers or its description."""
    if isinstance(block, Bins):
        yield from _fenced(terminal.text([block]).rstrip("\n"))
        return
    chart_table = chart_numbers(block)
    yield from (
        _table(chart_table)
        if chart_table
        else (f"### {escape(block.title)}", "", escape(describe_chart(block)))
    )
    if block.note:
        yield from ("", f"_{escape(block.note)}_")


def _fenced(text: str) -> Iterator[str]:
    """Write text as a code block, in a fence longer than any run of backticks in it."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (f"{fence}text", *text.splitlines(), fence)


def escape(text: str) -> str:
    """Escape text so that it is not read as markup, HTML, a mention or a link."""
    text = _MARKUP.sub(r"\\\g<0>", text.translate(_HTML))
    return _LINK.sub(r"\1<!-- -->", _MENTION.sub("@<!-- -->", text))

"""Lay out where the figures of another load generator differ from ours, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.load.reconciliation import NEAREST
from modeldyno.core.report.blocks import Block, Notice, Severity, Table, make_columns
from modeldyno.core.stats.units import SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.load.reconciliation import DifferenceRow, Reconciliation

_ROUNDED = 1e-5


def headline(found: Reconciliation) -> str:
    """Say in one sentence how much of the largest difference is explained."""
    if not found.rows:
        return f"{found.tool} reports no time that this result has, too."
    row = max(found.rows, key=lambda each: abs(each.theirs - each.ours))
    whole = row.theirs - row.ours
    name = f"{row.metric}.{row.statistic}"
    said = f"{found.tool}'s {name} is {_format_difference(whole)} against {row.compared}.{row.statistic} here"
    explained = whole - row.left
    chance = {True: ", which may be chance", False: ", which is more than chance", None: ""}[row.is_noise]
    parts = f"{_format_difference(explained)} is how it is measured, {_format_difference(row.left)} is left"
    return f"{said}: {parts}{chance}."


def blocks(found: Reconciliation) -> Iterator[Block]:
    """Lay out each difference with its parts, the rules that were found, and what could not be computed."""
    yield Notice(severity=Severity.VERDICT, text=headline(found))
    for metric in dict.fromkeys(row.metric for row in found.rows):
        rows = [row for row in found.rows if row.metric == metric]
        yield _table(found.tool, rows)
    yield from (Notice(severity=Severity.NOTE, text=text) for text in _notes(found))
    yield from (Notice(severity=Severity.DOUBT, code="other-definition", text=text) for text in found.notes)


def _table(tool: str, rows: Sequence[DifferenceRow]) -> Table:
    first = rows[0]
    ours = f"against {first.compared}" if first.compared != first.metric else "against ours"
    return Table(
        title=f"{first.metric} of {tool}, {ours}",
        columns=make_columns("", f"{tool}>", "rule>", "warm-up>", "from due>", "left>", "here>", ""),
        rows=tuple(
            (
                row.statistic,
                format_quantity(row.theirs, SECONDS, 3),
                *(
                    _format_difference(part, row.theirs)
                    for part in (row.rule, row.warmup, row.definition, row.left)
                ),
                format_quantity(row.ours, SECONDS, 3),
                {True: "chance", False: "differs", None: ""}[row.is_noise],
            )
            for row in rows
        ),
    )


def _notes(found: Reconciliation) -> Iterator[str]:
    if not found.requests:
        yield f"{found.tool} reports no requests, so its rule and warm-up are in what is left"
        return
    rules = " or ".join(found.rules) or "none that is known here"
    yield f"percentile rule of {found.tool}, which its own figures show: {rules}; here it is {NEAREST}"
    if found.dropped:
        dropped = format_quantity(found.dropped, SECONDS, 2)
        yield f"{found.tool} left out no warm-up; here the first {dropped} are, so the same is taken off"


def _format_difference(seconds: float | None, of: float = 0.0) -> str:
    """Format a part of a difference; below a hundred-thousandth of the figure it is how that was rounded."""
    if seconds is None:
        return "—"
    if abs(seconds) <= _ROUNDED * of:
        return "0"
    return f"{'+' if seconds >= 0 else '-'}{format_quantity(abs(seconds), SECONDS, 2)}"

"""Lay out where the figures of another load generator differ from ours, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Block, Notice, Severity, Table, make_table, note
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.exchange.reconciliation import NEAREST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.exchange.reconciliation import DifferenceRow, Reconciliation

_ROUNDED = 1e-5
_PARTS = {
    "rule": "rule", "warm-up": "warmup", "from due": "definition", "server": "server", "client": "client",
    "left": "left",
}  # fmt: skip
"""Title of a column to the part of a difference; one that no row knows is left out."""


def headline(report: Reconciliation) -> str:
    """Say in one sentence how much of the largest difference is explained."""
    if not report.rows:
        return f"{report.tool} reports no time that this result has, too."
    row = max(report.rows, key=lambda each: abs(each.theirs - each.ours))
    gap = row.theirs - row.ours
    name = f"{row.metric}.{row.statistic}"
    claim = f"{report.tool}'s {name} is {_format_difference(gap)} against {row.compared}.{row.statistic} here"
    explained = sum(part for part in (row.rule, row.warmup, row.definition) if part is not None)
    chance = {True: ", which may be chance", False: ", which is more than chance", None: ""}[row.is_noise]
    left = _format_difference(gap - explained)
    parts = f"{_format_difference(explained)} is how it is measured, {left} is left"
    return f"{claim}: {parts}{chance}."


def blocks(report: Reconciliation) -> Iterator[Block]:
    """Lay out each difference with its parts, the rules that were found, and what could not be computed."""
    yield Notice(severity=Severity.VERDICT, text=headline(report))
    for metric in dict.fromkeys(row.metric for row in report.rows):
        rows = [row for row in report.rows if row.metric == metric]
        yield _table(report.tool, rows)
    yield from (note(text) for text in _notes(report))
    yield from (Notice(severity=Severity.DOUBT, code="other-definition", text=text) for text in report.notes)


def _table(tool: str, rows: Sequence[DifferenceRow]) -> Table:
    first = rows[0]
    ours = f"against {first.compared}" if first.compared != first.metric else "against ours"
    return make_table(
        f"{first.metric} of {tool}, {ours}",
        ("", f"{tool}>", *(f"{title}>?" for title in _PARTS), "here>", ""),
        (
            (
                row.statistic,
                format_quantity(row.theirs, SECONDS, 3),
                *(_format_difference(getattr(row, name), row.theirs) for name in _PARTS.values()),
                format_quantity(row.ours, SECONDS, 3),
                {True: "chance", False: "differs", None: ""}[row.is_noise],
            )
            for row in rows
        ),
    )


def _notes(report: Reconciliation) -> Iterator[str]:
    yield from _client_notes(report)
    if not report.requests:
        yield f"{report.tool} reports no requests, so its rule and warm-up are in what is left"
        return
    rules = " or ".join(report.rules) or "none that is known here"
    yield f"percentile rule of {report.tool}, which its own figures show: {rules}; here it is {NEAREST}"
    if report.dropped:
        dropped = format_quantity(report.dropped, SECONDS, 2)
        yield f"{report.tool} left out no warm-up; here the first {dropped} are, so the same is taken off"


def _client_notes(report: Reconciliation) -> Iterator[str]:
    """Say what is known of the part of the client, and why not more is."""
    if report.no_client:
        yield f"what the client adds is in what is left, as {report.no_client}"
    else:
        yield "server is its own account of queue and compute, client all outside it, the network included"
    theirs, ours = report.sent_late
    if theirs is None:
        yield (
            f"{report.tool} does not report when requests were due, so how late its client sent is not known"
        )
    else:
        here = "" if ours is None else f", ours {format_quantity(ours, SECONDS, 2)}"
        late = format_quantity(theirs, SECONDS, 2)
        yield f"the client of {report.tool} sent {late} after a request was due on average{here}"


def _format_difference(seconds: float | None, of: float = 0.0) -> str:
    """Format a part of a difference; below a hundred-thousandth of the figure it is how that was rounded."""
    if seconds is None:
        return "—"
    if abs(seconds) <= _ROUNDED * of:
        return "0"
    return f"{'+' if seconds >= 0 else '-'}{format_quantity(abs(seconds), SECONDS, 2)}"

"""Lay out where the figures of another load generator differ from ours, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.load.reconciliation import NEAREST
from modeldyno.core.report.blocks import Block, Notice, Severity, Table, make_columns, note
from modeldyno.core.stats.units import SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.load.reconciliation import DifferenceRow, Reconciliation

_ROUNDED = 1e-5
_PARTS = {
    "rule": "rule", "warm-up": "warmup", "from due": "definition", "server": "server", "client": "client",
    "left": "left",
}  # fmt: skip
"""Title of a column to the part of a difference; one that no row knows is left out."""


def headline(found: Reconciliation) -> str:
    """Say in one sentence how much of the largest difference is explained."""
    if not found.rows:
        return f"{found.tool} reports no time that this result has, too."
    row = max(found.rows, key=lambda each: abs(each.theirs - each.ours))
    whole = row.theirs - row.ours
    name = f"{row.metric}.{row.statistic}"
    said = f"{found.tool}'s {name} is {_format_difference(whole)} against {row.compared}.{row.statistic} here"
    explained = sum(part for part in (row.rule, row.warmup, row.definition) if part is not None)
    chance = {True: ", which may be chance", False: ", which is more than chance", None: ""}[row.is_noise]
    left = _format_difference(whole - explained)
    parts = f"{_format_difference(explained)} is how it is measured, {left} is left"
    return f"{said}: {parts}{chance}."


def blocks(found: Reconciliation) -> Iterator[Block]:
    """Lay out each difference with its parts, the rules that were found, and what could not be computed."""
    yield Notice(severity=Severity.VERDICT, text=headline(found))
    for metric in dict.fromkeys(row.metric for row in found.rows):
        rows = [row for row in found.rows if row.metric == metric]
        yield _table(found.tool, rows)
    yield from (note(text) for text in _notes(found))
    yield from (Notice(severity=Severity.DOUBT, code="other-definition", text=text) for text in found.notes)


def _table(tool: str, rows: Sequence[DifferenceRow]) -> Table:
    first = rows[0]
    parts = {title: name for title, name in _PARTS.items() if any(getattr(r, name) is not None for r in rows)}
    ours = f"against {first.compared}" if first.compared != first.metric else "against ours"
    return Table(
        title=f"{first.metric} of {tool}, {ours}",
        columns=make_columns("", f"{tool}>", *(f"{title}>" for title in parts), "here>", ""),
        rows=tuple(
            (
                row.statistic,
                format_quantity(row.theirs, SECONDS, 3),
                *(_format_difference(getattr(row, name), row.theirs) for name in parts.values()),
                format_quantity(row.ours, SECONDS, 3),
                {True: "chance", False: "differs", None: ""}[row.is_noise],
            )
            for row in rows
        ),
    )


def _notes(found: Reconciliation) -> Iterator[str]:
    yield from _client_notes(found)
    if not found.requests:
        yield f"{found.tool} reports no requests, so its rule and warm-up are in what is left"
        return
    rules = " or ".join(found.rules) or "none that is known here"
    yield f"percentile rule of {found.tool}, which its own figures show: {rules}; here it is {NEAREST}"
    if found.dropped:
        dropped = format_quantity(found.dropped, SECONDS, 2)
        yield f"{found.tool} left out no warm-up; here the first {dropped} are, so the same is taken off"


def _client_notes(found: Reconciliation) -> Iterator[str]:
    """Say what is known of the part of the client, and why not more is."""
    if found.no_client:
        yield f"what the client adds is in what is left, as {found.no_client}"
    else:
        yield "server is its own account of queue and compute, client all outside it, the network included"
    theirs, ours = found.sent_late
    if theirs is None:
        yield f"{found.tool} does not report when requests were due, so how late its client sent is not known"
    else:
        here = "" if ours is None else f", ours {format_quantity(ours, SECONDS, 2)}"
        late = format_quantity(theirs, SECONDS, 2)
        yield f"the client of {found.tool} sent {late} after a request was due on average{here}"


def _format_difference(seconds: float | None, of: float = 0.0) -> str:
    """Format a part of a difference; below a hundred-thousandth of the figure it is how that was rounded."""
    if seconds is None:
        return "—"
    if abs(seconds) <= _ROUNDED * of:
        return "0"
    return f"{'+' if seconds >= 0 else '-'}{format_quantity(abs(seconds), SECONDS, 2)}"

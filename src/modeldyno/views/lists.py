"""Tables of many: every number of a Result, and every Result of a store."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from modeldyno.core.block import Align, Column, Table
from modeldyno.core.measurement import Distribution, Interval, Measurement
from modeldyno.views.words import count, moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.result import Result
    from modeldyno.ports import Entry

_NUMBERS = ("p50", "p90", "p95", "p99", "p99.9", "mean", "std", "min", "max")
_FIELDS = ("metric", "scope", "statistic", "value", "low", "high", "unit", "n", "note")


def numbers(result: Result) -> Table:
    """Give every number in base units, unrounded: a row for each metric, scope and statistic."""
    texts = {"metric", "scope", "statistic", "unit", "note"}
    columns = tuple(
        Column(title=name, align=Align.LEFT if name in texts else Align.RIGHT) for name in _FIELDS
    )
    rows = tuple(row for found in result.measurements for row in _number_rows(found))
    return Table(title="Numbers", columns=columns, rows=rows)


def _number_rows(found: Measurement) -> Iterator[tuple[str, ...]]:
    unit = found.row.unit
    if not isinstance(found.value, Distribution):
        n = str(len(found.runs)) if found.runs else ""
        yield (found.metric, found.scope, "", _exact(found.value), *_ends(found.interval), unit, n, "")
        return
    for name in _NUMBERS:
        missing = found.value.missing(name)
        value = "" if missing else _exact(found.value.statistic(name))
        note = (
            f"not certified: {count(missing, 'more effective sample')} needed"
            if missing
            else found.value.stop
        )
        ends = _ends(found.value.interval(name))
        yield (found.metric, found.scope, name, value, *ends, unit, str(len(found.value)), note)


def _ends(interval: Interval | None) -> tuple[str, str]:
    return ("", "") if interval is None else (_exact(interval.low), _exact(interval.high))


def _exact(value: float) -> str:
    return repr(value) if math.isfinite(value) else ""


# --- lists -------------------------------------------------------------------------------------


def listing(entries: Sequence[Entry]) -> Table:
    """Lay out what a store holds, one row for each Result."""
    columns = tuple(Column(title=title) for title in ("id", "created", "tags", "verdict"))
    rows = tuple(
        (entry.id, moment(entry.created)[:16], ", ".join(entry.tags), entry.headline) for entry in entries
    )
    return Table(title="", columns=columns, rows=rows)

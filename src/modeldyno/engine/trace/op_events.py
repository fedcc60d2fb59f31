"""Operators, kernels and transfers of a call, and their sums by name, module and shapes.

A few calls are recorded, and any of them may be disturbed by other load on the machine: a time is the lower
quartile over the calls, while counts and bytes are means.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base.result.trace_data import EventKind, ExecutedOp
from modeldyno.engine.trace.layer_times import lower_quartile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MOST_ROWS = 2000
"""Most rows with shapes and modules; the others are merged, so that a document stays small."""
WITHIN = " > "
"""Between the name of a region of code and the module in it that ran an operator, in a scope."""
VARIOUS = "various"
"""The shapes of merged rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One call of an operator, a kernel, transfer, synchronisation or named range."""

    name: str
    kind: EventKind = EventKind.OPERATOR
    scope: str = ""
    """Path of the innermost module that ran it."""
    shapes: str = ""
    self_time: float = 0.0
    """Seconds on the host, without its callees."""
    total_time: float = 0.0
    device_time: float = 0.0
    """Seconds on a device: for an operator, those of the kernels that it launched itself."""
    allocated: float = 0.0
    """Bytes allocated, less those freed."""
    parent: int | None = None
    """Index of its caller among the same occurrences."""
    call: int = 0
    """Number of the recorded call that it is in, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCalls:
    """The occurrences of a few recorded calls."""

    times: tuple[float, ...]
    """Seconds of each call."""
    occurrences: tuple[Occurrence, ...]
    """Of all calls together."""
    tick: float = 0.0
    """Seconds in which the times of occurrences are counted; 0: as finely as our own clock counts."""
    hidden: bool = False
    """Whether modules cannot be distinguished, as in compiled code."""


def operator_times(watched: WatchedCalls) -> tuple[float, ...]:
    """Return the seconds of each call within operators, those that others call not counted again.

    Where kernels ran on a device, it is the time of kernels and transfers there: the host only launches them.
    """
    device = {EventKind.KERNEL, EventKind.TRANSFER}
    on_device = any(o.device_time for o in watched.occurrences if o.kind in device)
    sums = [0.0] * len(watched.times)
    for occurrence in watched.occurrences:
        if on_device:
            sums[occurrence.call] += occurrence.device_time if occurrence.kind in device else 0.0
        elif occurrence.kind in _WORKING and not _is_within_operator(occurrence, watched.occurrences):
            sums[occurrence.call] += occurrence.total_time
    return tuple(sums)


_WORKING = frozenset({EventKind.OPERATOR, EventKind.TRANSFER})


def _is_within_operator(occurrence: Occurrence, occurrences: Sequence[Occurrence]) -> bool:
    while occurrence.parent is not None:
        occurrence = occurrences[occurrence.parent]
        if occurrence.kind in _WORKING:
            return True
    return False


OccurrenceKey = tuple[EventKind, str, str, str]
"""Kind, name, scope, shapes."""


def sum_occurrences(watched: WatchedCalls, most: int = MOST_ROWS) -> tuple[ExecutedOp, ...]:
    """Sum occurrences by kind, name, module and shapes, for one call; the slowest first.

    Rows beyond `most` are merged by kind and name, without a module and with the shapes VARIOUS, so that
    the totals stay the same.
    """
    groups: defaultdict[OccurrenceKey, list[int]] = defaultdict(list)
    for index, occurrence in enumerate(watched.occurrences):
        groups[_group_key(occurrence)].append(index)
    calls = max(1, len(watched.times))
    rows = sorted(
        (_sum_group(key, group, watched.occurrences, calls) for key, group in groups.items()), key=_sort_key
    )
    if len(rows) <= most:
        return tuple(rows)
    return (*rows[:most], *sorted(_merge_rows(rows[most:]), key=_sort_key))


def _group_key(occurrence: Occurrence) -> OccurrenceKey:
    return occurrence.kind, occurrence.name, occurrence.scope, occurrence.shapes


def _sort_key(row: ExecutedOp) -> tuple[float, str, str, str]:
    return -max(row.self_time, row.device_time), row.name, row.scope, row.shapes


def _sum_group(
    key: OccurrenceKey, group: Sequence[int], occurrences: Sequence[Occurrence], calls: int
) -> ExecutedOp:
    kind, name, scope, shapes = key
    members = [occurrences[index] for index in group]
    outermost = [occurrence for occurrence in members if not _is_nested(occurrence, key, occurrences)]
    return ExecutedOp(
        name=name,
        kind=kind,
        scope=scope,
        shapes=shapes,
        calls=len(members) / calls,
        self_time=_quartile_time(members, lambda occurrence: occurrence.self_time, calls),
        total_time=_quartile_time(outermost, lambda occurrence: occurrence.total_time, calls),
        device_time=_quartile_time(members, lambda occurrence: occurrence.device_time, calls),
        allocated=max(0.0, sum(occurrence.allocated for occurrence in members) / calls),
    )


def _quartile_time(members: Iterable[Occurrence], time: Callable[[Occurrence], float], calls: int) -> float:
    """Return the seconds of one call: the lower quartile over the calls that have it, times their share."""
    sums: defaultdict[int, float] = defaultdict(float)
    for occurrence in members:
        sums[occurrence.call] += time(occurrence)
    return lower_quartile(sums.values()) * len(sums) / calls


def _is_nested(occurrence: Occurrence, key: OccurrenceKey, occurrences: Sequence[Occurrence]) -> bool:
    """Whether it was called by another of the same group, whose time includes it."""
    while occurrence.parent is not None:
        occurrence = occurrences[occurrence.parent]
        if _group_key(occurrence) == key:
            return True
    return False


def _merge_rows(rows: Iterable[ExecutedOp]) -> list[ExecutedOp]:
    merged: dict[tuple[str, str], ExecutedOp] = {}
    for row in rows:
        before = merged.get((row.kind, row.name))
        merged[row.kind, row.name] = (
            replace(row, scope="", shapes=VARIOUS) if before is None else _add_rows(before, row)
        )
    return list(merged.values())


def _add_rows(one: ExecutedOp, other: ExecutedOp) -> ExecutedOp:
    return replace(
        one,
        calls=one.calls + other.calls,
        self_time=one.self_time + other.self_time,
        total_time=one.total_time + other.total_time,
        device_time=one.device_time + other.device_time,
        allocated=one.allocated + other.allocated,
    )

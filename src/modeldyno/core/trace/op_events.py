"""Single things that happened inside a call, and their sums by name, module and shapes.

A few calls are watched, and one of them may be held up by whatever else the machine does: a time is the
lower quartile of those of the calls, as `attribution.quiet` gives it, while counts and bytes are means.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.core.result.trace_data import Executed, Happening
from modeldyno.core.trace.layer_times import quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MOST_ROWS = 2000
"""Rows that are told one by one; those behind them are joined, so that a document stays small."""
VARIOUS = "various"
"""The shapes of what was joined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One operator, kernel, transfer, synchronisation or named range; an interim value."""

    name: str
    kind: Happening = Happening.OPERATOR
    scope: str = ""
    """Path of the innermost module that ran it."""
    shapes: str = ""
    self_time: float = 0.0
    """Seconds of the host, without what it called in turn."""
    total_time: float = 0.0
    device_time: float = 0.0
    """Seconds on a device: of an operator, that of the kernels that it launched itself."""
    allocated: float = 0.0
    """Bytes taken from the allocator, less those given back."""
    parent: int | None = None
    """Place of what called it, among the same occurrences."""
    call: int = 0
    """In which of the watched calls, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCalls:
    """What a few watched calls gave."""

    times: tuple[float, ...]
    """Seconds of each call."""
    occurrences: tuple[Occurrence, ...]
    """Of all calls together."""
    hidden: bool = False
    """Whether modules could not be told apart, as in compiled code."""


Key = tuple[Happening, str, str, str]
"""Kind, name, scope, shapes."""


def executed(watched: WatchedCalls, most: int = MOST_ROWS) -> tuple[Executed, ...]:
    """Sum occurrences up by kind, name, module and shapes, for one call; the costliest first.

    Rows beyond `most` are joined by kind and name alone, as of the whole, with the shapes VARIOUS, so
    that sums stay what they are.
    """
    groups: defaultdict[Key, list[int]] = defaultdict(list)
    for place, found in enumerate(watched.occurrences):
        groups[_key(found)].append(place)
    calls = max(1, len(watched.times))
    rows = sorted((_row(key, group, watched.occurrences, calls) for key, group in groups.items()), key=_cost)
    if len(rows) <= most:
        return tuple(rows)
    return (*rows[:most], *sorted(_joined(rows[most:]), key=_cost))


def _key(found: Occurrence) -> Key:
    return found.kind, found.name, found.scope, found.shapes


def _cost(row: Executed) -> tuple[float, str, str, str]:
    return -max(row.self_time, row.device_time), row.name, row.scope, row.shapes


def _row(key: Key, group: Sequence[int], occurrences: Sequence[Occurrence], calls: int) -> Executed:
    kind, name, scope, shapes = key
    found = [occurrences[place] for place in group]
    outermost = [each for each in found if not _within(each, key, occurrences)]
    return Executed(
        name=name,
        kind=kind,
        scope=scope,
        shapes=shapes,
        calls=len(found) / calls,
        self_time=_undisturbed(found, lambda each: each.self_time, calls),
        total_time=_undisturbed(outermost, lambda each: each.total_time, calls),
        device_time=_undisturbed(found, lambda each: each.device_time, calls),
        allocated=max(0.0, sum(each.allocated for each in found) / calls),
    )


def _undisturbed(found: Iterable[Occurrence], time: Callable[[Occurrence], float], calls: int) -> float:
    """Give the seconds of one call: a quiet one of those that have it, by the share of calls that do."""
    sums: defaultdict[int, float] = defaultdict(float)
    for each in found:
        sums[each.call] += time(each)
    return quiet(sums.values()) * len(sums) / calls


def _within(found: Occurrence, key: Key, occurrences: Sequence[Occurrence]) -> bool:
    """Whether another of the same group called it: its time is part of that one's."""
    while found.parent is not None:
        found = occurrences[found.parent]
        if _key(found) == key:
            return True
    return False


def _joined(rows: Iterable[Executed]) -> list[Executed]:
    whole: dict[tuple[str, str], Executed] = {}
    for row in rows:
        before = whole.get((row.kind, row.name))
        whole[row.kind, row.name] = (
            replace(row, scope="", shapes=VARIOUS) if before is None else _added(before, row)
        )
    return list(whole.values())


def _added(one: Executed, other: Executed) -> Executed:
    return replace(
        one,
        calls=one.calls + other.calls,
        self_time=one.self_time + other.self_time,
        total_time=one.total_time + other.total_time,
        device_time=one.device_time + other.device_time,
        allocated=one.allocated + other.allocated,
    )

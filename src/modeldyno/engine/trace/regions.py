"""Statistics of named code regions, collected in bounded memory, as Measurements and doubts.

A region is a function, or the body of a ``with`` statement, that the user has named. Its Measurements have
the name as scope: `latency` is one call of it; `calls`, `total_time` and `total_self_time` are of the run.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.result.trace_data import EventKind
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.engine.trace.op_events import WITHIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from modeldyno.base.result.trace_data import ExecutedOp

SCRIPT = "script"
"""The scheme of the subject of regions: a script, which no loader loads."""
PROMPT = "python"
"""Stands for the script where code was typed at a prompt, or given as an argument."""
PROBE = "profiled"
"""The probe in the Job of such a Result."""
WATCHED = "watched"
"""The probe in the Job of a Result about a block of code that was watched from outside."""
MOST = 16_384
"""Most calls of a region that are kept; beyond it a random one of every 2, 4, 8 ... consecutive ones."""
CallTimes = tuple[int, int, int, int]
"""Nanoseconds that a call took, outside of nested regions, and without another call of its region around it;
and the number of calls directly within it."""
_NS = 1e-9
_LEAST_PERIODS = 10
"""Periods of a counter of energy that the calls of a region must take together."""
_OVERHEAD_LIMIT = 0.05
"""Share of a region's own time above which the recording overhead is a doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Of which calls of a region the operators are recorded: by default of the first ten."""

    wait: int = 0
    """Calls that are left alone at the beginning of each round."""
    warmup: int = 0
    """Calls after them that are recorded and not kept, as the first recorded ones are slower."""
    active: int = 10
    """Calls after them that are recorded and kept."""
    repeat: int = 1
    """How many such rounds there are."""

    def records(self, call: int) -> bool:
        """Return whether a call is recorded; they count from 0."""
        turn, place = divmod(call, self.wait + self.warmup + self.active)
        return turn < self.repeat and place >= self.wait

    def keeps(self, call: int) -> bool:
        """Return whether what is recorded of a call is kept."""
        return (
            self.records(call) and call % (self.wait + self.warmup + self.active) >= self.wait + self.warmup
        )


class RegionTally:
    """The times of the calls of one region; keeps at most MOST of them.

    Of more calls, each stretch of 2, 4, 8 ... consecutive ones is represented by a random one of them: a
    periodic pattern cannot hide between the kept calls, and their order is preserved, so that the effective
    sample size can still be computed. The fastest and the slowest call are always kept.
    """

    __slots__ = (
        "_most", "_next_kept", "_random", "_stride", "calls", "drawn", "first", "kept", "least", "longest",
        "metered", "nested_calls", "own", "sizes", "total",
    )  # fmt: skip

    def __init__(self, most: int = MOST, seed: int = 0) -> None:
        self.calls = 0
        self.total = 0
        """Nanoseconds in the outermost calls; a recursive call adds nothing."""
        self.own = 0
        """Nanoseconds outside of all nested regions."""
        self.nested_calls = 0
        """Calls of regions directly within these."""
        self.kept = array("q")
        """Nanoseconds of the kept calls."""
        self.least = 0
        self.longest = 0
        self.first = 0
        """Nanoseconds of the call that ended first, which may have set up what the others use."""
        self.sizes: dict[str, RegionMemory] = {}
        """Memory by place, where it was measured."""
        self.drawn: dict[str, float] = {}
        """Joules by device, where they were measured."""
        self.metered = 0
        """Calls whose energy was asked for."""
        self._most = most
        self._stride = 1
        self._next_kept = 1
        self._random = Random(seed)

    def add(self, calls: Sequence[CallTimes]) -> None:
        """Add calls that have ended, in their order."""
        if not calls:
            return
        spent, own, outermost, nested_calls = zip(*calls, strict=True)
        if not self.calls:
            self.first = self.least = spent[0]
        before = self.calls
        self.calls += len(calls)
        self.total += sum(outermost)
        self.own += sum(own)
        self.nested_calls += sum(nested_calls)
        self.longest = max(self.longest, *spent)
        self.least = min(self.least, *spent)
        if self._stride == 1 and len(self.kept) + len(calls) < self._most:
            self.kept.extend(spent)
            self._next_kept += len(calls)
        while self._next_kept <= self.calls:
            self._keep(spent[self._next_kept - before - 1])

    def _keep(self, spent: int) -> None:
        self.kept.append(spent)
        if len(self.kept) == self._most:
            pairs = range(0, self._most - 1, 2)
            self.kept = array("q", (self.kept[i + self._random.getrandbits(1)] for i in pairs))
            self._stride *= 2
        covered = len(self.kept) * self._stride
        self._next_kept = covered + (1 if self._stride == 1 else 1 + self._random.randrange(self._stride))

    def seconds(self) -> array[float]:
        """Return the kept calls in seconds, in their order; the extremes come last if not among them."""
        extremes = {self.least, self.longest}.difference(self.kept) if self.calls > len(self.kept) else ()
        return array("d", (time * _NS for time in (*self.kept, *sorted(extremes))))


@dataclass(slots=True)
class RegionMemory:
    """Memory of the calls of a region at one place, such as ``process`` or ``cuda:0``."""

    calls: int = 0
    allocated: int = 0
    freed: int = 0
    peak: int | None = None
    """Most bytes that one call held above the level at its begin; None where unknown."""

    def add(self, allocated: int, freed: int, peak: int | None) -> None:
        """Add a call."""
        self.calls += 1
        self.allocated += allocated
        self.freed += freed
        if peak is not None:
            self.peak = peak if self.peak is None else max(self.peak, peak)


def region_measurements(
    tallies: Mapping[str, RegionTally], clock: Mapping[str, float]
) -> Iterator[Measurement]:
    """Yield the Measurements of tallies, the region with most own time first.

    `clock` has the clock fields of a Distribution: its resolution and the cost of reading it.
    """
    for name, tally in sorted(tallies.items(), key=lambda item: -item[1].own):
        value = Distribution.of(tally.seconds(), stop="run ended", **clock)
        yield Measurement(metric="latency", value=value, scope=name)
        yield observed_number("first_call", tally.first * _NS, scope=name)
        yield observed_number("calls", tally.calls, scope=name)
        yield observed_number("total_time", tally.total * _NS, scope=name)
        yield observed_number("total_self_time", tally.own * _NS, scope=name)
        for place, sizes in sorted(tally.sizes.items()):
            scope = region_memory_scope(name, place)
            yield observed_number("allocated", sizes.allocated / sizes.calls, scope=scope)
            yield observed_number("freed", sizes.freed / sizes.calls, scope=scope)
            if sizes.peak is not None:
                yield observed_number("allocated_peak", sizes.peak, scope=scope)
        for device, joules in sorted(tally.drawn.items()):
            scope = region_memory_scope(name, device)
            yield observed_number("energy_drawn", joules / tally.metered, scope=scope)


def region_memory_scope(name: str, place: str) -> str:
    """Return the scope of a region's memory or energy at a place: ``load [cuda:0]``."""
    return f"{name} [{place}]"


def split_region_scope(scope: str) -> tuple[str, str]:
    """Split such a scope into region and place; the place is empty where there is none."""
    name, separator, place = scope.rpartition(" [")
    return (name, place[:-1]) if separator and place.endswith("]") else (scope, "")


def region_operators(executed: Iterable[ExecutedOp]) -> dict[str, dict[str, list[ExecutedOp]]]:
    """Return the operators by region and by name, those of the modules in the region among them."""
    operators: dict[str, dict[str, list[ExecutedOp]]] = {}
    for row in executed:
        if row.kind is EventKind.OPERATOR:
            region = row.scope.partition(WITHIN)[0]
            operators.setdefault(region, {}).setdefault(row.name, []).append(row)
    return operators


def operator_measurements(executed: Iterable[ExecutedOp]) -> Iterator[Measurement]:
    """Yield how many operators run in one call of each region."""
    for region, operators in region_operators(executed).items():
        calls = sum(row.calls for rows in operators.values() for row in rows)
        yield Measurement(metric="operator_calls", value=calls, scope=region)


def operators_doubt(calls: int) -> Doubt:
    """Return the doubt about times of calls whose operators were recorded."""
    return Doubt(
        code="traced-operators",
        seen=f"recording operators slowed down the calls in which it was done; it was done in {calls:,}",
        advice="read times from a run that records none; minimum and median of many calls hardly change",
    )


def energy_doubts(tallies: Mapping[str, RegionTally], period: float) -> Iterator[Doubt]:
    """Yield doubts about the energy of regions: no counter was read, or it was updated too rarely.

    `period` is the most seconds between two updates of a counter.
    """
    metered = {name: tally for name, tally in tallies.items() if tally.metered}
    if any(not tally.drawn for tally in metered.values()):
        yield Doubt(
            code="unread-energy",
            seen="no counter of energy could be read",
            advice="let the counters of the processor or the card be read: see Watch the device",
        )
    short = [
        name for name, tally in metered.items() if tally.drawn and tally.total * _NS < _LEAST_PERIODS * period
    ]
    if short:
        yield Doubt(
            code="short-window",
            seen=f"all calls of {short[0]} together took less than {_LEAST_PERIODS} periods of the counter "
            f"of energy{_others(short)}",
            advice="measure more calls, or read no energy from it",
        )


def region_doubts(
    tallies: Mapping[str, RegionTally], *, cost: float, slowed: float | None
) -> Iterator[Doubt]:
    """Yield doubts about times that the recording itself distorts.

    Args:
        tallies: what was recorded, by region.
        cost: seconds that recording a call adds to its caller; measuring memory is already subtracted.
        slowed: by which factor tracing slowed small allocations down; None if they were not traced.
    """
    if slowed is not None:  # tracing slows everything down, by more than recording does
        yield Doubt(
            code="traced-memory",
            seen=f"allocations of Python objects were traced, and took {slowed:.1f} times as long as without",
            advice="read times from a run without memory=True; memory='process' costs far less",
        )
        return
    distorted = [
        (name, share)
        for name, tally in tallies.items()
        if (share := _overhead_share(tally, cost)) > _OVERHEAD_LIMIT
    ]
    if distorted:
        worst, share = max(distorted, key=lambda entry: entry[1])
        yield Doubt(
            code="timer-bound",
            seen=f"{share:.0%} of the own time of {worst} is the overhead of recording the calls within it, "
            f"at {format_quantity(cost, SECONDS, 2)} each{_others(distorted)}",
            advice="leave the smallest functions out, or read their time and not that of what calls them",
        )


def _overhead_share(tally: RegionTally, cost: float) -> float:
    """Return the share of a region's own time that recording the calls within it takes."""
    return min(1.0, tally.nested_calls * cost / (tally.own * _NS)) if tally.own else 0.0


def _others(regions: Iterable[object]) -> str:
    more = len(tuple(regions)) - 1
    return f"; the same holds for {more} more" if more else ""

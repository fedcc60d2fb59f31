"""Named regions of code: what their calls took, gathered in bounded memory, and what to make of it.

A region is a function, or the body of a ``with`` statement, that somebody gave a name. Its numbers are
Measurements with the name as scope: `latency` is one call of it; `calls`, `total_time` and
`total_self_time` are of the whole run.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Distribution, Measurement, observed
from modeldyno.core.stats.units import SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SCRIPT = "script"
"""The scheme of what holds regions: a script is nothing that a loader could load."""
PROBE = "profiled"
"""What the Job of such a Result names as its probe."""
MOST = 16_384
"""Calls of a region that are kept one by one; beyond it one of every 2, 4, 8 ... in a row, by lot."""
_NS = 1e-9
_DEAR = 0.05
"""Share of a region's own time from which on the cost of noting down is a doubt."""


class Tally:
    """What the calls of one region took; grows no further than MOST calls.

    Of more calls than that, each stretch of 2, 4, 8 ... consecutive ones is represented by one of them,
    drawn by lot: a pattern in the calls cannot hide between the drawn ones, and their order is kept, so
    that the effective number of samples can still be told. The quickest and the slowest are kept anyway.
    """

    __slots__ = (
        "_due", "_lot", "_most", "_stride", "calls", "kept", "least", "longest", "nested_calls", "own",
        "sizes", "total",
    )  # fmt: skip

    def __init__(self, most: int = MOST, seed: int = 0) -> None:
        self.calls = 0
        self.total = 0
        """Nanoseconds in the outermost calls: a call within one of the same region adds nothing."""
        self.own = 0
        """Nanoseconds outside of all nested regions."""
        self.nested_calls = 0
        """Calls of regions directly within these."""
        self.kept = array("q")
        """Nanoseconds of the calls that are kept."""
        self.least = 0
        self.longest = 0
        self.sizes: dict[str, Sizes] = {}
        """Where memory was looked at, by place."""
        self._most = most
        self._stride = 1
        self._due = 1
        self._lot = Random(seed)  # noqa: S311 - no secret

    def add(self, spent: int, own: int, outermost: int, nested_calls: int) -> None:
        """Count a call; times are nanoseconds."""
        self.calls += 1
        self.total += outermost
        self.own += own
        self.nested_calls += nested_calls
        self.longest = max(self.longest, spent)
        self.least = spent if self.calls == 1 else min(self.least, spent)
        if self.calls == self._due:
            self._keep(spent)

    def _keep(self, spent: int) -> None:
        self.kept.append(spent)
        if len(self.kept) == self._most:
            pairs = range(0, self._most - 1, 2)
            self.kept = array("q", (self.kept[i + self._lot.getrandbits(1)] for i in pairs))
            self._stride *= 2
        begun = len(self.kept) * self._stride
        self._due = begun + (1 if self._stride == 1 else 1 + self._lot.randrange(self._stride))

    def seconds(self) -> array[float]:
        """Give the calls that are kept, seconds, in their order; the extremes come last if not among them."""
        extremes = {self.least, self.longest}.difference(self.kept) if self.calls > len(self.kept) else ()
        return array("d", (time * _NS for time in (*self.kept, *sorted(extremes))))


@dataclass(slots=True)
class Sizes:
    """Bytes that calls of a region took at one place, such as ``process`` or ``cuda:0``."""

    calls: int = 0
    allocated: int = 0
    freed: int = 0
    peak: int | None = None
    """Most bytes that one call held above what was held at its beginning; None where it is not known."""

    def add(self, allocated: int, freed: int, peak: int | None) -> None:
        """Count a call."""
        self.calls += 1
        self.allocated += allocated
        self.freed += freed
        if peak is not None:
            self.peak = peak if self.peak is None else max(self.peak, peak)


def measurements(tallies: Mapping[str, Tally], clock: Mapping[str, float]) -> Iterator[Measurement]:
    """Turn tallies into Measurements, the region with most time of its own first.

    `clock` has the facts of a Distribution about the clock: its resolution and what reading it costs.
    """
    for name, tally in sorted(tallies.items(), key=lambda item: -item[1].own):
        value = Distribution.of(tally.seconds(), stop="run ended", **clock)
        yield Measurement(metric="latency", value=value, scope=name)
        yield observed("calls", tally.calls, scope=name)
        yield observed("total_time", tally.total * _NS, scope=name)
        yield observed("total_self_time", tally.own * _NS, scope=name)
        for place, sizes in sorted(tally.sizes.items()):
            scope = at(name, place)
            yield observed("allocated", sizes.allocated / sizes.calls, scope=scope)
            yield observed("freed", sizes.freed / sizes.calls, scope=scope)
            if sizes.peak is not None:
                yield observed("allocated_peak", sizes.peak, scope=scope)


def at(name: str, place: str) -> str:
    """Give the scope of a region's memory at a place: ``load [cuda:0]``."""
    return f"{name} [{place}]"


def parted(scope: str) -> tuple[str, str]:
    """Give the region and the place of such a scope; no place where there is none."""
    name, separator, place = scope.rpartition(" [")
    return (name, place[:-1]) if separator and place.endswith("]") else (scope, "")


def doubts(tallies: Mapping[str, Tally], *, cost: float, slowed: float | None) -> Iterator[Doubt]:
    """Doubt what noting down has coloured.

    Args:
        tallies: what was seen, by region.
        cost: seconds that noting down a call costs whoever makes it; looking at memory is taken off already.
        slowed: how many times longer small allocations took while they were traced; None if they were not.
    """
    if slowed is not None:  # everything was slower then, by more than noting down
        yield Doubt(
            code="traced-memory",
            seen=f"allocations of Python objects were traced, and took {slowed:.1f} times as long as without",
            advice="read times from a run without memory=True; memory='process' costs far less",
        )
        return
    coloured = [(name, share) for name, tally in tallies.items() if (share := _share(tally, cost)) > _DEAR]
    if coloured:
        worst, share = max(coloured, key=lambda found: found[1])
        yield Doubt(
            code="timer-bound",
            seen=f"{share:.0%} of the own time of {worst} went into noting down the calls within it, at "
            f"{format_quantity(cost, SECONDS, 2)} each{_others(coloured)}",
            advice="leave the smallest functions out, or read their time and not that of what calls them",
        )


def _share(tally: Tally, cost: float) -> float:
    """Give the share of a region's own time that noting down the calls within it takes."""
    return min(1.0, tally.nested_calls * cost / (tally.own * _NS)) if tally.own else 0.0


def _others(found: Iterable[object]) -> str:
    more = len(tuple(found)) - 1
    return f"; so it is with {more} more" if more else ""

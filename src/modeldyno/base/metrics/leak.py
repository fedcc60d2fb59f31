"""Leaks: what calls leave behind, from readings between them.

A leak rises in every quarter of the calls; what fills and stays, such as a cache, does not. What rose so is
only suspected: the memory of a process also grows by the profiler's own samples, and by what waits for the
garbage collector. So some more calls are made, in equal blocks after a collection, and each has to add its
share. What rises as fast in a pause is of others: of other processes, which put files into the same folder,
or of the profiler's own threads, which take readings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.stats.units import BYTES, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """What a call may leave behind."""

    many: str
    """What it is called where there are several."""
    one: str = ""
    """What one is called; empty for bytes."""
    least: float
    """Smallest rise that says anything."""
    rate: float
    """Smallest rise per call that is a leak."""
    own: float = 0.0
    """Largest rise from one reading to the next that is of the reading itself."""


_ROUGHLY = 2.0**19
RESOURCES = {
    "memory": Resource(many="memory", least=_ROUGHLY, rate=64.0),
    "mapped": Resource(many="mapped memory", least=_ROUGHLY, rate=1024.0),
    "objects": Resource(many="Python allocations", one="Python allocation", least=40, rate=0.5, own=8),
    "descriptors": Resource(many="open files or sockets", one="open file or socket", least=4, rate=0.001),
    "threads": Resource(many="threads", one="thread", least=4, rate=0.001),
    "processes": Resource(many="processes", one="process", least=4, rate=0.001),
    "files": Resource(many="temporary files", one="temporary file", least=4, rate=0.001),
}
"""What is read, by name; ``files`` are those for temporary ones and for shared memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceReading:
    """How much a process had after so many calls."""

    calls: int
    amounts: Mapping[str, float]
    """By names of RESOURCES; of what cannot be read, nothing."""


FEWEST = 5
"""Fewest readings, and so calls, that anything is suspected from."""
_QUARTER_SHARE = 0.4
"""Share of its part of the whole rise that each quarter of the calls must have."""
_BLOCK_SHARE = 0.5
"""The same of blocks, which are equal and follow a collection."""
_PAUSE_SHARE = 0.25
"""Share of what calls added: if as much is added in a pause as long as they took, it is of others."""


def suspected_leaks(readings: Sequence[ResourceReading], warmup: int) -> dict[str, float]:
    """Return what rose in every quarter of the calls: how much per call, by name.

    Readings during the warm-up count only if there are too few after it.
    """
    steady = [reading for reading in readings if reading.calls >= warmup]
    judged = steady if len(steady) >= FEWEST else readings
    return _rates(_quarters(judged), _QUARTER_SHARE, least=True) if len(judged) >= FEWEST else {}


def confirmed_leaks(blocks: Sequence[ResourceReading], suspected: Mapping[str, float]) -> dict[str, float]:
    """Return what was suspected and rose in each block of calls: how much per call."""
    rates = _rates(blocks, _BLOCK_SHARE, least=False)
    return {name: min(rate, rates[name]) for name, rate in suspected.items() if name in rates}


def without_others(
    rates: Mapping[str, float], calls: float, begin: ResourceReading, end: ResourceReading
) -> dict[str, float]:
    """Return the leaks that are of the calls: what others add to rose less between two readings without any.

    Args:
        rates: how much per call, by name
        calls: how many calls take as long as the pause
        begin: the reading when the pause began
        end: the reading when it ended
    """
    return {
        name: rate
        for name, rate in rates.items()
        if end.amounts[name] - begin.amounts[name] < _PAUSE_SHARE * rate * calls
    }


def block_length(rates: Mapping[str, float], calls: int) -> int:
    """Return how many calls make what is suspected visible, within a sixteenth of those that were made.

    In a shorter block the few allocations of our own threads would pass for one in every call.
    """
    needed = max(math.ceil(2 * RESOURCES[name].least / rate) for name, rate in rates.items())
    return max(1, min(needed, calls // 16))


def leak_doubts(rates: Mapping[str, float]) -> Iterator[Doubt]:
    """Yield a doubt that says what each call leaves behind."""
    shown = [name for name in RESOURCES if name in rates and not _follows(name, rates)]
    if shown:
        *others, last = [_amount(name, rates[name]) for name in shown]
        amounts = f"{', '.join(others)} and {last}" if others else last
        yield Doubt(
            code="leak",
            seen=f"on average a call left {amounts} behind, which no later call released",
            advice="look for what outlives a call: a list or cache that grows, a file, socket, thread or "
            "process that is not closed or ended",
        )


def _rates(readings: Sequence[ResourceReading], share: float, *, least: bool) -> dict[str, float]:
    """Return what rose by at least this share of its mean rise between any two readings."""
    first, last = readings[0], readings[-1]
    calls = last.calls - first.calls
    rates = {}
    for name, resource in RESOURCES.items():
        if not all(name in reading.amounts for reading in readings):
            continue
        rise = last.amounts[name] - first.amounts[name]
        if rise < resource.rate * calls or rise < (resource.least if least else 1) or rise <= 0:
            continue
        steps = [
            (after.amounts[name] - before.amounts[name], share * rise * (after.calls - before.calls) / calls)
            for before, after in pairwise(readings)
        ]
        if all(step > resource.own and step >= part for step, part in steps):
            rates[name] = rise / calls
    return rates


def _quarters(readings: Sequence[ResourceReading]) -> list[ResourceReading]:
    """Return the readings that divide the calls into four parts, as equal as they are."""
    first, last = readings[0].calls, readings[-1].calls
    ends = [first + (last - first) * quarter / 4 for quarter in range(5)]
    nearest = [min(readings, key=lambda reading: abs(reading.calls - end)) for end in ends]
    return list({reading.calls: reading for reading in nearest}.values())


def _follows(name: str, rates: Mapping[str, float]) -> bool:
    """Return whether a leak is another one, seen twice: what is used is mapped, as is a thread's stack."""
    return name == "mapped" and (rates.get("memory", 0.0) > rates[name] / 4 or "threads" in rates)


def _amount(name: str, rate: float) -> str:
    resource = RESOURCES[name]
    if not resource.one:
        return f"{format_quantity(rate, BYTES, 3)} of {resource.many}"
    count = f"{rate:.2g}" if rate < 10 else f"{rate:,.0f}"
    return f"{count} {resource.one if count == '1' else resource.many}"

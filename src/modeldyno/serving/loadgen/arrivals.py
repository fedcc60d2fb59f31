"""Arrival processes: when requests are due, as an iterator of nanoseconds from the start, possibly endless.

Several drivers share an arrival process so that together they produce that process: a Poisson process is
thinned; of any other process, every k-th time goes to the same driver.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count, islice
from random import Random
from typing import TYPE_CHECKING

from modeldyno.base.job.load_spec import Arrivals
from modeldyno.engine.data.trace_file import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.job.load_spec import Load

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShare:
    """One driver's part of a load."""

    index: int = 0
    of: int = 1

    def amount(self, total: int) -> int:
        """Return this driver's part of a whole number; parts differ by at most one, and sum to the whole."""
        return total // self.of + (self.index < total % self.of)


ALONE = LoadShare()


def due_times(load: Load, share: LoadShare = ALONE, *, seed: int = 0) -> Iterator[int]:
    """Yield when the requests of a share are due; in a closed loop, when its slots start.

    Of sequences that arrive it is when each begins.

    Ignores `load.requests`. Raises RequestError for a trace that cannot be read.
    """
    if load.arrivals is Arrivals.CLOSED:
        slots = load.slots or 1
        return iter([int(load.ramp * _SECOND * slot / slots) for slot in range(share.index, slots, share.of)])
    if load.arrivals is Arrivals.TRACE:
        times = read_trace(load.trace or "").until(load.window).times[share.index :: share.of]
        return iter(times) if load.speed == 1 else (int(time / load.speed) for time in times)
    return map(_time_of_position(load.rate or 1.0, load.ramp), _positions(load, share, seed))


def _positions(load: Load, share: LoadShare, seed: int) -> Iterator[float]:
    """Yield each arrival's position: the expected number of arrivals before it."""
    if load.arrivals in {Arrivals.POISSON, Arrivals.SEQUENCES}:
        return _poisson_positions(Random(f"{seed}/{share.index}/{share.of}"), share.of)
    if load.arrivals is Arrivals.GAMMA:
        return islice(_gamma_positions(Random(str(seed)), load.burstiness), share.index, None, share.of)
    size = load.burst if load.arrivals is Arrivals.BURST else 1
    return (float(number // size * size) for number in count(share.index, share.of))


def _poisson_positions(random: Random, mean: float) -> Iterator[float]:
    position = 0.0
    while True:
        position += random.expovariate(1.0) * mean
        yield position


def _gamma_positions(random: Random, shape: float) -> Iterator[float]:
    """Yield the positions of all drivers, which each draws alike, as such a process cannot be thinned."""
    position = 0.0
    while True:
        position += random.gammavariate(shape, 1.0 / shape)
        yield position


def _time_of_position(rate: float, ramp: float) -> Callable[[float], int]:
    """Return a function from a position to its time in nanoseconds, for a rate that first grows linearly."""
    ramp_arrivals = rate * ramp / 2

    def when(position: float) -> int:
        if position < ramp_arrivals:
            return int(math.sqrt(2 * ramp * position / rate) * _SECOND)
        return int((ramp / 2 + position / rate) * _SECOND)

    return when

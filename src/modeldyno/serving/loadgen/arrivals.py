"""Arrival processes: when requests are due, as an iterator of nanoseconds from the start, possibly endless.

Several drivers share an arrival process so that together they produce that process: a Poisson process is
thinned; of any other process, every k-th time goes to the same driver.
"""

from __future__ import annotations

import json
import math
from array import array
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from modeldyno.base.codec import check_no_stream
from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import Arrivals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.job.load_spec import Load

_SECOND = 1_000_000_000
_MILLISECOND = 1_000_000


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
        return iter(read_trace(load.trace or "")[share.index :: share.of])
    return map(_time_of_position(load.rate or 1.0, load.ramp), _positions(load, share, seed))


def _positions(load: Load, share: LoadShare, seed: int) -> Iterator[float]:
    """Yield each arrival's position: the expected number of arrivals before it."""
    if load.arrivals in {Arrivals.POISSON, Arrivals.SEQUENCES}:
        return _poisson_positions(Random(f"{seed}/{share.index}/{share.of}"), share.of)
    size = load.burst if load.arrivals is Arrivals.BURST else 1
    return (float(number // size * size) for number in count(share.index, share.of))


def _poisson_positions(random: Random, mean: float) -> Iterator[float]:
    position = 0.0
    while True:
        position += random.expovariate(1.0) * mean
        yield position


def _time_of_position(rate: float, ramp: float) -> Callable[[float], int]:
    """Return a function from a position to its time in nanoseconds, for a rate that first grows linearly."""
    ramp_arrivals = rate * ramp / 2

    def when(position: float) -> int:
        if position < ramp_arrivals:
            return int(math.sqrt(2 * ramp * position / rate) * _SECOND)
        return int((ramp / 2 + position / rate) * _SECOND)

    return when


def read_trace(path: str) -> array[int]:
    """Return a trace's times, sorted, in nanoseconds from the first one.

    Raises RequestError, with the line number, for a line that is not a time.
    """
    times = array("q")
    try:
        check_no_stream(Path(path))
        with Path(path).open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if text := line.strip():
                    times.append(_parse_time(text, path, number))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise RequestError(f"Cannot read the trace {path}: {reason}.") from error
    if not times:
        raise RequestError(f"The trace {path} has no times.")
    first = min(times)
    return array("q", sorted(time - first for time in times))


def unused_trace_fields(path: str) -> tuple[str, ...]:
    """Return the names of the fields in a trace's first line other than the time; they are not used.

    Raises RequestError for a file that cannot be read.
    """
    try:
        check_no_stream(Path(path))
        with Path(path).open(encoding="utf-8") as lines:
            first = next((text for line in lines if (text := line.strip())), "")
    except OSError as error:
        raise RequestError(f"Cannot read the trace {path}: {error.strerror}.") from error
    fields = json.loads(first) if first.startswith("{") else {}
    return tuple(sorted(fields.keys() - {"timestamp"}))


def _parse_time(text: str, path: str, number: int) -> int:
    try:
        if text.startswith("{"):
            return int(float(json.loads(text)["timestamp"]) * _MILLISECOND)
        return int(float(text) * _SECOND)
    except (ValueError, OverflowError, KeyError, TypeError, RecursionError):
        problem = 'neither seconds nor an object with "timestamp" in milliseconds'
        raise RequestError(f"Line {number} of the trace {path} is {problem}: {text[:40]}") from None

"""When requests are due: nanoseconds from the start, told one after the other, without end where none is set.

Several drivers share an arrival process so that their union is that process: a Poisson process is thinned,
every k-th time of any other goes to the same driver.
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

from modeldyno.core.spec.load_spec import Arrivals
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.core.spec.load_spec import Load

_SECOND = 1_000_000_000
_MILLISECOND = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part of one of several drivers."""

    index: int = 0
    of: int = 1

    def amount(self, whole: int) -> int:
        """Its part of so many things; the parts differ by one at most, and sum to the whole."""
        return whole // self.of + (self.index < whole % self.of)


ALONE = Share()


def due_times(load: Load, share: Share = ALONE, *, seed: int = 0) -> Iterator[int]:
    """Tell when the requests of a share are due; in a closed loop, when its slots begin.

    `load.requests` is not looked at. Raises RequestError for a trace that cannot be read.
    """
    if load.arrivals is Arrivals.CLOSED:
        slots = load.slots or 1
        return iter([int(load.ramp * _SECOND * slot / slots) for slot in range(share.index, slots, share.of)])
    if load.arrivals is Arrivals.TRACE:
        return iter(read_trace(load.trace or "")[share.index :: share.of])
    return map(_ramped(load.rate or 1.0, load.ramp), _positions(load, share, seed))


def _positions(load: Load, share: Share, seed: int) -> Iterator[float]:
    """Give the place of each arrival in the process, as how many are expected before it."""
    if load.arrivals is Arrivals.POISSON:
        return _poisson(Random(f"{seed}/{share.index}/{share.of}"), share.of)  # noqa: S311 - no secret
    size = load.burst if load.arrivals is Arrivals.BURST else 1
    return (float(number // size * size) for number in count(share.index, share.of))


def _poisson(random: Random, mean: float) -> Iterator[float]:
    position = 0.0
    while True:
        position += random.expovariate(1.0) * mean
        yield position


def _ramped(rate: float, ramp: float) -> Callable[[float], int]:
    """Give when so many arrivals are expected, in nanoseconds, as the rate grows linearly at first."""
    growing = rate * ramp / 2

    def when(position: float) -> int:
        if position < growing:
            return int(math.sqrt(2 * ramp * position / rate) * _SECOND)
        return int((ramp / 2 + position / rate) * _SECOND)

    return when


def read_trace(path: str) -> array[int]:
    """Read the times of a file, sorted, from the first one on, in nanoseconds.

    Raises RequestError, with the number of the line, for what is no time.
    """
    times = array("q")
    try:
        with Path(path).open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if text := line.strip():
                    times.append(_time(text, path, number))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise RequestError(f"Cannot read the trace {path}: {reason}.") from error
    if not times:
        raise RequestError(f"The trace {path} holds no times.")
    first = min(times)
    return array("q", sorted(time - first for time in times))


def unused_of_trace(path: str) -> tuple[str, ...]:
    """Name what the first line of a trace tells of its request beside the time; nothing of it is used.

    Raises RequestError for a file that cannot be read.
    """
    try:
        with Path(path).open(encoding="utf-8") as lines:
            first = next((text for line in lines if (text := line.strip())), "")
    except OSError as error:
        raise RequestError(f"Cannot read the trace {path}: {error.strerror}.") from error
    told = json.loads(first) if first.startswith("{") else {}
    return tuple(sorted(told.keys() - {"timestamp"}))


def _time(text: str, path: str, number: int) -> int:
    try:
        if text.startswith("{"):
            return int(float(json.loads(text)["timestamp"]) * _MILLISECOND)
        return int(float(text) * _SECOND)
    except (ValueError, OverflowError, KeyError, TypeError):
        wanted = 'neither seconds nor an object with "timestamp" in milliseconds'
        raise RequestError(f"Line {number} of the trace {path} is {wanted}: {text[:40]}") from None

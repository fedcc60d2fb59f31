"""Times of requests whose rate changes over time, linearly between points, as over the hours of a day."""

from __future__ import annotations

import math
from array import array
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SECOND = 1_000_000_000
_MOST = 20_000_000
"""Requests of a series at most."""
_LATEST = 4e9
"""Seconds, which may count from 1970, at which a rate may stand."""
_SEED = "rates"
"""Of the random times: the same series has the same requests for every driver, and on another day."""


def arrival_times(points: Sequence[tuple[float, float]]) -> array[int]:
    """Draw when requests are due, in nanoseconds: a Poisson process whose rate is linear between points.

    Args:
        points: seconds and the rate at that time in requests a second; seconds increase.

    Raises:
        RequestError: there are fewer than two points, seconds do not increase, a rate is negative or no
            number, or the series has no request, or too many.
    """
    if len(points) < 2:
        raise RequestError("A series of rates has two points at least, each of seconds and a rate.")
    for (before, _), (after, _) in pairwise(points):
        if not after > before:
            raise RequestError(
                f"The seconds of a series of rates increase; {after:g} stands after {before:g}."
            )
    for seconds, rate in points:
        if not abs(seconds) <= _LATEST:
            raise RequestError(f"The time {seconds:g} s of a series of rates is too long; write seconds.")
        if not 0 <= rate < math.inf:
            raise RequestError(f"The rate {rate:g} at {seconds:g} s is none; write requests a second.")
    expected = sum((t1 - t0) * (r0 + r1) / 2 for (t0, r0), (t1, r1) in pairwise(points))
    if expected > _MOST:
        raise RequestError(
            f"The series of rates has {expected:.3g} requests, of at most {_MOST:,}; lower its rates."
        )
    times = array("q", _times(points))
    if not times:
        raise RequestError("The series of rates has no request; raise its rates.")
    return times


def _times(points: Sequence[tuple[float, float]]) -> Iterator[int]:
    """Yield the times at which the expected number of requests passes those of a process of rate 1.

    Within a segment that number is r0 t + a t^2 / 2, with the slope a; this is solved for t in the form that
    also holds without a slope (Lewis and Shedler 1979 call it inversion).
    """
    random = Random(_SEED)
    passed, position = 0.0, random.expovariate(1.0)
    for (begin, r0), (end, r1) in pairwise(points):
        slope = (r1 - r0) / (end - begin)
        amount = (end - begin) * (r0 + r1) / 2
        while position < passed + amount:
            rest = position - passed
            after = 2 * rest / (r0 + math.sqrt(max(0.0, r0 * r0 + 2 * slope * rest)))
            yield int((begin - points[0][0] + after) * _SECOND)
            position += random.expovariate(1.0)
        passed += amount

"""Student's t distribution at any level and any degrees of freedom, whole or not.

The distribution function by the continued fraction of the incomplete beta function (Lentz's method; DLMF
8.17.22), its inverse by bisection. Slower than the expansion in `statistics`, and right far out in the tail.
"""

from __future__ import annotations

import math
from functools import lru_cache

_TINY = 1e-300
_PRECISION = 1e-13


def beyond(t: float, degrees: float) -> float:
    """Give P(T > t) for t >= 0, `degrees` > 0."""
    x = degrees / (degrees + t * t)
    return 0.5 * _incomplete_beta(degrees / 2, 0.5, x)


@lru_cache(maxsize=1024)
def point(tail: float, degrees: float) -> float:
    """Give the t that is exceeded with probability `tail`, 0 < tail <= 0.5; infinite without degrees."""
    if degrees <= 0:
        return math.inf
    low, high = 0.0, 1.0
    while beyond(high, degrees) > tail:
        low, high = high, 2 * high
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if beyond(middle, degrees) > tail else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Give the regularised incomplete beta function, 0 < x <= 1."""
    if x >= 1:
        return 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x > (a + 1) / (a + b + 2):  # the fraction converges quickly on the other side only
        return 1 - front * _fraction(b, a, 1 - x) / b
    return front * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    numerator, denominator = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = denominator
    m = 0
    while True:
        m, before = m + 1, value
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            denominator = 1 / _away(1 + step * denominator)
            numerator = _away(1 + step / numerator)
            value *= denominator * numerator
        if abs(value / before - 1) < _PRECISION:
            return value


def _away(number: float) -> float:
    """Keep a divisor from zero."""
    return number if abs(number) > _TINY else _TINY

"""Student's t distribution at any level and any degrees of freedom, whole or not.

The distribution function by the continued fraction of the incomplete beta function (Lentz's method; DLMF
8.17.22), its inverse by Newton's method. Accurate far out in the tail, and below one degree of freedom.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_TINY = 1e-300
_PRECISION = 1e-13
_STEPS, _LARGEST = 100, 500.0
_MANY = 1e7
"""Degrees of freedom from which it equals the normal distribution to seven digits."""
_NORMAL = NormalDist()


def upper_tail_probability(t: float, degrees: float) -> float:
    """Return P(T > t) for t >= 0, `degrees` > 0."""
    if degrees >= _MANY:
        return 0.5 * math.erfc(t / math.sqrt(2))
    x = degrees / (degrees + t * t)
    return 0.5 * _incomplete_beta(degrees / 2, 0.5, x)


@lru_cache(maxsize=4096)
def upper_tail_quantile(tail: float, degrees: float) -> float:
    """Return the t exceeded with probability `tail`, 0 < tail <= 0.5; infinite without degrees of freedom."""
    if degrees <= 0:
        return math.inf
    if tail >= 0.5:
        return 0.0
    z = -_NORMAL.inv_cdf(tail)
    if degrees >= _MANY:
        return z
    # Newton's method on log(tail) as a function of log(t): it is concave, so that the steps converge.
    t = _approximate_quantile(z, degrees)
    for _ in range(_STEPS):
        exceeded = upper_tail_probability(t, degrees)
        step = math.log(exceeded / tail) * exceeded / (t * _density(t, degrees))
        t *= math.exp(max(-1.0, min(1.0, step)))
        if abs(step) < _PRECISION:
            break
    return t


def _approximate_quantile(z: float, degrees: float) -> float:
    """Return the approximate t with the same tail probability as the normal deviate z (Wallace 1959)."""
    scaled = z * (8 * degrees + 3) / (8 * degrees + 1)
    return math.sqrt(degrees * math.expm1(min(scaled**2 / degrees, _LARGEST)))


def approximate_normal_deviate(t: float, degrees: float) -> float:
    """Return the normal deviate with about the tail probability of t (Wallace 1959)."""
    return math.sqrt(degrees * math.log1p(t * t / degrees))


def _density(t: float, degrees: float) -> float:
    front = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    return math.exp(front - (degrees + 1) / 2 * math.log1p(t * t / degrees)) / math.sqrt(degrees * math.pi)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, 0 < x <= 1."""
    if x >= 1:
        return 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x > (a + 1) / (a + b + 2):  # the continued fraction converges quickly only on the other side
        return 1 - front * _continued_fraction(b, a, 1 - x) / b
    return front * _continued_fraction(a, b, x) / a


def _continued_fraction(a: float, b: float, x: float) -> float:
    numerator, denominator = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    value = denominator
    m = 0
    while True:
        m, before = m + 1, value
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            denominator = 1 / _nonzero(1 + step * denominator)
            numerator = _nonzero(1 + step / numerator)
            value *= denominator * numerator
        if abs(value / before - 1) < _PRECISION:
            return value


def _nonzero(number: float) -> float:
    """Return the number, or a tiny one in place of zero."""
    return number if abs(number) > _TINY else _TINY

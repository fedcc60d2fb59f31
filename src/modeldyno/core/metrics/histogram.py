"""A histogram that people can read: round edges, a robust range, and what lies outside it named."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modeldyno.core.metrics.measurement import Distribution

FEWEST, BINS = 20, 14
"""Samples below which there is no shape to see, and the most bins that show one, but for one."""
HEAVY = 8.0
"""Ends this many times apart are cut by a constant factor rather than a constant step."""
FINEST = 1e-6
"""Samples closer together than this fraction are alike."""
REACH = 2.5
"""How far from the middle bins may lie, in widths of the bulk: late calls must not flatten it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Edges and counts; a bin includes its lower edge."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    below: int
    above: int
    even: bool
    """Whether the bins are of one width; else each is wider than the one before by one factor."""


def histogram(found: Distribution) -> Histogram | None:
    """Cut the samples into bins, or give None where there is no shape to show."""
    if len(found) < FEWEST:
        return None
    low, high = _range(*map(found.statistic, ("p0.5", "p5", "p50", "p95", "p99.5")))
    if not 0 < low < high * (1 - FINEST) or high == math.inf:
        return None
    even = high < HEAVY * low
    edges = _even(low, high) if even else _growing(low, high)
    samples = found.samples()
    beyond = [int((samples >= edge).sum()) for edge in edges]
    counts = tuple(a - b for a, b in itertools.pairwise(beyond))
    return Histogram(edges=edges, counts=counts, below=len(found) - beyond[0], above=beyond[-1], even=even)


def _range(least: float, low: float, middle: float, high: float, most: float) -> tuple[float, float]:
    """Give the range to cut, where the bulk lies between `low` and `high`."""
    reach = REACH * (high - low)
    return (max(least, middle - reach), min(most, middle + reach)) if reach else (least, most)


def _even(low: float, high: float) -> tuple[float, ...]:
    """Cut at multiples of a round number."""
    rough = (high - low) / BINS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m >= 0.999 * rough / power)
    first, last = math.floor(low / step), math.floor(high / step) + 1
    return tuple(float(f"{i * step:.12g}") for i in range(first, last + 1))


def _growing(low: float, high: float) -> tuple[float, ...]:
    factor = (high / low) ** (1 / BINS)
    return (*(low * factor**i for i in range(BINS)), math.nextafter(high, math.inf))

"""A readable histogram: round edges, a robust range, and counts of what lies outside."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modeldyno.base.metrics.measurement import Distribution

FEWEST, BINS = 20, 14
"""Fewest samples that show a shape, and the most bins less one."""
HEAVY = 8.0
"""Range ratio from which on the bins grow by a constant factor instead of a constant step."""
FINEST = 1e-6
"""Samples closer together than this fraction count as equal."""
REACH = 2.5
"""Farthest distance of bins from the median, in widths of the bulk: outliers must not flatten it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Edges and counts; a bin includes its lower edge."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    below: int
    above: int
    even: bool
    """Whether the bins have equal widths; otherwise each is wider than the one before by a constant
    factor."""


def histogram(spread: Distribution) -> Histogram | None:
    """Cut the samples into bins; return None if there is no shape to show."""
    if len(spread) < FEWEST:
        return None
    low, high = _robust_range(*map(spread.statistic, ("p0.5", "p5", "p50", "p95", "p99.5")))
    if not 0 < low < high * (1 - FINEST) or high == math.inf:
        return None
    even = high < HEAVY * low
    edges = _even_edges(low, high) if even else _growing_edges(low, high)
    samples = spread.samples()
    beyond = [int((samples >= edge).sum()) for edge in edges]
    counts = tuple(a - b for a, b in itertools.pairwise(beyond))
    return Histogram(edges=edges, counts=counts, below=len(spread) - beyond[0], above=beyond[-1], even=even)


def _robust_range(
    smallest: float, low: float, middle: float, high: float, largest: float
) -> tuple[float, float]:
    """Return the range to cut; the bulk lies between `low` and `high`."""
    reach = REACH * (high - low)
    return (max(smallest, middle - reach), min(largest, middle + reach)) if reach else (smallest, largest)


def _even_edges(low: float, high: float) -> tuple[float, ...]:
    """Cut at multiples of a round number."""
    rough = (high - low) / BINS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m >= 0.999 * rough / power)
    first, last = math.floor(low / step), math.floor(high / step) + 1
    return tuple(float(f"{i * step:.12g}") for i in range(first, last + 1))


def _growing_edges(low: float, high: float) -> tuple[float, ...]:
    factor = (high / low) ** (1 / BINS)
    return (*(low * factor**i for i in range(BINS)), math.nextafter(high, math.inf))

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
"""Range ratio from which on the bins grow by a factor instead of a constant step."""
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
    if not 0 <= low < high * (1 - FINEST) or high == math.inf:
        return None
    even = low == 0 or high < HEAVY * low
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
    """Cut at preferred numbers (ISO 3): they are round, and equal steps are equal ratios."""
    decades = math.log10(high / low)
    series = next((series for series in _PREFERRED if decades * len(series) <= BINS - 1), (1,))
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 2)
    edges = [float(f"{part * 10.0**power:.6g}") for power in powers for part in series]
    first = max(place for place, edge in enumerate(edges) if edge <= low)
    last = min(place for place, edge in enumerate(edges) if edge > high)
    return tuple(edges[first : last + 1])


_PREFERRED = ((1, 1.25, 1.6, 2, 2.5, 3.15, 4, 5, 6.3, 8), (1, 1.6, 2.5, 4, 6.3), (1, 2, 5), (1, 3))
"""Cuts of a decade, the finest first; the last two in ratios that are only nearly equal."""

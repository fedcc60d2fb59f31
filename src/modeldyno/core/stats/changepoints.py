"""A series as levels: a piecewise constant fit, and how many pieces it is worth.

The fit is by least absolute deviations (the L1 Potts model: Weinmann, Storath, Demaret 2015, "The L1-Potts
functional for robust jump-sparse reconstruction"), which one odd number does not move. For every number of
levels it is the exact optimum, by dynamic programming over their ends and over the values seen; how many
there are is decided by the Bayesian information criterion for Laplacian noise of a scale that is not known
(Yao 1988, "Estimating the number of change-points via Schwarz' criterion"), twice as strict as by its letter,
because where a level ends is searched. Of simulated histories without a step at most some in a hundred show
one, those with noise in two modes or from day to day somewhat more.
"""

from __future__ import annotations

from itertools import pairwise
from math import log
from typing import TYPE_CHECKING

from modeldyno.core.stats.statistics import load_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.stats.statistics import Samples

SHORTEST = 3
"""Numbers of a level at least: one or two that lie elsewhere are no level yet."""
MOST = 20
"""Levels."""
FLOOR = 1e-3
"""Spread that is noise in any series: below it, a perfect fit would be worth any number of levels."""
_STRICTNESS = 2.0


def ends(values: Samples, weights: Samples, least: float) -> list[int]:
    """Give where each level ends: the place behind its last number.

    Args:
        values: the series.
        weights: of each number, the inverse of its standard deviation, 1 on the average.
        least: a step smaller than this is none.
    """
    found = _chosen(_fits(values, weights), values.size)
    while wrong := _wrong(values, weights, found, least):
        del found[min(wrong)[1]]  # the least step goes first: what it leaves may be a larger one, or none
    return found


def _wrong(values: Samples, weights: Samples, found: Sequence[int], least: float) -> list[tuple[float, int]]:
    """Give the steps, by size and place, that are too small, or rest on too few numbers on a side.

    Of a level, so many numbers must lie nearer to it than to its neighbour: two odd ones and one that is
    not are none.
    """
    np = load_numpy()
    parts = list(zip(pairwise((0, *found)), heights(values, weights, found), strict=True))
    wrong = []
    for place, (((a, b), before), ((_, c), after)) in enumerate(pairwise(parts)):
        step = abs(after - before)
        nearer = np.abs(values[a:c] - before) < np.abs(values[a:c] - after)
        few = min(int(nearer[: b - a].sum()), int((~nearer[b - a :]).sum())) < SHORTEST
        if few or step < least:
            wrong.append((step, place))
    return wrong


def heights(values: Samples, weights: Samples, found: Sequence[int]) -> list[float]:
    """Give the weighted median of each level."""
    return [median(values[a:b], weights[a:b]) for a, b in pairwise((0, *found))]


def median(values: Samples, weights: Samples) -> float:
    """Give the weighted median; of two that are equally good the middle."""
    np = load_numpy()
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    half = sums[-1] / 2
    low, high = np.searchsorted(sums, half * (1 - 1e-12)), np.searchsorted(sums, half * (1 + 1e-12))
    return float(values[order[low]] + values[order[min(high, values.size - 1)]]) / 2


def _fits(values: Samples, weights: Samples) -> Iterator[tuple[float, list[int]]]:
    """Give the best fit with one level, with two and so on: its cost, and where each level ends.

    With D(v, i) the cost of the first i results at level v, B(k, i) the least cost of them in k levels is
    min over v of D(v, i) + min over j <= i - SHORTEST of B(k - 1, j) - D(v, j). The best v is among the
    values, as a weighted median is.
    """
    np = load_numpy()
    n = values.size
    candidates = np.unique(values)
    costs = np.zeros((n + 1, candidates.size))
    np.cumsum(np.abs(values[:, None] - candidates) * weights[:, None], axis=0, out=costs[1:])
    best = costs.min(axis=1)
    best[:SHORTEST] = np.inf
    yield float(costs[n].min()), [n]
    cuts: list[Samples] = []
    for _ in range(min(MOST, n // SHORTEST) - 1):
        before = best[:, None] - costs
        least = np.minimum.accumulate(before, axis=0)
        where = _places_of_minima(before, least)
        total = np.full_like(costs, np.inf)
        total[SHORTEST:] = costs[SHORTEST:] + least[:-SHORTEST]
        chosen = total.argmin(axis=1)
        rows = np.arange(n + 1)
        best = total[rows, chosen]
        cuts.append(where[np.maximum(rows - SHORTEST, 0), chosen])
        yield float(best[n]), _ends(cuts, n)


def _places_of_minima(values: Samples, least: Samples) -> Samples:
    """Give where the running minimum of each column was reached."""
    np = load_numpy()
    rows = np.arange(values.shape[0])[:, None]
    reached: Samples = np.maximum.accumulate(np.where(values == least, rows, 0), axis=0)
    return reached


def _ends(cuts: Sequence[Samples], n: int) -> list[int]:
    """Follow the cuts back from the end."""
    found = [n]
    for cut in reversed(cuts):
        found.append(int(cut[found[-1]]))
    return found[::-1]


def _chosen(fits: Iterator[tuple[float, list[int]]], n: int) -> list[int]:
    """Choose among fits with more and more levels."""
    floor = n * FLOOR

    def criterion(cost: float, found: list[int]) -> float:
        # A level and a place more for each; of Laplacian noise n log(scale) is the log-likelihood. Of few
        # results a fit with more levels takes much of the noise along, as with Akaike's criterion.
        few = n / max(1, n - len(found) - 1)
        return n * log(cost + floor) + _STRICTNESS * few * len(found) * log(n)

    return min(fits, key=lambda fit: criterion(*fit))[1]

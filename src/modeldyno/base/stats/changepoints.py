"""Change-point detection: a piecewise constant fit of a series, and the number of levels it supports.

The fit is by least absolute deviations (the L1 Potts model: Weinmann, Storath, Demaret 2015, "The L1-Potts
functional for robust jump-sparse reconstruction"), which is robust against single outliers. For every number
of levels it is the exact optimum, by dynamic programming over the ends of levels and over the values seen.
The number of levels is chosen by the Bayesian information criterion for Laplacian noise of unknown scale (Yao
1988, "Estimating the number of change-points via Schwarz' criterion"), with a penalty twice as large, because
the ends are searched for. Of simulated histories without a step at most a few percent show one; with bimodal
or day-to-day noise somewhat more.
"""

from __future__ import annotations

from itertools import pairwise
from math import log
from typing import TYPE_CHECKING

from modeldyno.base.stats.statistics import load_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.stats.statistics import Samples

SHORTEST = 3
"""Least numbers of a level: one or two outlying numbers are no level yet."""
MOST = 20
"""Most levels."""
FLOOR = 1e-3
"""Spread that counts as noise in any series; without it a perfect fit would justify any number of levels."""
_STRICTNESS = 2.0


def find_level_ends(values: Samples, weights: Samples, least: float) -> list[int]:
    """Return the end of each level: the index after its last number.

    Args:
        values: the series.
        weights: inverse standard deviation of each number, 1 on average.
        least: smallest step that counts.
    """
    level_ends = _choose_fit(_best_fits(values, weights), values.size)
    while unsupported := _unsupported_steps(values, weights, level_ends, least):
        del level_ends[min(unsupported)[1]]  # smallest step first: merging may leave a larger one, or none
    return level_ends


def _unsupported_steps(
    values: Samples, weights: Samples, level_ends: Sequence[int], least: float
) -> list[tuple[float, int]]:
    """Return (size, index) of the steps that are too small or have too few numbers on one side.

    A number supports a level only if it lies nearer to it than to the neighbouring level.
    """
    np = load_numpy()
    levels = list(zip(pairwise((0, *level_ends)), level_medians(values, weights, level_ends), strict=True))
    unsupported = []
    for index, (((a, b), before), ((_, c), after)) in enumerate(pairwise(levels)):
        step = abs(after - before)
        nearer = np.abs(values[a:c] - before) < np.abs(values[a:c] - after)
        few = min(int(nearer[: b - a].sum()), int((~nearer[b - a :]).sum())) < SHORTEST
        if few or step < least:
            unsupported.append((step, index))
    return unsupported


def level_medians(values: Samples, weights: Samples, level_ends: Sequence[int]) -> list[float]:
    """Return the weighted median of each level."""
    return [weighted_median(values[a:b], weights[a:b]) for a, b in pairwise((0, *level_ends))]


def weighted_median(values: Samples, weights: Samples) -> float:
    """Return the weighted median; the middle of two that are equally good."""
    np = load_numpy()
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    half = sums[-1] / 2
    low, high = np.searchsorted(sums, half * (1 - 1e-12)), np.searchsorted(sums, half * (1 + 1e-12))
    return float(values[order[low]] + values[order[min(high, values.size - 1)]]) / 2


def _best_fits(values: Samples, weights: Samples) -> Iterator[tuple[float, list[int]]]:
    """Yield the best fit with one level, two levels and so on: its cost and the ends of its levels.

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
        where = _rows_of_minima(before, least)
        total = np.full_like(costs, np.inf)
        total[SHORTEST:] = costs[SHORTEST:] + least[:-SHORTEST]
        chosen = total.argmin(axis=1)
        rows = np.arange(n + 1)
        best = total[rows, chosen]
        cuts.append(where[np.maximum(rows - SHORTEST, 0), chosen])
        yield float(best[n]), _trace_back(cuts, n)


def _rows_of_minima(values: Samples, least: Samples) -> Samples:
    """Return the row at which the running minimum of each column was reached."""
    np = load_numpy()
    rows = np.arange(values.shape[0])[:, None]
    reached: Samples = np.maximum.accumulate(np.where(values == least, rows, 0), axis=0)
    return reached


def _trace_back(cuts: Sequence[Samples], n: int) -> list[int]:
    """Return the ends of the levels by following the cuts back from the end."""
    level_ends = [n]
    for cut in reversed(cuts):
        level_ends.append(int(cut[level_ends[-1]]))
    return level_ends[::-1]


def _choose_fit(fits: Iterator[tuple[float, list[int]]], n: int) -> list[int]:
    """Return the level ends of the fit with the least information criterion."""
    floor = n * FLOOR

    def criterion(cost: float, level_ends: list[int]) -> float:
        # Each level adds two parameters, its height and its end; n log(scale) is the log-likelihood of
        # Laplacian noise. `few` corrects for small samples, where more levels fit the noise (as in AICc).
        few = n / max(1, n - len(level_ends) - 1)
        return n * log(cost + floor) + _STRICTNESS * few * len(level_ends) * log(n)

    return min(fits, key=lambda fit: criterion(*fit))[1]

"""Randomisation test on the fastest runs of two interleaved candidates, robust against noisy neighbours.

A noisy neighbour that shares caches or a core only ever makes a run slower, often by half, for seconds or
minutes, and no counter of the guest shows it. The fastest runs of either side met no neighbour: their mean
shows the difference of the models, while the mean of all runs also shows which side met the neighbour more
often. The null distribution comes from exchanging the two sides of rounds at random: without a difference,
every exchange is equally likely (the randomisation test of Fisher and Pitman). The interval is at least that
of aligned sides.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from modeldyno.base.stats.statistics import load_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.stats.statistics import Samples

SHARE = 0.3
"""Fraction of the runs of a side that is taken to be undisturbed."""
FEWEST = 8
"""Least rounds for the test: n rounds give 2^n exchanges."""
_FEWEST_RUNS = 3
_EXCHANGES = 1999


def fastest_runs_difference(
    before: Sequence[float], after: Sequence[float], level: float, margin: float = 0.0
) -> tuple[float, float]:
    """Return the difference between the fastest runs of both sides, and the half-width of its interval.

    Args:
        before: logarithms of the values of one side, round by round; less is better.
        after: the same of the other side.
        level: confidence of the interval, two-sided.
        margin: a difference at which the coverage of the interval is also guaranteed.
    """
    np = load_numpy()
    first, second = np.array(before), np.array(after)
    difference = float(_mean_of_least(second) - _mean_of_least(first))
    swapped = np.random.default_rng(first.size).random((_EXCHANGES, first.size)) < 0.5

    def null_quantile(shifted: Samples) -> float:
        differences = _mean_of_least(np.where(swapped, first, shifted)) - _mean_of_least(
            np.where(swapped, shifted, first)
        )
        ordered = np.sort(np.abs(differences))
        return float(ordered[min(_EXCHANGES, math.ceil(level * (_EXCHANGES + 1))) - 1])

    # Three null distributions: unaligned (an exact test of no difference), aligned by the margin (an exact
    # test of that difference), and aligned by the estimated difference (approximate, as it is fitted).
    aligned = null_quantile(second - difference) * math.sqrt(first.size / (first.size - 1))
    return difference, max(aligned, null_quantile(second), null_quantile(second - margin) if margin else 0.0)


def fastest_runs_mean(side: Sequence[float]) -> float:
    """Return the mean of the fastest runs of a side, those taken to be undisturbed."""
    return float(_mean_of_least(load_numpy().array(side)))


def _mean_of_least(values: Samples) -> Samples:
    """Return the mean of the least values of each row."""
    count = max(_FEWEST_RUNS, round(SHARE * values.shape[-1]))
    means: Samples = load_numpy().partition(values, count - 1, axis=-1)[..., :count].mean(axis=-1)
    return means

"""The difference of two sides that took turns on a machine that others slow down, by its quiet runs.

A neighbour that shares caches or a core only ever makes a run slower, often by half, for seconds or minutes,
and no counter of the guest tells. The fastest runs of either side are those that met none; their mean says
what the models differ by, where the mean of all says who met the neighbour more often. What chance does to
it is seen by exchanging the two sides of rounds at random: without a difference, every exchange would have
been as likely (the randomisation test of Fisher and Pitman). The interval is at least that of aligned sides.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from modeldyno.core.stats.statistics import load_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.stats.statistics import Samples

SHARE = 0.3
"""Part of the runs of a side that is taken to have been left in peace."""
FEWEST = 8
"""Rounds from which on exchanges tell apart what is rare: there are 2^n of them."""
_FEWEST_RUNS = 3
_EXCHANGES = 1999


def undisturbed(
    before: Sequence[float], after: Sequence[float], level: float, margin: float = 0.0
) -> tuple[float, float]:
    """Give the difference of the least of both sides, and the half-width of its interval.

    Args:
        before: logarithms of the numbers of one side, of which less is better, round by round.
        after: of the other side.
        level: confidence of the interval, two-sided.
        margin: difference that the interval is to leave out no more often than its level says.
    """
    np = load_numpy()
    here, there = np.array(before), np.array(after)
    difference = float(_least(there) - _least(here))
    exchanged = np.random.default_rng(here.size).random((_EXCHANGES, here.size)) < 0.5  # noqa: PLR2004 - a coin

    def reach(other: Samples) -> float:
        chance = _least(np.where(exchanged, here, other)) - _least(np.where(exchanged, other, here))
        ordered = np.sort(np.abs(chance))
        return float(ordered[min(_EXCHANGES, math.ceil(level * (_EXCHANGES + 1))) - 1])

    # As they are, which tests exactly whether there is a difference; aligned by the margin, which tests
    # exactly whether it is that; and aligned by what was found, which was fitted.
    aligned = reach(there - difference) * math.sqrt(here.size / (here.size - 1))
    return difference, max(aligned, reach(there), reach(there - margin) if margin else 0.0)


def least(side: Sequence[float]) -> float:
    """Give the mean of the runs of a side that are taken to have been left in peace: the least."""
    return float(_least(load_numpy().array(side)))


def _least(sides: Samples) -> Samples:
    """Give the same of each row."""
    count = max(_FEWEST_RUNS, round(SHARE * sides.shape[-1]))
    means: Samples = load_numpy().partition(sides, count - 1, axis=-1)[..., :count].mean(axis=-1)
    return means

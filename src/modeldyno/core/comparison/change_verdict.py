"""The verdict on one metric: by its interval, by the effect that matters, and by its direction."""

from __future__ import annotations

from dataclasses import dataclass

from modeldyno.core.comparison.comparison import ChangeVerdict
from modeldyno.core.metrics.measurement import Interval
from modeldyno.core.metrics.metric import METRICS, Better, Query


@dataclass(frozen=True, slots=True, kw_only=True)
class TestedChange:
    """What a test says of one metric."""

    outcome: ChangeVerdict
    why: str
    """Why it is undecided, or what the verdict is based on."""
    difference: float | None = None
    interval: Interval | None = None
    figures: tuple[float, float] | None = None
    """Of both sides, if what is compared differs from what their Results report."""


def judge_interval(query: Query, difference: float, interval: Interval, smallest: float) -> ChangeVerdict:
    """Judge the interval against no change, and the estimate against what matters.

    What matters is symmetric: a factor of 1 + smallest either way.
    """
    least, most = 1 / (1 + smallest) - 1, smallest
    if least <= interval.low and interval.high <= most:
        return ChangeVerdict.SAME
    if (interval.low > 0 and difference > most) or (interval.high < 0 and difference < least):
        return judge_direction(query, difference)
    return ChangeVerdict.UNDECIDED


def judge_direction(query: Query, difference: float) -> ChangeVerdict:
    """Judge a difference that is sure: by the direction in which the metric improves."""
    better = METRICS[query.metric].better
    if better is Better.NEITHER:
        return ChangeVerdict.UNDECIDED
    return ChangeVerdict.BETTER if (difference < 0) is (better is Better.LOWER) else ChangeVerdict.WORSE

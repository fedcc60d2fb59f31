"""How sure a bound is of a figure that was chosen from several because it holds that bound.

Of a hundred figures that all break a bound by a hair, two or three seem to hold it by their 95 % intervals,
and the choice finds exactly those. So the chance that one figure seems to hold a bound that it breaks is
multiplied by the number of figures that could have been chosen (Bonferroni, which assumes nothing of how
figures depend on each other), and must still be at most what one interval leaves beyond its end.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

from modeldyno.core.metrics.metric import fraction_of
from modeldyno.core.stats import student_t

if TYPE_CHECKING:
    from modeldyno.core.metrics.constraints import Constraint, Judgement
    from modeldyno.core.metrics.measurement import Distribution, Interval

TAIL = 0.025
"""Chance that the truth lies beyond one end of a 95 % interval."""
_DEGREES = 4
"""Of Student's t, by which an interval is made wider: as over the five processes that a claim takes. Its
tails are heavier than those of a normal distribution."""
_NEGLIGIBLE = 1e-17
"""Share of a sum below which its terms are left out."""


def chance_of_error(judgement: Judgement, distribution: Distribution | None, among: int) -> float:
    """Return the chance that one of several figures seems to hold a bound which it breaks by a hair.

    Of one figure, it follows from how far the bound lies beyond the end of the interval, by Student's t; for
    a percentile also from how many samples are beyond the bound, by the binomial distribution, which holds
    whatever lies between the last samples and the bound. The larger of the two counts.

    Args:
        judgement: that the bound is held.
        distribution: the samples of what is bounded; None for a number, or if they are not at hand.
        among: the number of figures that could have been chosen.
    """
    answer, bound = judgement.answer, judgement.constraint
    if answer.interval is None:
        if answer.exact:
            return 0.0
        return TAIL  # seen once: nothing tells how much it varies, nor what more figures do to that
    chance = 0.0 if answer.value is None else _beyond_interval(bound, answer.value, answer.interval)
    fraction = fraction_of(bound.query.statistic or "")
    if distribution is not None and fraction is not None:
        chance = max(chance, _beyond_samples(bound, distribution, fraction))
    elif answer.value is None:
        chance = TAIL
    return min(1.0, among * min(chance, TAIL))


def lower_end(value: float, interval: Interval, among: int) -> float:
    """Return the lower end of an interval that holds for the highest of several values, too."""
    wider = student_t.upper_tail_quantile(TAIL / among, _DEGREES) / _width()
    return value - (value - interval.low) * wider


def _beyond_interval(bound: Constraint, value: float, interval: Interval) -> float:
    end = interval.high if bound.at_most else interval.low
    half, distance = abs(end - value), abs(bound.bound - value)
    if not half:
        return 0.0
    return student_t.upper_tail_probability(distance / half * _width(), _DEGREES)


@cache
def _width() -> float:
    """Return how many standard errors the end of an interval is from its middle."""
    return student_t.upper_tail_quantile(TAIL, _DEGREES)


def _beyond_samples(bound: Constraint, distribution: Distribution, fraction: float) -> float:
    """Return the chance of as few samples beyond the bound, if the percentile were at the bound."""
    samples = distribution.samples()
    if bound.at_most:
        share, beyond = 1 - fraction, int((samples > bound.bound).sum())
    else:
        share, beyond = fraction, int((samples < bound.bound).sum())
    trials = max(1, int(distribution.effective_size(bound.query.statistic or "")))
    return _at_most(math.ceil(beyond * trials / len(samples)), trials, share)


def _at_most(count: int, trials: int, share: float) -> float:
    """Return the probability of at most `count` successes in independent trials, fewer than usual."""
    log = math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
    term = math.exp(log + count * math.log(share) + (trials - count) * math.log1p(-share))
    total = term
    for k in range(count, 0, -1):
        term *= k * (1 - share) / ((trials - k + 1) * share)
        total += term
        if term < _NEGLIGIBLE * total:
            break
    return total

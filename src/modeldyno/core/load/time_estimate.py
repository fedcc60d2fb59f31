"""Times with their intervals, added and subtracted as independent estimates."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, inf, isfinite, sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Self

from modeldyno.core.metrics.measurement import Distribution, Interval
from modeldyno.core.stats.student_t import upper_tail_quantile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.core.result.result import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeEstimate:
    """A time in seconds; a difference of two may be negative."""

    seconds: float
    interval: Interval | None = None
    """95 %; None if it is not known."""

    def __add__(self, other: TimeEstimate) -> TimeEstimate:
        """Return the sum; see `_combine`."""
        return self._combine(other, 1)

    def __sub__(self, other: TimeEstimate) -> TimeEstimate:
        """Return the difference; see `_combine`."""
        return self._combine(other, -1)

    def _combine(self, other: TimeEstimate, sign: int) -> TimeEstimate:
        """Return the sum or the difference of two independent estimates.

        The distances of the ends from the estimates add up in squares (Zou and Donner 2008, "Construction of
        confidence limits about effect measures", Statistics in Medicine 27), so that an interval may be
        lopsided. If one has no interval, neither has the result.
        """
        value = self.seconds + sign * other.seconds
        if self.interval is None or other.interval is None:
            return TimeEstimate(seconds=value)
        below, above = self._reach
        others = other._reach if sign > 0 else other._reach[::-1]
        ends = Interval(low=value - hypot(below, others[0]), high=value + hypot(above, others[1]))
        return TimeEstimate(seconds=value, interval=ends)

    @property
    def _reach(self) -> tuple[float, float]:
        assert self.interval is not None
        return self.seconds - self.interval.low, self.interval.high - self.seconds

    def moved_to(self, seconds: float) -> Self:
        """Return it at another value, with an interval as wide."""
        if self.interval is None:
            return type(self)(seconds=seconds)
        below, above = self._reach
        return type(self)(seconds=seconds, interval=Interval(low=seconds - below, high=seconds + above))

    @property
    def may_be_zero(self) -> bool:
        """Whether zero lies in its interval."""
        return self.interval is not None and self.interval.low <= 0 <= self.interval.high

    @property
    def is_known_negative(self) -> bool:
        """Whether even the upper end of its interval is below zero."""
        return self.interval is not None and self.interval.high < 0


def sum_times(times: Iterable[TimeEstimate]) -> TimeEstimate:
    """Return the sum of independent estimates; that of none is exactly zero."""
    total = TimeEstimate(seconds=0.0, interval=Interval(low=0.0, high=0.0))
    for time in times:
        total += time
    return total


def measured_time(result: Result, metric: str, statistic: str, scope: str = "") -> TimeEstimate | None:
    """Return a time of a Result: a statistic of a distribution, or a number; None if it has none.

    The mean is that of the means of the processes, as it is for numbers, so that both add up.
    """
    measurement = result.find(metric, scope)
    if measurement is None:
        return None
    value = measurement.value
    if not isinstance(value, Distribution):
        return _make_estimate(float(value), measurement.interval)
    if statistic == "mean":
        means = [float(run.mean()) for run in value.arrays()]
        return _make_estimate(sum(means) / len(means), _mean_interval(value, means))
    return _make_estimate(value.statistic(statistic), value.interval(statistic))


def _mean_interval(value: Distribution, means: list[float]) -> Interval | None:
    """Return the interval of the mean; if no process bounds it by itself, Student's of their means."""
    interval = value.interval("mean")
    if interval is None or value.void or len(means) == 1 or interval.high < _BOUNDLESS * fmean(means):
        return interval
    reach = upper_tail_quantile(_TAIL, len(means) - 1) * stdev(means) / sqrt(len(means))
    return Interval(low=max(0.0, fmean(means) - reach), high=fmean(means) + reach)


_BOUNDLESS = 100
"""How many means an interval reaches that tells nothing, as of samples that only rise."""
_TAIL = 0.025
"""Probability beyond each end of a 95 % interval."""


def _make_estimate(seconds: float, interval: Interval | None) -> TimeEstimate:
    """Return an estimate without an interval that tells nothing."""
    if interval is not None and interval.low == -inf and interval.high == inf:
        interval = None
    if interval is not None and isfinite(seconds):
        interval = Interval(low=min(interval.low, seconds), high=max(interval.high, seconds))
    return TimeEstimate(seconds=seconds, interval=interval)

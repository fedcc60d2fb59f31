"""The noise of a model's history: how stored results differ although nothing has changed.

Two results of one process each do not show how starts differ, nor what the machine did between two days. A
history on the same machine shows both.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import log, sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.comparison.trend import Trend
    from modeldyno.core.result.result import Result

FEWEST = 4
"""Degrees of freedom needed to trust a history: those of five results on one level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """How much results of one model on one machine vary in one metric."""

    relative: float
    """Standard deviation of the logarithm of a result around its level."""
    degrees: int
    """Its degrees of freedom: results less levels."""
    covers: bool
    """Whether the history spans at least the time between the two compared results, so that it includes what
    the machine does in such a time."""

    @property
    def of_a_difference(self) -> float:
        """Standard deviation of the logarithm of the ratio of two results."""
        return sqrt(2) * self.relative


def scatter(trends: Sequence[Trend], baseline: Result, candidate: Result) -> Scatter | None:
    """Pool the variation of histories; None if they are too short.

    Args:
        trends: one history for each version of the model, or one of all versions; steps are not noise.
        baseline: one of the compared results.
        candidate: the other one.
    """
    degrees = sum(len(trend.readings) - len(trend.levels) for trend in trends)
    if degrees < FEWEST:
        return None
    squares = sum(
        log(reading.value / level.value) ** 2
        for trend in trends
        for level in trend.levels
        for reading in trend.readings[level.first : level.last + 1]
    )
    created = [datetime.fromisoformat(reading.created) for trend in trends for reading in trend.readings]
    times = [datetime.fromisoformat(result.created) for result in (baseline, candidate)]
    return Scatter(
        relative=sqrt(squares / degrees),
        degrees=degrees,
        covers=max(created) - min(created) >= max(times) - min(times),
    )

"""What stored results of a model differ by, although nothing has changed: the noise of its history.

Two results of one process each say nothing of how starts differ, and two that were measured on different days
nothing of what the machine did in between. A history on the same machine says both.
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
"""Degrees of freedom from which on a history tells: that of five results on one level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """How much results of one model on one machine differ in one metric."""

    relative: float
    """Standard deviation of the logarithm of a result around its level."""
    degrees: int
    """Degrees of freedom of it: results less levels."""
    covers: bool
    """Whether the history reaches over as long a time as lies between the two that are compared, so that what
    the machine does in such a time is in it."""

    @property
    def of_a_difference(self) -> float:
        """Standard deviation of the logarithm of the ratio of two results."""
        return sqrt(2) * self.relative


def scatter(trends: Sequence[Trend], baseline: Result, candidate: Result) -> Scatter | None:
    """Pool the noise of histories; None where they are too short to tell.

    Args:
        trends: the histories, one for each version of the model, or one of all versions; steps are no noise.
        baseline: of the two that are compared.
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

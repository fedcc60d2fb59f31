"""Choose loads between two of an axis, where a bound breaks, so that the largest load within it is known.

An axis of loads doubles, so that a configuration that holds its bound at 16 requests in flight and breaks it
at 32 may hold it at 24. After the search the best configurations, and the default, are measured in the middle
between their largest load within the bounds and the next one beyond, again and again. A first load that
breaks a bound is bisected downwards, to 1.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING

from modeldyno.sweeps.study.bootstrap import scored_candidates
from modeldyno.sweeps.study.goal import Rank
from modeldyno.sweeps.study.ranking import NEAR, ranking
from modeldyno.sweeps.study.search_space import key
from modeldyno.sweeps.study.study import TrialPurpose, TrialRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.sweeps.study.search_space import Axis, Point
    from modeldyno.sweeps.study.study import Study

CONCURRENCY = "concurrency"
"""The load that is a whole number, of any model."""
CONFIGURATIONS = 3
"""Best configurations whose loads are bisected, besides the default."""


def bisected_axis(study: Study) -> Axis | None:
    """Return the axis of loads between which is bisected; None if none is varied, or each load is ranked."""
    if not study.goal.constraints or study.goal.rank is Rank.EACH:
        return None
    axes = [
        axis
        for axis in study.space.axes
        if axis.name in study.loads and axis.where is None and axis.ordered and len(axis.values) > 1
    ]
    return axes[0] if len(axes) == 1 else None


def next_bisection_trial(study: Study) -> TrialRequest | None:
    """Return the next load between two of the axis to measure; None if there is none.

    Args:
        study: its search, without verification.
    """
    axis = bisected_axis(study)
    if axis is None or not study.budget.bisect:
        return None
    points = (_middle(study, axis, configuration) for configuration in _configurations(study))
    point = next((point for point in points if point is not None), None)
    return None if point is None else TrialRequest(point=point, stage=TrialPurpose.BISECT)


def _configurations(study: Study) -> Iterator[Point]:
    """Yield the best configurations of the search, and the default: a point of each."""
    ranked = ranking(study)
    works = [row for row in ranked.rows if not row.failure]
    best = [row for row in works if not row.default]
    yield from (row.point for row in islice(best, CONFIGURATIONS))
    yield from (row.point for row in works if row.default)


def _middle(study: Study, axis: Axis, point: Point) -> Point | None:
    """Return the point between the largest load that holds the bounds and the next one, which breaks them.

    None if they are near, no bound breaks, or enough steps were taken.
    """
    mine = key(study.configuration(point))
    steps = sum(
        trial.stage is TrialPurpose.BISECT and key(study.configuration(trial.point)) == mine
        for trial in study.trials
    )
    if steps >= study.budget.bisect:
        return None
    tried = {
        float(each.candidate.point[axis.name]): each.feasible
        for each in scored_candidates(study)
        if key(each.configuration) == mine and axis.name in each.candidate.point
    }
    # A small load that broke a bound by chance is passed over.
    held = max((load for load, holds in tried.items() if holds), default=0.0)
    broken = min((load for load in tried if load > held), default=None)
    if broken is None:
        return None
    load = _between(held, broken, whole=axis.name.endswith(CONCURRENCY))
    middle = None if load is None else {**point, axis.name: load}
    return None if middle is None or key(middle) in study.skipped else middle


def _between(held: float, broken: float, *, whole: bool) -> int | float | None:
    """Return the geometric middle of two loads, whose differences matter by their ratio; None if near."""
    if held and broken <= held * (1 + NEAR):
        return None
    middle = math.sqrt(max(held, 1.0 if whole else broken / 4) * broken)
    if not whole:
        return float(f"{middle:.3g}")
    between = max(int(held) + 1, min(math.ceil(broken) - 1, round(middle)))
    return between if held < between < broken else None

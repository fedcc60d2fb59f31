"""The curves of a study: after the search, its best configurations are measured at all loads.

A search spends its trials on the loads that may be best, so that the curve of a good configuration may have
two points. These trials are for its picture and its tables: neither the search nor the ranking sees them.
"""

from __future__ import annotations

from itertools import islice, product
from typing import TYPE_CHECKING

from modeldyno.core.study.ranking import ranking
from modeldyno.core.study.search_space import key
from modeldyno.core.study.study import TrialPurpose, TrialRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.study.search_space import Key, Point
    from modeldyno.core.study.study import Study

TIME_SHARE = 0.75
"""Share of a time limit that is left to the search and its verification, if curves are wanted."""


def next_curve_trial(study: Study) -> TrialRequest | None:
    """Return the next load of one of the best configurations that was not measured; None if there is none."""
    done = {key(trial.point) for trial in study.trials}
    for point in _points(study):
        if key(point) not in done:
            return TrialRequest(point=point, stage=TrialPurpose.CURVE)
    return None


def _points(study: Study) -> Iterator[Point]:
    """Yield the best configurations of the ranking, each at all loads."""
    loads = [axis for axis in study.space.axes if axis.name in study.loads and axis.where is None]
    if not (loads and study.budget.curves):
        return
    best: dict[Key, Point] = {}
    for row in ranking(study).rows:
        if not row.failure:
            best.setdefault(key(study.configuration(row.point)), row.point)
    for point in islice(best.values(), study.budget.curves):
        for values in product(*(axis.values for axis in loads)):
            yield {**point, **{axis.name: value for axis, value in zip(loads, values, strict=True)}}

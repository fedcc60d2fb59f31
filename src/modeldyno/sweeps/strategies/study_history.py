"""What strategies read from a study: used budget, scores of points, and points that are ruled out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.result.result import FailureKind
from modeldyno.sweeps.study.exploration import covering_points, points_to_cover
from modeldyno.sweeps.study.pooled_estimate import search_hint, total_miss
from modeldyno.sweeps.study.search_space import Key, Point, Space, key
from modeldyno.sweeps.study.study import LOADS, TrialPurpose, TrialState
from modeldyno.sweeps.study.verification import SEARCH_SHARE

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.sweeps.study.goal import Goal
    from modeldyno.sweeps.study.search_space import Axis
    from modeldyno.sweeps.study.study import Candidate, Study

SHARE, LEAST = 0.15, 12
"""A search measures at most this share of the space, or this many points if the share is fewer."""
_LARGER = frozenset({"batch_size", "instances", "seq"})
"""Axes where a larger value needs more memory, whatever else is chosen."""
_TINY = 1e-300
"""Replaces values that have no logarithm."""


def search_budget(study: Study) -> int:
    """Return how many measurements a search may make, including the default but not verification.

    A default outside the space does not count against the points of a small space.
    """
    size = study.space.size
    extra = sum(t.stage is TrialPurpose.DEFAULT and not study.space.holds(t.point) for t in study.measured)
    return min(size + extra, max(LEAST, int(SHARE * size)))


def used_budget(study: Study) -> int:
    """Count the measurements made in search."""
    return sum(trial.stage is not TrialPurpose.VERIFY for trial in study.measured)


def due_points(study: Study) -> list[Point]:
    """Return points with values that no trial had, if what is left of the search is just enough to try each.

    Until then a strategy is free: most values are tried by it anyhow, and sooner where they promise most. If
    the budget of the study is small, they come first (see decision 0041).
    """
    points = covering_points(study, ClosedPoints.of(study).__contains__)
    return points if points and _measurements_left(study) <= points_to_cover(study) else []


def _measurements_left(study: Study) -> float:
    """Return how many measurements the search has left, by its own budget and by the share of the study's."""
    used, budget = used_budget(study), study.budget
    left = [float(search_budget(study) - used)]
    if budget.max_trials is not None:
        left.append(math.ceil(SEARCH_SHARE * budget.max_trials) - used)
    if budget.max_time is not None and study.spent:
        left.append((SEARCH_SHARE * budget.max_time - study.spent) * used / study.spent)
    return min(left)


def log_gains(goal: Goal, candidate: Candidate) -> tuple[float, ...] | None:
    """Return the weighted log gain of each objective, more is better; None where a value is unknown.

    A percentile without enough samples for a claim counts: an estimate is enough for a search.
    """
    total_weight = sum(objective.weight for objective in goal.objectives)
    result = []
    for objective in goal.objectives:
        value = search_hint(candidate, objective.query)
        if value is None:
            return None
        result.append(objective.weight / total_weight * objective.gain(max(value, _TINY), 1.0))
    return tuple(result)


# --- points ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClosedPoints:
    """Points not to measure: measured, impossible, or sure to run out of memory."""

    decided: frozenset[Key]
    exhausted: tuple[Point, ...]
    """Points that ran out of memory."""

    @classmethod
    def of(cls, study: Study) -> ClosedPoints:
        """Collect the closed points of a study."""
        failed = (trial for trial in study.measured if trial.state is TrialState.FAILED)
        return cls(
            decided=frozenset((*study.candidates, *study.skipped)),
            exhausted=tuple(trial.point for trial in failed if trial.kind == FailureKind.OOM),
        )

    def __contains__(self, point: Mapping[str, KnobValue]) -> bool:
        """Whether a point is closed."""
        return key(point) in self.decided or any(_needs_at_least(point, end) for end in self.exhausted)


def _needs_at_least(point: Mapping[str, KnobValue], exhausted: Mapping[str, KnobValue]) -> bool:
    """Whether a point needs at least the memory of another: all values equal, or known to need more."""
    return point.keys() == exhausted.keys() and all(
        point[name] == value or (name in _LARGER and float(point[name]) > float(value))
        for name, value in exhausted.items()
    )


def has_all_axes(study: Study, point: Point) -> bool:
    """Whether a point has a value on every axis that matters; it need not be a value of the axis."""
    return study.space.completed(point).keys() <= point.keys()


def open_points(study: Study) -> Iterator[Point]:
    """Yield the points of the space that are not closed, the loads of a configuration together."""
    closed = ClosedPoints.of(study)
    for point in _loads_last(study.space).points():
        named_point = study.space.named(point)
        if named_point not in closed:
            yield named_point


def _loads_last(space: Space) -> Space:
    """Move the loads last, so that they change fastest; unchanged where an axis depends on a load."""
    loads = tuple(axis for axis in space.axes if axis.name in LOADS)
    if any(axis.where in LOADS for axis in space.axes):
        return space
    return Space(axes=(*(axis for axis in space.axes if axis not in loads), *loads))


def sample_points(study: Study, generator: random.Random, centres: Iterable[Point] = ()) -> Iterator[Point]:
    """Yield random points, then the neighbours of some; closed ones included."""
    for _ in range(_SAMPLED):
        yield study.space.completed({axis.name: generator.choice(axis.values) for axis in study.space.axes})
    for point in centres:
        yield from study.space.neighbours(point)


_SAMPLED = 200


def rank_candidates(study: Study) -> list[Candidate]:
    """Sort the candidates of the space: feasible ones by score, then the others by violation."""
    usable = (c for c in study.candidates.values() if not c.failed and has_all_axes(study, c.point))
    goal = study.goal
    scored = [
        (total_miss(c, goal), -sum(objective_gains), c)
        for c in usable
        if (objective_gains := log_gains(goal, c)) is not None
    ]
    return [candidate for _, _, candidate in sorted(scored, key=lambda row: row[:2])]


def has_load_axis(axes: tuple[Axis, ...]) -> bool:
    """Whether a server keeps running from one point to another."""
    return any(axis.name in LOADS for axis in axes)

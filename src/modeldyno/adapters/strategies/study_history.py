"""What a study tells a strategy: what was spent, how good points are, and which are out of the question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.core.result.result import FailureKind
from modeldyno.core.study.pooled_estimate import hint, miss
from modeldyno.core.study.search_space import Key, Point, Space, key
from modeldyno.core.study.study import LOADS, Stage, State

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Mapping

    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.core.study.goal import Goal
    from modeldyno.core.study.search_space import Axis
    from modeldyno.core.study.study import Candidate, Study

SHARE, LEAST = 0.15, 12
"""A search measures this share of the space at most, or so many points where that is less."""
_LARGER = frozenset({"batch_size", "instances", "seq"})
"""Axes of which more takes more memory, whatever else is chosen."""
_TINY = 1e-300
"""In place of a value that has no logarithm."""


def allowance(study: Study) -> int:
    """Give how many measurements a search may make; the default is one of them, verification is not.

    A default outside of a small space takes the place of none of its points.
    """
    size = study.space.size
    beside = sum(t.stage is Stage.DEFAULT and not study.space.holds(t.point) for t in study.measured)
    return min(size + beside, max(LEAST, int(SHARE * size)))


def spent(study: Study) -> int:
    """Count the measurements that were made in search."""
    return sum(trial.stage is not Stage.VERIFY for trial in study.measured)


def gains(goal: Goal, candidate: Candidate) -> tuple[float, ...] | None:
    """Give the weighted logarithm of each objective, such that more is better; None where one is not known.

    A percentile that is no claim yet counts: a hint is enough for a search.
    """
    whole = sum(objective.weight for objective in goal.objectives)
    found = []
    for objective in goal.objectives:
        value = hint(candidate, objective.query)
        if value is None:
            return None
        found.append(objective.weight / whole * objective.gain(max(value, _TINY), 1.0))
    return tuple(found)


# --- points ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Closed:
    """The points that need not be measured: they were, they cannot be, or their memory surely does not do."""

    known: frozenset[Key]
    exhausted: tuple[Point, ...]
    """Points that ran out of memory."""

    @classmethod
    def of(cls, study: Study) -> Closed:
        """Gather them."""
        failed = (trial for trial in study.measured if trial.state is State.FAILED)
        return cls(
            known=frozenset((*study.candidates, *study.skipped)),
            exhausted=tuple(trial.point for trial in failed if trial.kind == FailureKind.OOM),
        )

    def __contains__(self, point: Mapping[str, KnobValue]) -> bool:
        """Say whether a point is one of them."""
        return key(point) in self.known or any(_beyond(point, end) for end in self.exhausted)


def _beyond(point: Mapping[str, KnobValue], end: Mapping[str, KnobValue]) -> bool:
    """Say whether a point needs at least the memory of another: all is equal, or known to take more."""
    return point.keys() == end.keys() and all(
        point[name] == value or (name in _LARGER and float(point[name]) > float(value))
        for name, value in end.items()
    )


def placed(study: Study, point: Point) -> bool:
    """Say whether a point has a value on every axis that matters; it need not be one of the axis."""
    return study.space.completed(point).keys() <= point.keys()


def open_points(study: Study) -> Iterator[Point]:
    """Give the points of the space that are not closed, the loads of a configuration together."""
    closed = Closed.of(study)
    for point in _loads_last(study.space).points():
        named = study.space.named(point)
        if named not in closed:
            yield named


def _loads_last(space: Space) -> Space:
    """Put the loads last, so that they change fastest; where an axis depends on one all stay as they are."""
    loads = tuple(axis for axis in space.axes if axis.name in LOADS)
    if any(axis.where in LOADS for axis in space.axes):
        return space
    return Space(axes=(*(axis for axis in space.axes if axis not in loads), *loads))


def sampled(study: Study, source: random.Random, around: Iterable[Point] = ()) -> Iterator[Point]:
    """Give points at random, and then the neighbours of some; closed ones among them."""
    for _ in range(_SAMPLED):
        yield study.space.completed({axis.name: source.choice(axis.values) for axis in study.space.axes})
    for point in around:
        yield from study.space.neighbours(point)


_SAMPLED = 200


def foremost(study: Study) -> list[Candidate]:
    """Sort the candidates of the space: what holds the bounds by its score, and then the rest by its miss."""
    told = (c for c in study.candidates.values() if not c.failed and placed(study, c.point))
    goal = study.goal
    scored = [(miss(c, goal), -sum(found), c) for c in told if (found := gains(goal, c)) is not None]
    return [candidate for _, _, candidate in sorted(scored, key=lambda row: row[:2])]


def serves(axes: tuple[Axis, ...]) -> bool:
    """Say whether a server stays open from one point to another."""
    return any(axis.name in LOADS for axis in axes)

"""What a study tells a strategy: the numbers at each point, and the points that are out of the question."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.core.space import Axis, Space, key
from modeldyno.core.study import LOADS, Stage, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.core.metric import Query
    from modeldyno.core.space import Point
    from modeldyno.core.study import Study, Trial

SHARE, LEAST = 0.15, 12
"""A search measures this share of the space at most, or so many points where that is less."""
_LARGER = ("batch_size", "max_batch", "instances", "sequence_length", "seq", "length")
"""Axes of which more takes more memory, whatever else is chosen."""
_MEMORY = "oom"


def allowance(study: Study) -> int:
    """Give how many measurements a search may make; the default is one of them, verification is not."""
    size = study.space.size
    return min(size, max(LEAST, int(SHARE * size)))


def spent(study: Study) -> int:
    """Count the measurements that were made in search."""
    return sum(trial.stage is not Stage.VERIFY for trial in study.measured)


def value(trial: Trial, query: Query) -> float | None:
    """Give what a trial says; of a percentile that is no claim yet, the plain quantile as a hint."""
    answer = trial.ask(query)
    if (answer is None or answer.value is None) and query.statistic is not None:
        answer = trial.ask(replace(query, part="raw")) or answer
    return None if answer is None else answer.value


@dataclass(frozen=True, slots=True)
class Closed:
    """Says which points need not be measured: they were, they cannot be, or they are out of memory for sure."""

    known: frozenset[object]
    exhausted: tuple[Point, ...]
    """Points that ran out of memory."""

    @classmethod
    def of(cls, study: Study) -> Closed:
        """Gather them."""
        exhausted = [t.point for t in study.measured if t.state is State.FAILED and t.kind == _MEMORY]
        return cls(
            known=frozenset((*study.candidates, *study.skipped)),
            exhausted=tuple(exhausted),
        )

    def __contains__(self, point: Point) -> bool:
        """Say whether a point is out of the question."""
        return key(point) in self.known or any(_beyond(point, end) for end in self.exhausted)


def _beyond(point: Mapping[str, object], end: Mapping[str, object]) -> bool:
    """Say whether a point needs at least the memory of another, all that is not known to take any being equal."""
    return point.keys() == end.keys() and all(
        point[name] == other or (name in _LARGER and point[name] > other)  # type: ignore[operator]
        for name, other in end.items()
    )


def warm_order(space: Space) -> Space:
    """Put the loads last, so that the points of a configuration follow one another."""
    loads = [axis for axis in space.axes if axis.name in LOADS]
    others = [axis for axis in space.axes if axis.name not in LOADS]
    if any(axis.where in LOADS for axis in others):
        return space
    return Space(axes=(*others, *loads))


def open_points(study: Study) -> Iterator[Point]:
    """Give the points that are not out of the question, those of a configuration together."""
    closed = Closed.of(study)
    for point in warm_order(study.space).points():
        named = study.space.named(point)
        if named not in closed:
            yield named


def loads_of(space: Space) -> tuple[Axis, ...]:
    """Give the axes that leave a server open."""
    return tuple(axis for axis in space.axes if axis.name in LOADS)

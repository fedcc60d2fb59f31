"""How much of a space was tried: the points, the values that no trial had, and the points that have them.

A certainty is a share of resamples of what was measured, so it says nothing of the rest: see decision 0041.
The points that cover the values of all axes are a random Latin arrangement (McKay, Beckman and Conover 1979;
of axes of unequal lengths, the values of a shorter one come round again): as many as the axis with most has.
Loads are left out: the default is measured at several, and higher ones are no choice once a bound breaks.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from modeldyno.base.result.where import as_text
from modeldyno.sweeps.study.search_space import Axis, Point, key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.sweeps.study.study import Study

MOST_STRATA = 8
"""Numbers on an axis up to which each is to be tried; more are split into as many groups of neighbours."""
_ARRANGEMENTS = 64
"""Arrangements that are looked at for a point that is not ruled out."""

Stratum = tuple["KnobValue", ...]
"""Values of an axis of which one is to be tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """What of a space the trials of a study have tried; a failure counts as tried."""

    tried: int = 0
    """Points that were measured, with those of a default outside the space."""
    points: int = 0
    """Points that can be measured: those of the space not known to be invalid, and those of that default."""
    untried: tuple[tuple[str, Stratum], ...] = ()
    """Each axis with values of which none was tried, though points have them."""

    @property
    def left(self) -> int:
        """Points that were not tried."""
        return max(0, self.points - self.tried)

    def untried_text(self) -> str:
        """Name the values that were never tried, with the verb: ``instances=2 was``."""
        texts = [_values_text(name, values) for name, values in self.untried]
        several = len(texts) > 1 or len(self.untried[0][1]) > 1
        return f"{' and '.join(texts)} {'were' if several else 'was'}"


NOTHING_EXPLORED = Exploration()


def _values_text(name: str, values: Stratum) -> str:
    """Write the values of an axis; of many, how many they are."""
    if len(values) > MOST_STRATA:
        return f"{len(values)} values of {name}"
    return f"{name}={','.join(as_text(value) for value in values)}"


def exploration(study: Study) -> Exploration:
    """Count what was tried of the space; it is not enumerated."""
    outside = sum(not study.space.holds(candidate.point) for candidate in study.candidates.values())
    untried = tuple(
        (axis.name, tuple(value for stratum in strata for value in stratum))
        for axis, strata in _untried_strata(study)
    )
    return Exploration(
        tried=len(study.candidates),
        points=study.space.size - len(study.skipped) + outside,
        untried=untried,
    )


def covering_points(study: Study, is_closed: Callable[[Point], bool]) -> list[Point]:
    """Return points with values that no trial had, each of another random arrangement.

    The list is empty if every value was tried, or all such points are closed.

    Args:
        study: the space, the trials so far and the seed.
        is_closed: whether a point must not be proposed.
    """
    untried = {axis.name: {v for s in strata for v in s} for axis, strata in _untried_strata(study)}
    if not untried:
        return []
    uses = Counter(
        (axis.name, stratum)
        for trial in study.trials
        for axis in study.space.axes
        for stratum in strata(axis)
        if trial.point.get(axis.name) in stratum
    )
    arranged = (_arranged(study, uses, untried, attempt) for attempt in range(_ARRANGEMENTS))
    points = {
        key(point): point
        for point in arranged
        if not is_closed(point) and any(point.get(name) in values for name, values in untried.items())
    }
    return list(points.values())


def points_to_cover(study: Study) -> int:
    """Return how many more points touch every value that no trial had: those of the axis with most."""
    return max((len(missing) for _, missing in _untried_strata(study)), default=0)


def strata(axis: Axis) -> tuple[Stratum, ...]:
    """Split the values of an axis: each word or number by itself, of many numbers groups of neighbours."""
    count = len(axis.values)
    if not axis.ordered or count <= MOST_STRATA:
        return tuple((value,) for value in axis.values)
    ends = [round(place * count / MOST_STRATA) for place in range(MOST_STRATA + 1)]
    return tuple(axis.values[low:high] for low, high in pairwise(ends))


def _untried_strata(study: Study) -> Iterator[tuple[Axis, tuple[Stratum, ...]]]:
    """Yield the axes of which no trial, an invalid one included, had some values."""
    for axis in study.space.axes:
        if axis.name in study.loads:
            continue
        tried = {trial.point[axis.name] for trial in study.trials if axis.name in trial.point}
        missing = tuple(stratum for stratum in strata(axis) if tried.isdisjoint(stratum))
        if missing:
            yield axis, missing


def _arranged(
    study: Study, uses: Mapping[tuple[str, Stratum], int], untried: Mapping[str, set[KnobValue]], attempt: int
) -> Point:
    """Return the point that takes of each axis the values used least, in a random order of their own.

    A value comes first if it, or an axis that matters only with it, has still to be tried.
    """
    values: Point = {}
    for axis in study.space.axes:
        generator = random.Random(f"{study.seed} {attempt} {axis.name}")
        if axis.name in study.loads:
            values[axis.name] = generator.choice(axis.values)
            continue
        order = list(strata(axis))
        generator.shuffle(order)
        needed = {
            value
            for other in study.space.axes
            if other.where == axis.name and other.name in untried
            for value in other.equals
        } | untried.get(axis.name, set())
        stratum = min(order, key=lambda s, name=axis.name: (needed.isdisjoint(s), uses[name, s]))  # type: ignore[misc]
        values[axis.name] = _representative(axis, stratum)
    return study.space.completed(values)


def _representative(axis: Axis, stratum: Stratum) -> KnobValue:
    """Return the value of a stratum to try: the end of the axis where it has one, else the middle."""
    if axis.values[-1] in stratum:
        return stratum[-1]
    return stratum[0] if axis.values[0] in stratum else stratum[len(stratum) // 2]

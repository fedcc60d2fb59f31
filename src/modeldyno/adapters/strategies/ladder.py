"""One knob that is raised: doubling, until more of it gives nothing more or breaks a bound; then closing in.

What more can break is taken to be broken at all greater values. Where no bound ends the climb, or nothing
is gained before it, the best value is looked for between its neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from modeldyno.adapters.strategies.study_history import Closed, gains
from modeldyno.core.load.sla_fit import limits
from modeldyno.core.study.pooled_estimate import missed
from modeldyno.core.study.study import Ask
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.study.search_space import Axis
    from modeldyno.core.study.study import Candidate, Study

requires: tuple[str, ...] = ()

FLAT = math.log(1.02)
"""Difference of two scores that counts as none."""
PATIENCE = 2
"""Rungs without a gain that end the climb."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A value of the knob, by its place on the axis, and what it gave."""

    place: int
    score: float
    """Minus infinity where it gave nothing, or breaks a bound."""
    ends: bool
    """Whether it failed, or broke a bound that more of the knob can break."""


def propose(study: Study) -> Ask | None:
    """Give the next rung.

    Raises:
        RequestError: the space has no axis of numbers, or another one beside it.
    """
    axis = _only(study)
    closed = Closed.of(study)
    able = [place for place, value in enumerate(axis.values) if {axis.name: value} not in closed]
    place = _next(axis, _rungs(study, axis), able)
    return None if place is None else Ask(point={axis.name: axis.values[place]})


def _only(study: Study) -> Axis:
    """Give the axis that is climbed."""
    axes = study.space.axes
    if len(axes) != 1 or not axes[0].ordered:
        named = ", ".join(axis.name for axis in axes) or "none"
        raise RequestError(
            f"The strategy ladder climbs one axis of numbers, and this space has {named}; "
            "give one, or take another strategy, such as quick."
        )
    return axes[0]


def _rungs(study: Study, axis: Axis) -> list[Rung]:
    """Give what was measured on the axis, from the least value to the greatest."""
    places = {value: place for place, value in enumerate(axis.values)}
    found = (
        _rung(study, candidate, places[value])
        for candidate in study.candidates.values()
        if (value := candidate.point.get(axis.name)) in places
    )
    return sorted(found, key=lambda rung: rung.place)


def _rung(study: Study, candidate: Candidate, place: int) -> Rung:
    """Judge by what was seen: how sure that is is the business of verification."""
    broken = [bound for bound in study.goal.constraints if missed(candidate, bound) > 0]
    found = None if broken else gains(study.goal, candidate)
    return Rung(
        place=place,
        score=-math.inf if found is None else sum(found),
        ends=candidate.failed or any(map(limits, broken)),
    )


def _next(axis: Axis, rungs: Sequence[Rung], able: Sequence[int]) -> int | None:
    """Give the place of the value to be measured next, of those that were not; None: there is no need."""
    end = min((rung.place for rung in rungs if rung.ends), default=len(axis.values))
    under = [rung for rung in rungs if rung.place < end]
    free = [place for place in able if place < end]
    if not free:
        return None
    if not under:
        return free[0] if end == len(axis.values) else free[len(free) // 2]
    top = under[-1].place
    above = [place for place in free if place > top]
    if above and _climbing(under):
        return above[len(above) // 2] if end < len(axis.values) else _doubled(axis, top, above)
    return _beside(under, free)


def _climbing(rungs: Sequence[Rung]) -> bool:
    """Say whether one of the last rungs gained on those before it, or none has held the bounds yet."""
    before = max((rung.score for rung in rungs[:-PATIENCE]), default=-math.inf)
    return before == -math.inf or max(rung.score for rung in rungs[-PATIENCE:]) > before + FLAT


def _doubled(axis: Axis, top: int, above: Sequence[int]) -> int:
    """Give the greatest value that is at most twice the last one, or else the next."""
    within = [place for place in above if float(axis.values[place]) <= 2 * float(axis.values[top])]
    return within[-1] if within else above[0]


def _beside(rungs: Sequence[Rung], free: Sequence[int]) -> int | None:
    """Give the middle of what lies between the best rung and one beside it, where the curve is not flat."""
    best = max(rungs, key=lambda rung: rung.score)
    gaps = [
        [place for place in free if low.place < place < high.place]
        for low, high in pairwise(rungs)
        if best in {low, high} and abs(high.score - low.score) > FLAT
    ]
    widest = max(gaps, key=len, default=[])
    return widest[len(widest) // 2] if widest else None

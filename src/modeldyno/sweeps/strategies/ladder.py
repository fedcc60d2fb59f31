"""Search along one numeric axis: doubling until there is no gain or a constraint breaks, then closing in.

A constraint that more of the knob can break counts as broken at all greater values. Where no constraint ends
the climb, or the gain stops before it, the best value is searched between its neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.serving.load.sla_fit import limits_load
from modeldyno.sweeps.strategies.study_history import ClosedPoints, log_gains
from modeldyno.sweeps.study.pooled_estimate import bound_miss
from modeldyno.sweeps.study.study import TrialRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.sweeps.study.search_space import Axis
    from modeldyno.sweeps.study.study import Candidate, Study

requires: tuple[str, ...] = ()

FLAT = math.log(1.02)
"""Difference of two scores that counts as none."""
PATIENCE = 2
"""Steps without a gain that end the climb."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderStep:
    """A measured value of the knob, by its index on the axis."""

    place: int
    score: float
    """Minus infinity where it failed or violates a constraint."""
    ends: bool
    """Whether it failed, or violates a constraint that more of the knob can violate."""


def propose(study: Study) -> TrialRequest | None:
    """Return the next trial.

    Raises:
        RequestError: the space is not a single numeric axis.
    """
    axis = _single_axis(study)
    closed = ClosedPoints.of(study)
    open_indices = [index for index, value in enumerate(axis.values) if {axis.name: value} not in closed]
    index = _next(axis, _steps(study, axis), open_indices)
    return None if index is None else TrialRequest(point={axis.name: axis.values[index]})


def _single_axis(study: Study) -> Axis:
    """Return the single axis."""
    axes = study.space.axes
    if len(axes) != 1 or not axes[0].ordered:
        named = ", ".join(axis.name for axis in axes) or "none"
        raise RequestError(
            f"The strategy ladder needs exactly one numeric axis, but this space has {named}; "
            "give one, or use another strategy, such as quick."
        )
    return axes[0]


def _steps(study: Study, axis: Axis) -> list[LadderStep]:
    """Return the measured values of the axis, in ascending order."""
    indices = {value: index for index, value in enumerate(axis.values)}
    steps = (
        _step(study, candidate, indices[value])
        for candidate in study.candidates.values()
        if (value := candidate.point.get(axis.name)) in indices
    )
    return sorted(steps, key=lambda rung: rung.place)


def _step(study: Study, candidate: Candidate, place: int) -> LadderStep:
    """Judge by the measured value alone: its certainty is left to verification."""
    broken = [bound for bound in study.goal.constraints if bound_miss(candidate, bound) > 0]
    objective_gains = None if broken else log_gains(study.goal, candidate)
    return LadderStep(
        place=place,
        score=-math.inf if objective_gains is None else sum(objective_gains),
        ends=candidate.failed or any(map(limits_load, broken)),
    )


def _next(axis: Axis, rungs: Sequence[LadderStep], open_indices: Sequence[int]) -> int | None:
    """Return the index of the next value to measure, of those not closed; None to stop."""
    end = min((rung.place for rung in rungs if rung.ends), default=len(axis.values))
    usable = [rung for rung in rungs if rung.place < end]
    candidates = [index for index in open_indices if index < end]
    if not candidates:
        return None
    if not usable:
        return candidates[0] if end == len(axis.values) else candidates[len(candidates) // 2]
    top = usable[-1].place
    above = [index for index in candidates if index > top]
    if above and _climbing(usable):
        return above[len(above) // 2] if end < len(axis.values) else _doubled(axis, top, above)
    return _next_to_best(usable, candidates)


def _climbing(rungs: Sequence[LadderStep]) -> bool:
    """Whether one of the last steps gained on those before it, or none is feasible yet."""
    best_before = max((rung.score for rung in rungs[:-PATIENCE]), default=-math.inf)
    return best_before == -math.inf or max(rung.score for rung in rungs[-PATIENCE:]) > best_before + FLAT


def _doubled(axis: Axis, top: int, above: Sequence[int]) -> int:
    """Return the greatest value that is at most twice the last one, or else the next."""
    doubled = [index for index in above if float(axis.values[index]) <= 2 * float(axis.values[top])]
    return doubled[-1] if doubled else above[0]


def _next_to_best(rungs: Sequence[LadderStep], candidates: Sequence[int]) -> int | None:
    """Return the middle of the widest gap next to the best value, where the curve is not flat."""
    best = max(rungs, key=lambda rung: rung.score)
    gaps = [
        [index for index in candidates if low.place < index < high.place]
        for low, high in pairwise(rungs)
        if best in {low, high} and abs(high.score - low.score) > FLAT
    ]
    widest = max(gaps, key=len, default=[])
    return widest[len(widest) // 2] if widest else None

"""The largest load that holds a service-level agreement: bracket it, narrow it down, answer with an interval.

The search is a function of the measurements so far. Each of several measurements may err, so a load counts
as held or broken only at a confidence that keeps the whole search right in 95 of 100 cases; whatever is
uncertain lies within the interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.constraints import Judgement, Verdict, worst_verdict
from modeldyno.base.metrics.metric import fraction_of
from modeldyno.base.stats.statistics import Z, certified_floor
from modeldyno.serving.load.capacity_steps import (
    RATE,
    Bracket,
    CapacitySearch,
    NextLoad,
    SearchEnd,
    next_step,
)
from modeldyno.serving.load.load_curve import LoadPoint, LoadSeries
from modeldyno.serving.load.sla_fit import judge_loads, limits_load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.job.load_spec import Load
    from modeldyno.base.metrics.constraints import Constraint
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.serving.load.sla_fit import LoadVerdict


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Capacity(LoadSeries):
    """The answer of a capacity search, as a document."""

    KIND = "capacity"
    search: CapacitySearch
    end: SearchEnd
    passed: float | None
    """The largest load that surely holds every bound that limits it; None if there is none."""
    failed: float | None
    """The smallest load above `passed` that surely breaks a bound; None if there is none."""
    broke: tuple[Judgement, ...] = ()
    """The bounds broken there, the farthest from its bound first."""
    verified: LoadPoint | None = None
    """The load that passed, measured again on a freshly started server."""
    ours: bool = True
    """Whether ModelDyno starts the server, so that the verification runs on a fresh one."""

    @property
    def knob(self) -> str:
        """The knob that is raised: ``concurrency`` or ``rate``."""
        return self.search.knob

    @property
    def best(self) -> LoadPoint | None:
        """The measurement to quote for the passed load: the verification, or else the longest."""
        if self.verified is not None:
            return self.verified
        return max((r for r in self.rungs if r.load == self.passed), key=lambda r: r.care, default=None)

    @property
    def confirmed(self) -> Verdict | None:
        """Verdict of the verification on the bounds that limit the load; None before verification."""
        if self.verified is None:
            return None
        if self.verified.failure:
            return Verdict.BROKEN
        return worst_verdict(j for j in self.verified.judgements if limits_load(j.constraint))

    @property
    def unmet(self) -> tuple[Judgement, ...]:
        """Broken bounds that less load would break, too, such as ``throughput >= 100/s``."""
        judged = self.best.judgements if self.best is not None else ()
        return tuple(j for j in judged if not limits_load(j.constraint) and j.verdict is Verdict.BROKEN)

    @property
    def verdict(self) -> Verdict:
        """Whether some load holds all bounds and the verification on a fresh server confirms it."""
        if self.passed is None:
            tried = self.failed is not None and self.end in _TRIED
            return Verdict.BROKEN if tried else Verdict.UNDECIDED
        if self.unmet:
            return Verdict.BROKEN
        return Verdict.UNDECIDED if self.confirmed is None else self.confirmed

    def with_verification(self, rung: LoadPoint) -> Capacity:
        """Add the verification of the passed load on a freshly started server."""
        return replace(self, verified=rung)


_TRIED = {SearchEnd.SMALLEST, SearchEnd.MEASUREMENTS, SearchEnd.JUDGED}
"""Ends of a search that tried what it could."""


def load_at(load: Load, knob: str, value: float, care: float = 1.0) -> Load:
    """Return the load with another concurrency or rate, measured `care` times as long."""
    longer = replace(
        load,
        duration=None if load.duration is None else load.duration * care,
        requests=None if load.requests is None else round(load.requests * care),
    )
    return replace(longer, rate=value) if knob == RATE else replace(longer, concurrency=round(value))


def scaled_plan(plan: Plan, care: float, bounds: Sequence[Constraint] = ()) -> Plan:
    """Return the Plan with `care` times the time, precision to match, and certified judged percentiles."""
    percentiles = (name for bound in bounds if (name := bound.percentile) is not None)
    return replace(
        plan,
        min_time=plan.min_time * care,
        max_time=plan.max_time * care,
        min_runs=round(plan.min_runs * care),
        max_runs=round(plan.max_runs * care),
        precision=plan.precision / math.sqrt(care),
        percentiles=tuple(dict.fromkeys((*plan.percentiles, *percentiles))),
    )


def propose(search: CapacitySearch, history: Sequence[LoadPoint]) -> NextLoad | Capacity:
    """Return the next load to measure, or the answer.

    Args:
        search: what to look for.
        history: the measurements so far in order, each with a judgement on every bound of the
            search, in the same order.
    """
    points = judge_loads(history, z=search.required_z, rate=not search.whole)
    bracket = Bracket.of(points)
    step = next_step(search, points, bracket, len(history))
    return step if isinstance(step, NextLoad) else _answer(search, history, points, bracket, step)


def answer_so_far(
    search: CapacitySearch, history: Sequence[LoadPoint], end: SearchEnd = SearchEnd.INTERRUPTED
) -> Capacity:
    """Return the answer from the measurements so far, of a search that is ended from outside."""
    points = judge_loads(history, z=search.required_z, rate=not search.whole)
    return _answer(search, history, points, Bracket.of(points), end)


def _answer(
    search: CapacitySearch,
    history: Sequence[LoadPoint],
    points: Sequence[LoadVerdict],
    bracket: Bracket,
    end: SearchEnd,
) -> Capacity:
    broken = next((k.broken for k in points if k.load == bracket.failed), ())
    return Capacity(
        search=search,
        rungs=tuple(history),
        end=end,
        passed=bracket.passed,
        failed=bracket.failed,
        broke=tuple(sorted(broken, key=relative_excess, reverse=True)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoad:
    """What a search left undecided, and what deciding it takes."""

    point: LoadPoint
    judgement: Judgement
    """On the bound that is farthest from being decided."""
    times: float
    """Multiple of the time that it was measured for; infinite if no time decides it."""


def open_load(capacity: Capacity) -> OpenLoad | None:
    """Return the load that leaves a search undecided; None if it is decided, or if none was measured.

    That is the load that passed, if its verification is undecided, else the smallest one without a verdict.
    """
    if capacity.verdict is not Verdict.UNDECIDED:
        return None
    search, point = capacity.search, capacity.verified
    if capacity.passed is None:
        verdicts = judge_loads(capacity.rungs, z=search.required_z, rate=not search.whole)
        undecided = {each.load for each in verdicts if each.verdict is Verdict.UNDECIDED and not each.limited}
        measured = (rung for rung in capacity.rungs if rung.load in undecided and not rung.failure)
        point = min(measured, key=lambda rung: (rung.load, -rung.care), default=None)
    z = search.required_z if capacity.passed is None else Z
    if point is None:
        return None
    limits = (each for each in point.judgements if limits_load(each.constraint))
    judged = [each for each in limits if each.answer.value is not None or each.answer.size]
    if not (times := [_times_to_decide(each, z) for each in judged]):
        return None
    return OpenLoad(point=point, judgement=judged[times.index(max(times))], times=max(times))


def _times_to_decide(judgement: Judgement, z: float) -> float:
    """Return how many times as long a bound takes to be decided at `z` standard errors."""
    answer, fraction = judgement.answer, fraction_of(judgement.constraint.percentile or "")
    if answer.value is None:
        return certified_floor(fraction or 0.0) / (answer.size or 1.0)
    distance = abs(answer.value - judgement.constraint.bound)
    return (z / Z * answer.bounds().half_width() / distance) ** 2 if distance else math.inf


def relative_excess(judgement: Judgement) -> float:
    """Return by which share of the bound a broken one is exceeded or missed."""
    bound, value = judgement.constraint.bound, judgement.answer.value
    if value is None:  # only one end of its interval is known
        ends = judgement.answer.bounds()
        value = ends.low if judgement.constraint.at_most else ends.high
    return abs(value - bound) / abs(bound) if bound else math.inf

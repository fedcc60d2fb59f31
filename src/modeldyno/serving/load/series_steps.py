"""A load series as a log: which load is next, and what a measurement adds; a ladder and a search alike.

All are functions of the document, so that a series read back from a store goes on as if it had never stopped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from modeldyno.base.metrics.constraints import bounds_of_answers
from modeldyno.serving.load.capacity import Capacity, answer_so_far, load_at, propose, scaled_plan
from modeldyno.serving.load.capacity_steps import NextLoad, SearchEnd
from modeldyno.serving.load.load_curve import LoadCurve, LoadPoint, worth_climbing
from modeldyno.serving.load.replicas import bounds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from modeldyno.base.job.job import Job
    from modeldyno.base.metrics.constraints import Constraint
    from modeldyno.base.result.result import Result
    from modeldyno.serving.load.capacity_steps import CapacitySearch

AnySeries = TypeVar("AnySeries", LoadCurve, Capacity, LoadCurve | Capacity)
"""A load curve, or a search for the largest load."""


def next_load(series: LoadCurve | Capacity) -> NextLoad | None:
    """Return the next load to measure; None at the end of the series, and once the user ended it."""
    if series.rungs and series.rungs[-1].interrupted:
        return None
    return _next_rung(series) if isinstance(series, LoadCurve) else _next_measurement(series)


def _next_rung(curve: LoadCurve) -> NextLoad | None:
    """Return the smallest load that was not measured; a failure and the plateau end a ladder."""
    missing = missing_loads(curve)
    if not missing or any(rung.failure for rung in curve.rungs):
        return None
    climbs = all(rung.load < missing[0] for rung in curve.rungs)
    ended = climbs and curve.until_plateau and not worth_climbing(curve)
    return None if ended else NextLoad(load=missing[0])


def missing_loads(curve: LoadCurve) -> tuple[int | float, ...]:
    """Return the loads asked for that were not measured."""
    measured = {rung.load for rung in curve.rungs}
    return tuple(load for load in curve.loads if load not in measured)


def _next_measurement(capacity: Capacity) -> NextLoad | None:
    """Return the next load of the search, or in the end the verification of the load that passed."""
    if capacity.end is SearchEnd.REFUSED:
        return None
    step = None if capacity.end is SearchEnd.TIME else propose(capacity.search, capacity.rungs)
    if isinstance(step, NextLoad):
        return step
    best = capacity.best
    if best is None or capacity.verified is not None:
        return None
    return NextLoad(load=best.load, care=best.care, fresh=True)


def step_within(capacity: Capacity, step: NextLoad, left: float) -> NextLoad | None:
    """Return a step of a search as far as there is time for it; None if there is too little.

    `left` is the time left, as a multiple of the Plan's. A load leaves as much as its verification takes, or
    that of the load that passed.
    """
    if step.fresh:
        return replace(step, care=max(1.0, min(step.care, left)))
    kept = 1.0 if capacity.best is None else capacity.best.care
    care = min(step.care, left / 2, left - kept)
    return replace(step, care=care) if care >= 1 else None


def end_in_time(capacity: Capacity) -> Capacity:
    """Return a search whose time is over: its answer so far, of which only the verification is left."""
    return _answered(capacity, SearchEnd.TIME)


def job_at_load(series: LoadCurve | Capacity, step: NextLoad) -> Job:
    """Return the Job of a load; percentiles of the bounds are certified."""
    job = series.job
    assert job is not None
    assert job.load is not None
    load = load_at(job.load, series.knob, step.load, step.care)
    plan = scaled_plan(job.plan, step.care, bounds_of(series))
    bounds = bounds_of(series) if isinstance(series, LoadCurve) else ()  # a search goes on by its own rule
    return replace(job, load=load, plan=replace(plan, bounds=bounds))


def add_load(series: AnySeries, step: NextLoad, result: Result, *, refused: bool = False) -> AnySeries:
    """Return the series with one more measurement.

    Args:
        series: without it.
        step: what was measured.
        result: the outcome.
        refused: whether the server refused every request of it as wrong.
    """
    point = LoadPoint.of(result, step.load, bounds_of(series), care=step.care)
    has_origin = series.model is not None or result.model is None
    series = replace(
        series,
        name=result.name,
        model=series.model if has_origin else result.model,
        environment=series.environment if has_origin else result.environment,
    )
    if isinstance(series, LoadCurve):
        return replace(series, rungs=(*series.rungs, point))
    if step.fresh:
        return series.with_verification(point)
    series = replace(series, rungs=(*series.rungs, point))
    if point.interrupted:
        return _answered(series, SearchEnd.INTERRUPTED)
    return _answered(series, SearchEnd.REFUSED if refused and _all_failed(series) else None)


def _all_failed(series: LoadCurve | Capacity) -> bool:
    return all(rung.failure for rung in series.rungs)


def _answered(capacity: Capacity, end: SearchEnd | None = None) -> Capacity:
    """Return a search with the answer that its measurements give, and why it ended, if from outside."""
    answer = propose(capacity.search, capacity.rungs) if end is None else None
    if not isinstance(answer, Capacity):
        answer = answer_so_far(capacity.search, capacity.rungs, end or SearchEnd.INTERRUPTED)
    verified = capacity.verified
    return replace(
        capacity,
        end=answer.end,
        passed=answer.passed,
        failed=answer.failed,
        broke=answer.broke,
        verified=verified if verified is not None and verified.load == answer.passed else None,
    )


# --- going on, and judging again -------------------------------------------------------------------


def without_unfinished(series: AnySeries) -> AnySeries:
    """Return the series without what a resumption measures again.

    These are loads that the user ended early, and those that failed; but for a search a failed load is one
    that is too large, unless every load failed.
    """
    rungs = tuple(rung for rung in series.rungs if not rung.interrupted)
    if isinstance(series, LoadCurve):
        return replace(series, rungs=tuple(rung for rung in rungs if not rung.failure))
    if _all_failed(series):
        rungs = ()
    verified = series.verified
    usable = verified is not None and not verified.interrupted
    return _answered(replace(series, rungs=rungs, verified=verified if usable else None))


def search_again(
    series: LoadCurve | Capacity, search: CapacitySearch, stored: Callable[[str], Result | None]
) -> Capacity:
    """Return a search that has the loads of a series, judged by its bounds.

    Args:
        series: a load curve, or a search with other bounds or limits.
        search: what to look for now.
        stored: returns a Result by its id; None if it is not stored.
    """
    if isinstance(series, LoadCurve):
        curve = judge_again(series, search.bounds, stored)
        judged = Capacity(
            search=search, rungs=curve.rungs, end=SearchEnd.INTERRUPTED, passed=None, failed=None,
            job=curve.job, model=curve.model, environment=curve.environment,
            id=curve.id, created=curve.created, name=curve.name,
        )  # fmt: skip
    else:
        judged = replace(judge_again(series, search.bounds, stored), search=search)
    return _answered(judged)


def judge_again(
    series: AnySeries, bounds: tuple[Constraint, ...], stored: Callable[[str], Result | None]
) -> AnySeries:
    """Return the series under other bounds, each load judged by its stored Result, or else by its answers."""
    times = bounds_of_answers(bounds)
    same = times == bounds_of_answers(bounds_of(series))

    def judged_again(point: LoadPoint) -> LoadPoint:
        judged = _judge_point(point, bounds, stored(point.result) if point.result else None)
        # The goodput of another bound is none of this one.
        answers = (answer for answer in judged.answers if same or answer.query.metric != "goodput")
        return replace(judged, answers=tuple(answers))

    rungs = tuple(map(judged_again, series.rungs))
    job = series.job if series.job is None or same else _with_goodput(series.job, times)
    if isinstance(series, LoadCurve):
        return replace(series, bounds=bounds, rungs=rungs, job=job)
    verified = None if series.verified is None else judged_again(series.verified)
    search = replace(series.search, bounds=bounds)
    return _answered(replace(series, search=search, rungs=rungs, verified=verified, job=job))


def _judge_point(point: LoadPoint, bounds: Sequence[Constraint], result: Result | None) -> LoadPoint:
    if result is not None:
        judged = LoadPoint.of(result, point.load, bounds, care=point.care)
        return replace(judged, doubts=point.doubts, failure=point.failure)
    answers = {answer.query: answer for answer in point.answers}
    judgements = (
        bound.on(answers[bound.query]) if bound.query in answers else bound.judge(()) for bound in bounds
    )
    return replace(point, judgements=tuple(judgements))


def _with_goodput(job: Job, times: Mapping[str, float]) -> Job:
    """Return the Job with other times up to which an answer counts as good, for every model."""
    load = None if job.load is None else job.load.with_good_answers(times)
    return replace(job, load=load, beside=tuple(_with_goodput(other, times) for other in job.beside))


def unknown_loads(series: LoadCurve | Capacity) -> tuple[LoadPoint, ...]:
    """Return the loads of which a bound says nothing: its metric was not measured, or is not stored."""
    return tuple(
        rung
        for rung in series.rungs
        if not rung.failure
        and any(j.answer.value is None and j.answer.interval is None for j in rung.judgements)
    )


def answer_again(
    series: LoadCurve | Capacity, search: CapacitySearch, stored: Callable[[str], Result | None]
) -> Capacity:
    """Return what the loads of a series say about other bounds, for which nothing more is measured."""
    capacity = search_again(series, search, stored)
    unfinished = capacity.end in {SearchEnd.INTERRUPTED, SearchEnd.MEASUREMENTS}
    return _answered(capacity, SearchEnd.JUDGED) if unfinished else capacity

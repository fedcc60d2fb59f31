"""Measure several loads on one server: a ladder of loads, or a search for the largest that meets its bounds.

Both are generators: the caller saves each Outcome before it asks for the next, and may stop at any time. The
server stays open while only the load changes.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from modeldyno.core.load import request_log
from modeldyno.core.load.capacity import Capacity, answer_so_far, load_at, propose, scaled_plan
from modeldyno.core.load.capacity_spec import CONCURRENCY, RATE, CapacitySearch
from modeldyno.core.load.capacity_steps import SearchEnd
from modeldyno.core.load.load_curve import LoadCurve, LoadPoint, worth_climbing
from modeldyno.core.result.result import Progressed
from modeldyno.errors import RequestError
from modeldyno.profiling.request import server_for
from modeldyno.profiling.run import INTERRUPTED, JudgedResult, judge_result
from modeldyno.runtime.child_process import subprocess_executor
from modeldyno.runtime.warm_worker import warm_executor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.core.result.result import Event, Result
    from modeldyno.core.spec.job import Job
    from modeldyno.core.spec.load_spec import Load
    from modeldyno.interfaces.executor import Executor
    from modeldyno.profiling.request import Request


def run_load_ladder(
    request: Request,
    loads: Sequence[int],
    *,
    all_of_them: bool = True,
    watch: Callable[[Event], None] = lambda _event: None,
) -> Iterator[tuple[JudgedResult, LoadCurve]]:
    """Measure one concurrency after another on one server; yield each Outcome with the ladder so far.

    End early when the server fails or on an interruption, and unless `all_of_them` is set, once more load
    brings no more throughput.

    Raises:
        RequestError: the request is wrong; nothing was measured.
    """
    job, load = _job_and_load(request)
    constraints = request.constraints()
    ladder = LoadCurve(knob=CONCURRENCY, rungs=(), id=secrets.token_hex(6), created=_now())
    with warm_executor() as execute:
        for number, value in enumerate(loads, 1):
            watch(Progressed(stage=f"load {number} of {len(loads)}: concurrency {value}"))
            result = execute(replace(job, load=replace(load, concurrency=value)), watch=watch)
            outcome = judge_result(result, constraints)
            rung = LoadPoint.of(outcome.result, value, constraints)
            ladder = replace(ladder, rungs=(*ladder.rungs, rung), name=result.name)
            yield outcome, ladder
            if outcome.exit_code == INTERRUPTED or result.failures:
                return
            if not (all_of_them or worth_climbing(ladder)):
                return


def capacity_search(
    request: Request, *, most: float | None = None, measurements: int | None = None
) -> CapacitySearch:
    """Return the search for the largest load that holds the bounds of a request, from its load upwards.

    Args:
        request: with a rate, the rate is searched, otherwise the concurrency.
        most: the largest load to try; by default 1024, or 1024 times the rate.
        measurements: the maximum number of loads to measure.

    Raises:
        RequestError: there is no bound, or the limits contradict each other.
    """
    bounds = request.constraints()
    if not bounds:
        raise RequestError("--find-load needs a bound, such as --require 'latency.p99 <= 50ms'.")
    limits = {"most": most, "measurements": measurements}
    set_limits: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    load = request.load
    if load is not None and load.rate:
        return CapacitySearch(
            bounds=bounds, knob=RATE, start=load.rate, **{"most": 1024 * load.rate, **set_limits}
        )
    start = float(load.concurrency or 1) if load is not None else 1.0
    return CapacitySearch(bounds=bounds, start=start, **set_limits)


def search_capacity(
    request: Request, options: CapacitySearch, *, watch: Callable[[Event], None] = lambda _event: None
) -> Iterator[tuple[JudgedResult, Capacity | None]]:
    """Search the largest load that meets every bound, then measure it again on a freshly started server.

    Yield each Outcome with the answer so far; the last has the answer.

    Raises:
        RequestError: the request is wrong; nothing was measured.
    """
    job, load = _job_and_load(request)
    if options.knob == RATE and load.closed:
        raise RequestError("A closed loop has no rate to search; give --rate, or search for the concurrency.")
    history: tuple[LoadPoint, ...] = ()
    capacity: Capacity | None = None
    capacity_id, created, own_server = secrets.token_hex(6), _now(), server_for(request.model) is not None
    with warm_executor() as execute:
        while not isinstance(step := propose(options, history), Capacity):
            watch(Progressed(stage=f"measurement {len(history) + 1}: {options.knob} {step.load:,g}"))
            outcome = _measure(execute, job, load_at(load, step.load, step.care), options, step.care, watch)
            history = (*history, LoadPoint.of(outcome.result, step.load, options.bounds, care=step.care))
            end = _early_end(outcome, history)
            answer = propose(options, history) if end is None else answer_so_far(options, history, end)
            if isinstance(answer, Capacity):
                capacity = replace(
                    answer, ours=own_server, id=capacity_id, created=created, name=outcome.result.name
                )
            yield outcome, capacity
            if end is not None:
                return
    if capacity is None or capacity.passed is None:
        return
    watch(Progressed(stage=f"verifying {options.knob} {capacity.passed:,g} in a fresh process"))
    care = capacity.best.care if capacity.best is not None else 1.0
    with subprocess_executor() as execute:
        outcome = _measure(execute, job, load_at(load, capacity.passed, care), options, care, watch)
    yield (
        outcome,
        capacity.with_verification(LoadPoint.of(outcome.result, capacity.passed, options.bounds, care=care)),
    )


def _early_end(outcome: JudgedResult, history: Sequence[LoadPoint]) -> SearchEnd | None:
    """Return why the search must end now, regardless of its history; None if it goes on."""
    if outcome.exit_code == INTERRUPTED:
        return SearchEnd.INTERRUPTED
    refused = all(rung.failure for rung in history) and _all_refused(outcome.result)
    return SearchEnd.REFUSED if refused else None


def _all_refused(result: Result) -> bool:
    """Return whether the server refused every request as wrong, as for a model it does not have."""
    ends = {m.scope for m in result.measurements if m.metric == "requests"}
    return ends == {request_log.RequestOutcome.CLIENT_ERROR.word}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _measure(
    execute: Executor,
    job: Job,
    load: Load,
    options: CapacitySearch,
    care: float,
    watch: Callable[[Event], None],
) -> JudgedResult:
    plan = scaled_plan(job.plan, care, options.bounds)
    return judge_result(execute(replace(job, load=load, plan=plan), watch=watch), options.bounds)


def _job_and_load(request: Request) -> tuple[Job, Load]:
    """Return the Job and its load.

    Raises:
        RequestError: the backend does not serve, or several processes are requested.
    """
    job = request.job()
    if job.load is None:
        raise RequestError(
            f"The backend '{job.backend}' calls the model within a process; a series of loads needs a "
            "server: choose one with --backend triton, or give its URL."
        )
    if job.plan.processes > 1:
        raise RequestError("Several loads are measured on one server; leave out --processes.")
    return job, job.load

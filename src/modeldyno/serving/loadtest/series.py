"""Measure several loads on one server: a ladder of loads, or a search for the largest that meets its bounds.

The document is the log, and both differ only in the load that `serving.load.series_steps` says is next. The
loop is a generator: the caller saves each step before it asks for the next, and may stop at any time.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import monotonic
from modeldyno.base.errors import RequestError
from modeldyno.base.identity import new_identity
from modeldyno.base.result.cost import with_cost
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.result.result import Progressed
from modeldyno.base.system.variables import variables_set
from modeldyno.engine.runtime.warm_worker import open_warm_worker
from modeldyno.engine.trace.carbon import with_carbon
from modeldyno.profiling.consistency_guard import ConsistencyGuard
from modeldyno.profiling.request import server_for
from modeldyno.profiling.run import JudgedResult, judge_result
from modeldyno.serving.load.capacity import Capacity
from modeldyno.serving.load.capacity_steps import CONCURRENCY, RATE, CapacitySearch, SearchEnd
from modeldyno.serving.load.endpoint_url import HEADERS_VARIABLE
from modeldyno.serving.load.load_curve import LoadCurve
from modeldyno.serving.load.replicas import bounds_of
from modeldyno.serving.load.series_steps import (
    add_load,
    end_in_time,
    job_at_load,
    missing_loads,
    next_load,
    step_within,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.cost import Price
    from modeldyno.base.result.result import Event, Result
    from modeldyno.engine.interfaces.executor import Executor
    from modeldyno.engine.runtime.trial_executor import TrialExecutor
    from modeldyno.engine.trace.carbon import Emission
    from modeldyno.profiling.request import Request
    from modeldyno.serving.load.capacity_steps import NextLoad
    from modeldyno.serving.load.series_steps import AnySeries


def begin_curve(
    request: Request, loads: Sequence[float], *, knob: str = CONCURRENCY, until_plateau: bool = False
) -> LoadCurve:
    """Return a load curve that is not measured yet: of rising concurrencies or rates, perhaps to the plateau.

    Raises:
        RequestError: the request is wrong.
    """
    resolved = request.resolve()
    return LoadCurve(
        knob=knob,
        loads=tuple(loads),
        until_plateau=until_plateau,
        bounds=resolved.constraints,
        rungs=(),
        job=_served_job(resolved.job),
        **new_identity(),
    )


def begin_search(request: Request, *, most: float | None = None, measurements: int | None = None) -> Capacity:
    """Return a search for the largest load that holds the bounds of a request, from its load upwards.

    Args:
        request: with a rate, the rate is searched, otherwise the concurrency.
        most: the largest load to try; by default 1024, or 1024 times the rate.
        measurements: the maximum number of loads to measure.

    Raises:
        RequestError: the request is wrong, there is no bound, or the limits contradict each other.
    """
    if not request.require:
        raise RequestError("`find_load` needs a bound, such as `require=latency.p99 <= 50ms`.")
    resolved = request.resolve()
    bounds = resolved.constraints
    limits = {"most": most, "measurements": measurements}
    set_limits: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    load = request.load
    if load is not None and load.rate:
        search = CapacitySearch(
            bounds=bounds, knob=RATE, start=load.rate, **{"most": 1024 * load.rate, **set_limits}
        )
    else:
        start = float(load.concurrency or 1) if load is not None else 1.0
        search = CapacitySearch(bounds=bounds, start=start, **set_limits)
    job = _served_job(resolved.job)
    if not job.plan.may_extend:  # the time that was asked for is that of the whole search
        search = replace(search, max_time=job.plan.max_time)
        most_time = job.plan.max_time / search.patience
        job = replace(
            job, plan=replace(job.plan, max_time=most_time, min_time=min(job.plan.min_time, most_time / 2))
        )
    return Capacity(
        search=search,
        rungs=(),
        end=SearchEnd.INTERRUPTED,
        passed=None,
        failed=None,
        ours=server_for(request.model) is not None,
        job=job,
        **new_identity(),
    )


def _served_job(job: Job) -> Job:
    """Return a Job that one server runs.

    Raises:
        RequestError: the backend does not serve, or several processes are requested.
    """
    if job.load is None:
        raise RequestError(
            f"The backend '{job.backend}' calls the model within a process; a series of loads needs a "
            "server: choose one with `backend=triton`, or give its URL."
        )
    if job.plan.processes > 1:
        raise RequestError("Several loads are measured on one server; leave out `processes`.")
    return job


def measure_loads(
    series: AnySeries,
    *,
    watch: Callable[[Event], None] = lambda _event: None,
    force: bool = False,
    rooms: TrialExecutor | None = None,
    emission: Emission | None = None,
    price: Price | None = None,
) -> Iterator[tuple[JudgedResult, AnySeries]]:
    """Continue a series to its end; yield each Outcome with the series that has it.

    A search ends with the verification of the load that passed, on a freshly started server. Its time limit
    begins now.

    Args:
        series: new, or resumed.
        watch: called with every event.
        force: continue although the model or the hardware has changed.
        rooms: returns the executor of a Job; by default one child process, whose server stays open.
        emission: for the carbon of each load; None to leave it out.
        price: of the machine, for the cost of each load; None to leave it out.

    Raises:
        RequestError: the series cannot be measured.
        StaleStudy: the model or the hardware differs from that of the loads so far.
    """
    guard = ConsistencyGuard(force=force, watch=watch, kind="load series", part="load")
    with _one_server() if rooms is None else nullcontext(rooms) as room:
        step, clock = next_load(series), _SearchClock()
        while step is not None:
            watch(Progressed(stage=_describe_step(series, step)))
            outcome = _measure(series, step, room, guard, emission, price)
            series = add_load(series, step, outcome.result, refused=_all_refused(outcome.result))
            series, step = clock.next_load(series)
            yield outcome, series


class _SearchClock:
    """The time that a search has taken since it began or went on."""

    def __init__(self) -> None:
        self._begin = monotonic()
        self._start_up: float | None = None

    def next_load(self, series: AnySeries) -> tuple[AnySeries, NextLoad | None]:
        """Return the next load that there is time for, and the series; it ends if there is none."""
        step = next_load(series)
        if not isinstance(series, Capacity):
            return series, step
        if series.search.max_time is None or step is None:
            return series, step
        times = self._left(series, series.search.max_time) / seconds_of_load(series)
        within = step_within(series, step, times)
        if within is None:
            series = end_in_time(series)
            last = next_load(series)
            within = last and step_within(series, last, times)
        return series, within

    def _left(self, series: Capacity, limit: float) -> float:
        """Return the seconds left, less those that the fresh server of a verification takes to start."""
        spent = monotonic() - self._begin
        if self._start_up is None:
            self._start_up = max(0.0, spent - seconds_of_load(series)) if series.ours else 0.0
        return limit - spent - self._start_up


def seconds_of_load(series: LoadCurve | Capacity) -> float:
    """Return the longest time of a load, measured as long as its Plan says and no longer."""
    assert series.job is not None
    load = series.job.load
    if load is not None and load.duration is not None:
        return load.ramp + load.duration
    return series.job.plan.max_time


def _measure(
    series: LoadCurve | Capacity,
    step: NextLoad,
    room: TrialExecutor,
    guard: ConsistencyGuard,
    emission: Emission | None,
    price: Price | None,
) -> JudgedResult:
    """Measure one load, and judge it by the bounds."""
    guard.before = series
    job = job_at_load(series, step)
    result = room(job, fresh=step.fresh)(job, watch=guard)
    if emission is not None:
        result = with_carbon(result, emission)
    result = with_cost(result, price)
    return judge_result(replace(result, doubts=(*result.doubts, *guard.doubts)), bounds_of(series))


@contextmanager
def _one_server() -> Iterator[TrialExecutor]:
    """Run every load in one child, whose server stays open; a fresh one gets another child."""
    with open_warm_worker() as worker:

        def executor_for(job: Job, *, fresh: bool) -> Executor:
            del job
            if fresh:
                worker.close()
            return worker.execute

        yield executor_for


def _describe_step(series: LoadCurve | Capacity, step: NextLoad) -> str:
    """Describe the load that begins."""
    number = len(series.rungs) + 1
    at = f"{series.knob} {step.load:,g}"
    if isinstance(series, LoadCurve):
        return f"load {number} of {len(series.rungs) + len(missing_loads(series))}: {at}"
    return f"verifying {at} in a fresh process" if step.fresh else f"measurement {number}: {at}"


def _all_refused(result: Result) -> bool:
    """Return whether the server refused every request as wrong, as for a model it does not have."""
    ends = {m.scope for m in result.measurements if m.metric == "requests"}
    return ends == {RequestOutcome.CLIENT_ERROR.word}


@contextmanager
def headers_in_environment(lines: Sequence[str]) -> Iterator[None]:
    """Pass ``Name: value`` lines to processes that start within the block; without any, change nothing."""
    if not lines:
        yield
        return
    with variables_set({HEADERS_VARIABLE: "\n".join(lines)}):
        yield

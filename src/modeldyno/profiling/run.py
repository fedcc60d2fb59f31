"""Run a Request and judge its Result: shared by the command line and the Python API."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import fsum
from statistics import fmean
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics import doubt
from modeldyno.base.metrics.constraints import Judgement, Verdict
from modeldyno.base.metrics.doubt import HOST_TIMES, Doubt
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.result.cost import with_cost
from modeldyno.base.result.result import Progressed, Result, merge
from modeldyno.engine.runtime.child_process import subprocess_executor
from modeldyno.engine.trace.carbon import with_carbon
from modeldyno.profiling.request import Request, ResolvedRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from modeldyno.base.job.job import Job
    from modeldyno.base.metrics.constraints import Constraint
    from modeldyno.base.result.result import Event
    from modeldyno.engine.interfaces.executor import Executor
    from modeldyno.engine.runtime.measured_region import Region
    from modeldyno.engine.runtime.time_limit import TimeLimit

OK, BROKEN, FAILED, UNDECIDED, INTERRUPTED = 0, 1, 4, 5, 130
"""Exit codes of measurements; those of wrong requests are in modeldyno.base.errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedResult:
    """A Result, and the verdicts on its constraints."""

    result: Result
    judgements: tuple[Judgement, ...] = ()

    @property
    def exit_code(self) -> int:
        """Exit code for scripts."""
        verdicts = {judgement.verdict for judgement in self.judgements}
        if self.result.interrupted:
            return INTERRUPTED
        if self.result.failures:
            return FAILED
        if Verdict.BROKEN in verdicts:
            return BROKEN
        return UNDECIDED if Verdict.UNDECIDED in verdicts else OK


def run_request(
    request: Request | ResolvedRequest,
    *,
    in_process: bool = False,
    watch: Callable[[Event], None] = lambda _event: None,
    interrupts: Sized | None = None,
    guard: Region | None = None,
    limit: TimeLimit | None = None,
) -> JudgedResult:
    """Run a Request in fresh processes (or in this one), and judge the Result.

    Args:
        request: what to measure, resolved or not.
        in_process: measure in the calling process.
        watch: called with each event.
        interrupts: those that a caller counts itself; by default, Ctrl-C is counted while it measures.
        guard: entered around what is measured; loading and compiling are outside it.
        limit: the time limit of the command.

    Raises:
        RequestError: the request is wrong; nothing was measured.
        MissingExtra: an optional package is not installed.
        OutOfTime: the limit was reached before there was any figure.
    """
    resolved = request.resolve() if isinstance(request, Request) else request
    request, job = resolved.request, resolved.job
    if in_process:
        from modeldyno.engine.runtime.inline import run_inline  # with the whole engine

        _check_inline(job)
        result = run_replicated(partial(run_inline, limit=limit), job, watch=watch)
    else:
        with subprocess_executor(interrupts, guard, limit) as execute:
            result = run_replicated(execute, job, watch=watch)
    if request.emission is not None:
        result = with_carbon(result, request.emission)
    result = with_cost(result, request.price)
    return judge_result(result, resolved.constraints)


def _check_inline(job: Job) -> None:
    """Refuse options that only a child process can honour."""
    plan = job.plan
    if job.trust:
        raise RequestError(
            "Files that run code are loaded only in a child process; drop `inline` or `trust`."
        )
    requested = {
        "processes": plan.processes > 1,
        "pin": plan.pin,
        "timeout": plan.timeout,
        "memory_limit": plan.memory_limit,
    }
    if wrong := [name for name, is_set in requested.items() if is_set]:
        raise RequestError(
            f"Inside the calling process there is no {', '.join(wrong)}; give the model as a reference, "
            "such as torch:file.py:factory, to run it in separate processes."
        )


def judge_result(result: Result, constraints: tuple[Constraint, ...]) -> JudgedResult:
    """Judge a Result by constraints, and add the doubts that arise only from claims.

    Constraints on metrics that a failed or interrupted run lacks are left out.
    """
    cut_short = bool(result.failures) or result.interrupted
    applicable = [c for c in constraints if not cut_short or result.find(c.query.metric, c.query.scope)]
    judgements = tuple(result.judge(c) for c in applicable)
    observed = [str(j.constraint.query) for j in judgements if j.answer.observed]
    all_exact = judgements and all(j.answer.exact for j in judgements)
    claims = () if all_exact or not judgements else doubt.process_count_doubts(result.processes, claimed=True)
    new_doubts = (*claims, *doubt.observation_doubts(observed))
    return JudgedResult(
        result=replace(result, doubts=tuple(dict.fromkeys((*result.doubts, *new_doubts)))),
        judgements=judgements,
    )


def run_replicated(execute: Executor, job: Job, *, watch: Callable[[Event], None]) -> Result:
    """Run the Job in as many processes as its Plan asks for, one after another, and pool the Results.

    A failure or an interruption ends the repetition: what fails once would fail again.
    """
    results: list[Result] = []
    for number in range(1, job.plan.processes + 1):
        if job.plan.processes > 1:
            watch(Progressed(stage=f"process {number} of {job.plan.processes}"))
        results.append(execute(job, watch=watch))
        if results[-1].failures or results[-1].interrupted:
            break
    pooled = merge(results)
    doubts = (*pooled.doubts, *_process_doubts(results, job.plan.processes), *_pass_doubts(pooled))
    return replace(pooled, doubts=doubts)


def _pass_doubts(result: Result) -> tuple[Doubt, ...]:
    """Return the doubts about passes of one run that contradict each other."""
    measured, rate = result.find("latency"), result.number("batch_rate")
    if measured is None or not isinstance(measured.value, Distribution):
        return ()
    latency, layers = measured.value, _layer_time(result)
    doubts = [] if rate is None else [*doubt.rate_doubts(latency.statistic("mean"), rate)]
    if layers is not None and (ends := latency.interval("p50")) is not None:
        doubts += doubt.layer_time_doubts(layers, ends.low, ends.high)
    return tuple(doubts)


def _layer_time(result: Result) -> float | None:
    """Return the seconds of a call as the sum of its layers: the mean in the middle half, as in their table.

    None if there are no layers, or a doubt says already that they do not add up.
    """
    if {"parts-differ", HOST_TIMES} & {raised.code for raised in result.doubts}:
        return None
    owns = [
        m.value.samples()
        for m in result.measurements
        if m.metric == "self_time" and isinstance(m.value, Distribution)
    ]
    calls = max(map(len, owns), default=0)  # a layer that one of several processes did not call has fewer
    whole = [own for own in owns if len(own) == calls]
    totals = sorted(map(fsum, zip(*whole, strict=True)))
    return fmean(totals[calls // 4 : calls - calls // 4]) if calls else None


def _process_doubts(results: list[Result], requested: int) -> tuple[Doubt, ...]:
    succeeded = [result for result in results if not result.failures]
    doubts = list(doubt.process_count_doubts(len(succeeded), claimed=False))
    if 0 < len(succeeded) < requested and results[-1].failures:
        doubts.append(
            Doubt(
                code="process-failed",
                seen=f"{len(succeeded)} of {requested} processes succeeded, then one failed",
                advice="look at the failure; the numbers come from the processes before it",
            )
        )
    return tuple(doubts)

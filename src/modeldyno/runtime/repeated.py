"""Run the same Job in several fresh processes and pool their Results."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.metrics import doubt
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.result.result import Progressed, merge

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.result.result import Event, Result
    from modeldyno.core.spec.job import Job
    from modeldyno.interfaces.executor import Executor


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
    doubts = (*pooled.doubts, *_process_doubts(results, job.plan.processes), *_rate_doubts(pooled))
    return replace(pooled, doubts=doubts)


def _rate_doubts(result: Result) -> tuple[Doubt, ...]:
    latency, rate = result.find("latency"), result.find("batch_rate")
    if latency is None or rate is None or not isinstance(latency.value, Distribution):
        return ()
    assert not isinstance(rate.value, Distribution)
    return tuple(doubt.rate_doubts(latency.value.statistic("mean"), rate.value))


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

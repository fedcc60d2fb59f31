"""Run a Job in the calling process: for debuggers, notebooks and live objects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.engine.runtime.engine import needs_session, run
from modeldyno.engine.runtime.interrupts import counted_interrupts
from modeldyno.engine.runtime.measuring_turn import MEASURING

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event, Result
    from modeldyno.engine.runtime.time_limit import TimeLimit

NOT_ISOLATED = Doubt(
    code="not-isolated",
    seen="the model ran inside the calling process and shared its threads, memory and garbage collector",
    advice="give the model as a reference, such as torch:file.py:factory, to run it in a separate process",
)


def run_inline(
    job: Job, *, watch: Callable[[Event], None] = lambda _event: None, limit: TimeLimit | None = None
) -> Result:
    """Run a Job in this process; a crash of the model crashes the caller.

    Of several threads one runs at a time.
    The first Ctrl-C finishes the current measurement; the second raises KeyboardInterrupt.
    Less is measured to keep a `limit`, but a call that takes longer is not ended.
    """
    with MEASURING, counted_interrupts(patience=1) as interrupts:
        result = run(job, interrupted=lambda: bool(interrupts), watch=watch, limit=limit)
    already_doubted = any(doubt.code == NOT_ISOLATED.code for doubt in result.doubts)
    if already_doubted or not needs_session(job.probes):  # a model that is only inspected does not run
        return result
    return replace(result, doubts=(*result.doubts, NOT_ISOLATED))

"""The probe ``latency``: seconds of one call with the whole batch, in the steady state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.adapters.probes import timing_loop
from modeldyno.adapters.probes.leak_watch import LeakWatch
from modeldyno.core.metrics.measurement import Measurement
from modeldyno.interfaces.probe import Pass
from modeldyno.interfaces.session import CanCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.metrics.doubt import Doubt
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.interfaces.probe import Subject

needs = CanCall
pass_ = Pass.TIMED


def measure(subject: Subject, plan: Plan) -> Iterator[Measurement | Doubt]:
    """Warm up, measure until the plan is met, and yield the latency with its doubts."""
    calls = subject.calls
    watch = LeakWatch(draw=timing_loop.time_each_call(calls))
    paced = timing_loop.measure_timed_pass(subject, plan, watch.draw_and_read, "latency", warming=calls[0])
    yield Measurement(metric="latency", value=timing_loop.distribution(paced))
    yield from timing_loop.steady_state_doubts("latency", paced, plan)
    if not subject.interrupted():
        yield from watch.doubts(paced.warmup_runs)

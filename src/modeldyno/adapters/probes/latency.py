"""The probe ``latency``: seconds of one call with the whole batch, in the steady state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.adapters.probes import timing_loop
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
    paced = timing_loop.measure_timed_pass(
        subject, plan, timing_loop.time_each_call(calls), "latency", warming=calls[0]
    )
    times = timing_loop.distribution(paced)
    yield Measurement(metric="latency", value=times)
    yield from timing_loop.steady_state_doubts("latency", paced, times, plan)

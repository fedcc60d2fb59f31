"""The probe ``latency``: seconds of one call with the whole batch, in the steady state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import Measurement
from modeldyno.engine.interfaces.probe import Pass
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.engine.probes import timing_loop
from modeldyno.engine.probes.checked_pass import measure_checked_pass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.base.metrics.measurement import Distribution
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.engine.interfaces.probe import ProbeContext

needs = LocalSession
pass_ = Pass.TIMED


def measure(subject: ProbeContext, plan: Plan) -> Iterator[Measurement | Doubt]:
    """Warm up, measure until the plan is met, and yield the latency, its doubts and those of its calls."""
    plain = timing_loop.time_each_call(subject.calls)
    yield from measure_checked_pass(subject, plan, plain, "latency", _latency)


def _latency(times: Distribution) -> Iterator[Measurement]:
    yield Measurement(metric="latency", value=times)

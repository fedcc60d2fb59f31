"""The probe ``latency``: seconds of one call of the whole batch in the steady state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.measurement import Measurement
from modeldyno.ports import CanCall, Pass
from modeldyno.probes import timer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.doubt import Doubt
    from modeldyno.core.plan import Plan
    from modeldyno.ports import Subject

needs = CanCall
pass_ = Pass.TIMED


def measure(subject: Subject, plan: Plan) -> Iterator[Measurement | Doubt]:
    """Warm up, measure until the plan is met, and say what is doubtful about it."""
    calls = subject.calls
    paced = timer.paced(subject, plan, timer.each(calls), "latency", warming=calls[0])
    yield Measurement(metric="latency", value=timer.distribution(paced))
    yield from timer.doubts_of("latency", paced, plan)

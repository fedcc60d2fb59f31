"""The probe ``throughput``: samples per second of back-to-back calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.adapters.probes import timing_loop
from modeldyno.core.metrics.measurement import ratio_number
from modeldyno.interfaces.probe import Pass
from modeldyno.interfaces.session import CanCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.metrics.doubt import Doubt
    from modeldyno.core.metrics.measurement import Measurement
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.interfaces.probe import Subject

needs = CanCall
pass_ = Pass.TIMED
BLOCK = 0.01
"""Minimum seconds of a timed block of short calls."""


def measure(subject: Subject, plan: Plan) -> Iterator[Measurement | Doubt]:
    """Time blocks of calls until the mean reaches the plan's precision; yield its inverse."""
    mean_plan = replace(plan, target="mean", percentiles=())
    calls = subject.calls
    paced = timing_loop.measure_timed_pass(
        subject, mean_plan, timing_loop.time_call_blocks(calls, BLOCK), "throughput", warming=calls[0]
    )
    blocks = len(paced.samples)
    yield ratio_number("throughput", (subject.samples,) * blocks, paced.samples)
    yield ratio_number("batch_rate", (1,) * blocks, paced.samples)
    yield from timing_loop.steady_state_doubts("throughput", paced, mean_plan)

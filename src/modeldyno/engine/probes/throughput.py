"""The probe ``throughput``: samples per second of back-to-back calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import Distribution, ratio_number
from modeldyno.base.stats import statistics
from modeldyno.engine.interfaces.probe import NoTurns, Pass
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.engine.probes import timing_loop
from modeldyno.engine.probes.checked_pass import measure_checked_pass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.base.stats.statistics import Samples
    from modeldyno.engine.interfaces.probe import ProbeContext

needs = LocalSession
pass_ = Pass.TIMED
BLOCK = 0.01
"""Minimum seconds of a timed block of short calls."""


def measure(subject: ProbeContext, plan: Plan) -> Iterator[Measurement | Doubt]:
    """Time blocks of calls until the mean reaches the plan's precision; yield its inverse.

    Of a model whose call is a block of its own, the calls of `latency` are the same, and are not made again.
    Where there are none of `latency`, which are checked, these are.
    """
    if (taken := _calls_of_latency(subject, plan)) is not None:
        yield from _rates(subject, taken)
        return
    mean_plan = replace(plan, target="mean", percentiles=())
    calls = subject.calls
    draw = timing_loop.time_call_blocks(calls, BLOCK)
    if not any(m.metric == "latency" for m in subject.known):
        yield from measure_checked_pass(
            subject, mean_plan, draw, "throughput", lambda times: _rates(subject, times.samples())
        )
        return
    paced = timing_loop.measure_timed_pass(subject, mean_plan, draw, "throughput", warming=calls[0])
    yield from _rates(subject, paced.samples)
    yield from timing_loop.steady_state_doubts(
        "throughput", paced, timing_loop.distribution(paced), mean_plan
    )


def _calls_of_latency(subject: ProbeContext, plan: Plan) -> Samples | None:
    """Return the times of the calls that were made for `latency`, if blocks of calls would be no others.

    That is so where each call took as long as a block, no other process takes turns, and their mean is as
    precise as the plan wants it.
    """
    latency = next((m.value for m in subject.known if (m.metric, m.scope) == ("latency", "")), None)
    if not isinstance(latency, Distribution) or latency.void or not isinstance(subject.turns, NoTurns):
        return None
    samples = latency.samples()
    if len(samples) < plan.min_runs or samples.min() < BLOCK:
        return None
    low, high = statistics.mean_interval(samples)
    return samples if high - low <= 2 * plan.precision * float(samples.mean()) else None


def _rates(subject: ProbeContext, samples: Samples) -> Iterator[Measurement]:
    blocks = len(samples)
    yield ratio_number("throughput", (subject.samples,) * blocks, samples)
    yield ratio_number("batch_rate", (1,) * blocks, samples)

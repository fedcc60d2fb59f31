"""The probe ``throughput``: samples per second when calls are made back to back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core import statistics
from modeldyno.core.measurement import Interval, Measurement, observed
from modeldyno.ports import CanCall, Pass
from modeldyno.probes import timer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.doubt import Doubt
    from modeldyno.core.plan import Plan
    from modeldyno.ports import Subject

needs = CanCall
pass_ = Pass.TIMED
BLOCK = 0.01
"""Seconds that one timed block of short calls takes at least."""


def measure(subject: Subject, plan: Plan) -> Iterator[Measurement | Doubt]:
    """Time blocks of calls until the mean is known to the plan's precision; invert it."""
    mean_plan = replace(plan, target="mean", percentiles=())
    calls = subject.calls
    paced = timer.paced(subject, mean_plan, timer.in_blocks(calls, BLOCK), "throughput", warming=calls[0])
    mean = float(paced.samples.mean())
    low, high = statistics.mean_interval(paced.samples)
    yield _rate("throughput", subject.samples, mean, low, high)
    yield _rate("batch_rate", 1, mean, low, high)
    yield from timer.doubts_of("throughput", paced, mean_plan)


def _rate(metric: str, samples: int, mean: float, low: float, high: float) -> Measurement:
    interval = Interval(low=samples / high, high=samples / low if low > 0 else float("inf"))
    return observed(metric, samples / mean, interval=interval)

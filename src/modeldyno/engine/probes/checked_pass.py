"""A pass of timed calls whose speed is checked, and of which it is watched what they leave behind."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from modeldyno.base.job.devices import is_cpu
from modeldyno.base.metrics import call_checks
from modeldyno.engine.environment.machine import allowed_cores
from modeldyno.engine.environment.peaks import local_device
from modeldyno.engine.probes import timing_loop
from modeldyno.engine.probes.checked_calls import CheckedCalls
from modeldyno.engine.probes.leak_watch import LeakWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.base.metrics.measurement import Distribution, Measurement
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.base.stats.statistics import Samples
    from modeldyno.engine.interfaces.probe import ProbeContext


def measure_checked_pass(
    subject: ProbeContext,
    plan: Plan,
    draw: Callable[[int], Samples],
    metric: str,
    figures: Callable[[Distribution], Iterator[Measurement]],
) -> Iterator[Measurement | Doubt]:
    """Warm up, measure until the plan is met, and yield the figures, their doubts and those of the calls.

    Args:
        subject: the model.
        plan: how long, and how precisely.
        draw: makes n plain calls, or blocks of them; seconds per call.
        metric: what is measured.
        figures: makes the figures of the times.
    """
    watch = LeakWatch(draw=draw)
    with CheckedCalls(subject=subject, draw=draw) as checked:
        paced = timing_loop.measure_timed_pass(
            subject, plan, watch.watched(checked.times), metric, warming=subject.calls[0]
        )
        times = timing_loop.distribution(paced)
        median = times.statistic("p50")
        doubts = (*checked.doubts(median), *_rate_doubts(subject, median))
        yield from figures(times)
        yield from doubts
        yield from timing_loop.steady_state_doubts(metric, paced, times, plan)
        if not subject.interrupted():
            yield from watch.doubts(paced.warmup_runs)


def _rate_doubts(subject: ProbeContext, median: float) -> Iterator[Doubt]:
    """Yield a doubt if the counted operations could not be done in the time of a call."""
    flops = next((m.value for m in subject.known if (m.metric, m.scope) == ("flops", "")), None)
    if isinstance(flops, int | float):
        yield from call_checks.beyond_peak(
            float(flops), median, len(allowed_cores()), partial(_measured_peak, subject.device())
        )


def _measured_peak(device: str) -> float | None:
    """Return the float32 peak of the device in operations per second; None if it cannot be measured."""
    if is_cpu(device):
        return local_device().flops.get(_DTYPE)
    from modeldyno.engine.environment.accelerator_peaks import accelerator_peaks  # only where one is

    measured = accelerator_peaks(_DTYPE, device)
    return None if measured is None else measured.flops.get(_DTYPE)


_DTYPE = "float32"

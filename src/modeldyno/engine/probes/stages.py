"""The probe ``stages``: seconds of a call end to end, and of each of its stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any, cast

from modeldyno.base.clock import perf_counter_ns
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.metrics.metric import END_TO_END, CallStage
from modeldyno.engine.interfaces.probe import Pass
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.engine.probes import timing_loop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.base.stats.statistics import Samples
    from modeldyno.engine.interfaces.probe import ProbeContext

needs = LocalSession
pass_ = Pass.TIMED
_WHOLE = "the call end to end"
Step = Callable[[Any], Any]
"""Does a stage with what the one before it returned."""


def check(subject: ProbeContext) -> None:
    """Make a call end to end, so that a function that fails does so before anything is measured."""
    for source, steps in _calls(subject)[:1]:
        value = source
        for step in steps.values():
            value = step(value)


def measure(subject: ProbeContext, plan: Plan) -> Iterator[Measurement | Doubt]:
    """Warm up, then time calls until the plan is met; the stage times are of the same calls."""
    calls = _calls(subject)
    stages: dict[str, list[int]] = {name: [] for name in calls[0][1]}
    paced = timing_loop.measure_timed_pass(
        subject, plan, _time_calls(calls, stages), _WHOLE, warming=partial(check, subject)
    )
    times = timing_loop.distribution(paced)
    yield Measurement(metric="latency", value=times, scope=END_TO_END)
    for name, nanoseconds in stages.items():
        steady = replace(paced, samples=_seconds(nanoseconds[-len(paced.samples) :]))
        yield Measurement(metric="latency", value=timing_loop.distribution(steady), scope=name)
    yield from timing_loop.steady_state_doubts(_WHOLE, paced, times, replace(plan, percentiles=()))


def _calls(subject: ProbeContext) -> tuple[tuple[Any, Mapping[str, Step]], ...]:
    """Return what each distinct call begins with, and its steps by stage."""
    session = cast("LocalSession", subject.session)
    own: dict[str, Step] = {
        CallStage.COPY: session.prepare,
        CallStage.COMPUTE: _run,
        CallStage.COPY_BACK: session.arrays,
    }
    if subject.postprocess is not None:
        own[CallStage.POSTPROCESS] = subject.postprocess
    if subject.preprocess:
        return tuple((make, {CallStage.PREPROCESS: _run, **own}) for make in subject.preprocess)
    return tuple((feed, own) for feed in subject.feeds)


def _run(call: Callable[[], Any]) -> Any:
    return call()


def _time_calls(
    calls: tuple[tuple[Any, Mapping[str, Step]], ...], stages: dict[str, list[int]]
) -> Callable[[int], Samples]:
    """Return a function that times n calls one by one, and appends the nanoseconds of their stages."""
    endless = cycle([(source, tuple(steps.values())) for source, steps in calls])
    records = tuple(stages.values())

    def draw(n: int) -> Samples:
        totals, clock = [], perf_counter_ns
        for _, (value, steps) in zip(range(n), endless, strict=False):
            stamps = [clock()]
            for step in steps:
                value = step(value)  # noqa: PLW2901 - each stage continues with what the last one returned
                stamps.append(clock())
            for record, begin, end in zip(records, stamps, stamps[1:], strict=False):
                record.append(end - begin)
            totals.append(stamps[-1] - stamps[0])
        return _seconds(totals)

    return draw


def _seconds(nanoseconds: list[int]) -> Samples:
    import numpy as np  # slow to import

    return np.array(nanoseconds, dtype=np.float64) * 1e-9

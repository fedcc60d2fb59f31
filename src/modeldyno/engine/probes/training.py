"""The probe ``training``: seconds of a training step in the steady state, and of each of its stages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.clock import perf_counter_ns
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.engine.interfaces.probe import Pass
from modeldyno.engine.interfaces.session import CanTrain
from modeldyno.engine.probes import timing_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.base.stats.statistics import Samples
    from modeldyno.engine.interfaces.probe import ProbeContext
    from modeldyno.engine.interfaces.session import Training

needs = CanTrain
pass_ = Pass.TIMED
Stages = defaultdict[str, list[float]]
"""Stage to its seconds in each step so far."""


def measure(subject: ProbeContext, plan: Plan) -> Iterator[Measurement | Doubt]:
    """Warm up, then time steps until the plan is met; the stage times are of the same steps."""
    session: object = subject.session  # whose type does not show all of its capabilities
    assert isinstance(session, CanTrain)
    stages: Stages = defaultdict(list)
    with session.training(subject.feeds, subject.inspection.optimizer) as training:
        paced = timing_loop.measure_timed_pass(subject, plan, _time_steps(training, stages), "step_time")
    times = timing_loop.distribution(paced)
    yield Measurement(metric="step_time", value=times)
    for name, seconds in stages.items():
        steady = replace(paced, samples=_array(seconds[-len(paced.samples) :]))
        yield Measurement(metric="step_time", value=timing_loop.distribution(steady), scope=name)
    yield from timing_loop.steady_state_doubts("step_time", paced, times, plan)


def _time_steps(training: Training, stages: Stages) -> Callable[[int], Samples]:
    """Return a function that times n steps one by one and appends their stage times; seconds."""

    def draw(n: int) -> Samples:
        return _array([_time_step(training, stages) for _ in range(n)])

    return draw


def _time_step(training: Training, stages: Stages) -> float:
    begin = perf_counter_ns()
    stage_seconds = training.step()
    total = (perf_counter_ns() - begin) * 1e-9
    for name, seconds in stage_seconds.items():
        stages[name].append(seconds)
    return total


def _array(seconds: list[float]) -> Samples:
    import numpy as np  # slow to import

    return np.array(seconds)

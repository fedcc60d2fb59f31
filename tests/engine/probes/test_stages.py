"""The probe ``stages`` on a session in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import END_TO_END, CallStage
from modeldyno.engine.interfaces import probe as probe_interfaces
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.engine.probes import stages
from modeldyno.testing.fakes import a_model
from modeldyno.testing.known_latency import KnownLatency
from modeldyno.testing.probes import ProbeSuite

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.models.interface import Feed

FEED: Feed = {"x": np.ones((2, 3), "float32")}
SECONDS = {
    CallStage.PREPROCESS: 4.0,
    CallStage.COPY: 0.5,
    CallStage.COMPUTE: 8.0,
    CallStage.COPY_BACK: 0.25,
    CallStage.POSTPROCESS: 2.0,
}


@dataclass
class Pipeline(LocalSession):
    """A session and the user's functions, each of which takes its known time; slow at first."""

    now: float = 0.0
    calls: int = 0
    spin: KnownLatency | None = None
    taken: list[Any] = field(default_factory=list)

    def take(self, stage: CallStage) -> None:
        """Let the time of a stage pass."""
        if self.spin is not None:
            self.spin()
        self.now += SECONDS[stage] * (10 if self.calls < 3 else 1)

    def make(self) -> Feed:
        """Make the inputs of raw data."""
        self.take(CallStage.PREPROCESS)
        return FEED

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Copy the inputs."""
        self.take(CallStage.COPY)
        return partial(self.run, feed)

    def run(self, feed: Feed) -> Any:
        """Double them."""
        self.take(CallStage.COMPUTE)
        return 2 * feed["x"]

    def arrays(self, output: Any) -> Feed:
        """Copy the outputs."""
        self.take(CallStage.COPY_BACK)
        return {"y": output}

    def finish(self, outputs: Feed) -> None:
        """Take the outputs."""
        self.take(CallStage.POSTPROCESS)
        self.taken.append(outputs)
        self.calls += 1

    def subject(self, **changes: Any) -> ProbeContext:
        """Return what is measured."""
        functions = {"preprocess": (self.make,), "postprocess": self.finish, **changes}
        return ProbeContext(model=a_model(), session=self, calls=(lambda: None,), feeds=(FEED,), **functions)


class TestSuite(ProbeSuite):
    name = "stages"

    @pytest.fixture
    def subject(self) -> ProbeContext:
        """Stages of a fraction of a millisecond."""
        return Pipeline(spin=KnownLatency(0.0002)).subject()


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline whose own time is all that passes."""
    made = Pipeline()
    monkeypatch.setattr("modeldyno.base.clock.system_seconds", lambda: 0.0)
    monkeypatch.setattr(probe_interfaces, "perf_counter", lambda: made.now)
    monkeypatch.setattr(stages, "perf_counter_ns", lambda: round(made.now * 1e9))
    return made


def measured(subject: ProbeContext, plan: Plan) -> dict[str, Distribution]:
    """Return the latency by scope."""
    latencies = [each for each in stages.measure(subject, plan) if isinstance(each, Measurement)]
    assert {each.metric for each in latencies} == {"latency"}
    return {each.scope: each.value for each in latencies if isinstance(each.value, Distribution)}


def test_each_stage_and_the_whole_are_those_of_the_same_steady_calls(pipeline: Pipeline) -> None:
    """The slow calls at the beginning are warm-up, and every call is the sum of its stages."""
    by_scope = measured(pipeline.subject(), Plan(min_runs=20, max_time=4000))

    assert list(by_scope) == [END_TO_END, *CallStage]
    for scope, seconds in ((END_TO_END, sum(SECONDS.values())), *SECONDS.items()):
        value = by_scope[scope]
        assert list(value.samples()) == pytest.approx([seconds] * len(by_scope[END_TO_END]))
        assert value.warmup_dropped >= 3
    assert np.array_equal(pipeline.taken[-1]["y"], 2 * FEED["x"])


def test_a_stage_without_a_function_is_left_out(pipeline: Pipeline) -> None:
    """Then a call begins with the inputs of the model, and ends with its outputs on the host."""
    pipeline.calls = 3
    by_scope = measured(pipeline.subject(preprocess=(), postprocess=None), Plan(min_runs=20, max_time=4000))

    assert list(by_scope) == [END_TO_END, CallStage.COPY, CallStage.COMPUTE, CallStage.COPY_BACK]
    assert by_scope[END_TO_END].statistic("p50") == pytest.approx(8.75)


def test_a_function_that_fails_does_so_before_anything_is_measured(pipeline: Pipeline) -> None:
    """The check makes one call from end to end."""
    stages.check(pipeline.subject())
    assert pipeline.calls == 1
    with pytest.raises(ZeroDivisionError):
        stages.check(pipeline.subject(postprocess=lambda _: 1 / 0))


def test_an_interrupted_run_keeps_its_calls(pipeline: Pipeline) -> None:
    """And is doubted, as one of the whole call."""
    subject = pipeline.subject(interrupted=lambda: pipeline.calls > 40)
    yielded = list(stages.measure(subject, Plan(max_time=1e6, min_runs=1000)))

    assert any(isinstance(each, Doubt) and each.code == "interrupted" for each in yielded)
    assert not any(isinstance(each, Doubt) and each.seen.startswith("latency") for each in yielded)

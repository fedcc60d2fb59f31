"""The probe ``training`` on a trainer in virtual time."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.job.static_options import Mode, StaticOptions
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Progressed
from modeldyno.engine.interfaces import probe as probe_interfaces
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.interfaces.session import CanTrain, LocalSession
from modeldyno.engine.probes import training
from modeldyno.testing.fakes import a_model
from modeldyno.testing.known_latency import KnownLatency
from modeldyno.testing.probes import ProbeSuite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modeldyno.engine.trace.allocations import AllocationRecord
    from modeldyno.models.interface import Feed

FEED: Feed = {"x": np.zeros((2, 3), "float32")}
STAGES = {"forward": 1.0, "backward": 2.0, "optimizer": 0.5}


@dataclass
class Trainer(LocalSession):
    """Steps of three and a half seconds and a half second between the stages; slow at first."""

    spin: KnownLatency | None = None
    now: float = 0.0
    steps: int = 0
    arguments: tuple[Any, ...] = ()
    entered: bool = False

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Give something to call."""
        del feed
        return lambda: None

    def arrays(self, output: Any) -> Feed:
        """Nothing."""
        del output
        return {}

    @contextmanager
    def training(self, feeds: Sequence[Feed], optimizer: str) -> Iterator[Trainer]:
        """Train."""
        self.arguments, self.entered = (feeds, optimizer), True
        yield self
        self.entered = False

    def step(self) -> Mapping[str, float]:
        """Make a step."""
        assert self.entered
        self.steps += 1
        factor = 10 if self.steps <= 2 else 1
        if self.spin is not None:
            self.spin()
        self.now += factor * (sum(STAGES.values()) + 0.5)
        return {name: factor * seconds for name, seconds in STAGES.items()}

    def watched(self) -> AllocationRecord:
        """Not asked for."""
        raise NotImplementedError


class TestSuite(ProbeSuite):
    name = "training"

    @pytest.fixture
    def subject(self) -> ProbeContext:
        """Steps of a millisecond."""
        session = Trainer(spin=KnownLatency(0.001))
        return ProbeContext(model=a_model(), session=session, feeds=(FEED,), calls=(lambda: None,))


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    """A trainer whose own time is all that passes."""
    made = Trainer()
    monkeypatch.setattr("modeldyno.base.clock.system_seconds", lambda: 0.0)
    monkeypatch.setattr(probe_interfaces, "perf_counter", lambda: made.now)
    monkeypatch.setattr(training, "perf_counter_ns", lambda: round(made.now * 1e9))
    return made


def test_a_trainer_can_train() -> None:
    """The fake has the capability."""
    assert isinstance(Trainer(), CanTrain)


def test_the_steady_steps_are_timed_with_their_stages(trainer: Trainer) -> None:
    """The slow ones at the beginning are warm-up, of the whole and of each stage alike."""
    events: list[Any] = []
    subject = ProbeContext(
        model=a_model(),
        session=trainer,
        feeds=(FEED,),
        inspection=StaticOptions(mode=Mode.TRAIN, optimizer="adam"),
        watch=events.append,
    )
    measurements = [
        m for m in training.measure(subject, Plan(min_runs=20, max_time=2000)) if isinstance(m, Measurement)
    ]
    by_scope = {m.scope: m.value for m in measurements if m.metric == "step_time"}

    assert trainer.arguments == ((FEED,), "adam")
    assert not trainer.entered
    assert list(by_scope) == ["", *STAGES]
    for name, seconds in {"": sum(STAGES.values()) + 0.5, **STAGES}.items():
        value = by_scope[name]
        assert isinstance(value, Distribution)
        assert len(value) == len(by_scope[""])  # type: ignore[arg-type]
        assert list(value.samples()) == pytest.approx([seconds] * len(value))
        assert value.warmup_dropped >= 2
    assert any(isinstance(event, Progressed) and event.stage == "step_time: steady" for event in events)


def test_an_interrupted_run_keeps_its_steps(trainer: Trainer) -> None:
    """And is doubted."""
    subject = ProbeContext(
        model=a_model(), session=trainer, feeds=(FEED,), interrupted=lambda: trainer.steps > 40
    )
    yielded = list(training.measure(subject, Plan(max_time=1e6, min_runs=1000)))
    assert "interrupted" in {getattr(each, "code", "") for each in yielded}
    assert all(m.value.stop == "interrupted" for m in yielded if isinstance(m, Measurement))  # type: ignore[union-attr]

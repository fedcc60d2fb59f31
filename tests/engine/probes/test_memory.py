"""The probe ``memory`` on sessions whose allocators follow a script."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.job.static_options import Mode, StaticOptions
from modeldyno.base.metrics.doubt import CODES, Doubt
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Progressed
from modeldyno.base.result.static_data import MemoryItem
from modeldyno.base.result.trace_data import TraceReport
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.interfaces.session import CanTrain, HasMemory, LocalSession
from modeldyno.engine.probes import memory
from modeldyno.engine.trace.allocations import AllocationEvent, AllocationRecord, CategorizedMemory
from modeldyno.engine.trace.memory_category import Category
from modeldyno.testing.fakes import a_model
from modeldyno.testing.probes import ProbeSuite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modeldyno.models.interface import Feed

FEED: Feed = {"x": np.zeros((2, 3), "float32")}
PLAN = Plan(max_time=60.0)
STATE = MemoryItem(scope="fc", role=Category.OPTIMIZER, bytes=16)


@dataclass
class Plain(LocalSession):
    """A session that only calls."""

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Give something to call."""
        del feed
        return lambda: None

    def arrays(self, output: Any) -> Feed:
        """Nothing."""
        del output
        return {}


@dataclass
class Watched(Plain):
    """A session whose every call leaves so many bytes behind."""

    leaves: int = 0
    calls: list[AllocationRecord] = field(default_factory=list)
    entered: int = 0

    @contextmanager
    def allocations(self, feed: Feed) -> Iterator[Callable[[], AllocationRecord]]:
        """Watch."""
        assert feed is FEED
        self.entered += 1
        yield self.watched
        self.entered -= 1

    def watched(self) -> AllocationRecord:
        """Make a call that takes 100 bytes."""
        events = [AllocationEvent(0.1, 0, 100, "fc"), AllocationEvent(0.2, 0, -100)]
        if self.leaves:
            events.append(AllocationEvent(0.3, 1 + len(self.calls), self.leaves, "kept"))
        self.calls.append(AllocationRecord(events=tuple(events), seconds=1.0))
        return self.calls[-1]


@dataclass
class Trained(Watched):
    """A session that trains, too."""

    optimizer: str = ""

    @contextmanager
    def training(self, feeds: Sequence[Feed], optimizer: str) -> Iterator[Trained]:
        """Train."""
        assert feeds == (FEED,)
        self.optimizer = optimizer
        yield self

    def step(self) -> Mapping[str, float]:
        """Make a step in no time."""
        return {}

    def watched(self) -> AllocationRecord:
        """Take 8 bytes that turn out to be gradients, and find the optimiser's state."""
        self.calls.append(
            AllocationRecord(
                events=(AllocationEvent(0.1, 0, 8, "fc"), AllocationEvent(0.7, 0, -8)),
                seconds=1.0,
                before=(STATE,),
                stages={"forward": (0.0, 0.1), "backward": (0.1, 0.5), "optimizer": (0.5, 1.0)},
                named=(CategorizedMemory(time=0.5, category=Category.GRADIENTS, addresses=frozenset({0})),),
            )
        )
        return self.calls[-1]


def measured(session: LocalSession, **more: Any) -> list[Any]:
    subject = ProbeContext(model=a_model(), session=session, feeds=(FEED,), calls=(lambda: None,), **more)
    return list(memory.measure(subject, PLAN))


def numbers(yielded: list[Any]) -> dict[tuple[str, str], Any]:
    return {(m.metric, m.scope): m.value for m in yielded if isinstance(m, Measurement)}


class TestSuite(ProbeSuite):
    name = "memory"

    @pytest.fixture
    def subject(self) -> ProbeContext:
        """A session that tells its allocations."""
        return ProbeContext(model=a_model(), session=Watched(leaves=4), feeds=(FEED,), calls=(lambda: None,))


def test_the_fakes_have_the_capabilities_that_the_probe_asks_for() -> None:
    """They are told apart by what they can do."""
    assert not isinstance(Plain(), HasMemory | CanTrain)
    assert isinstance(Watched(), HasMemory)
    assert isinstance(Trained(), CanTrain)


def test_the_peak_and_its_contents_are_told() -> None:
    """Of several calls of one payload; the watch ends with the probe."""
    session = Watched()
    yielded = measured(session)
    assert numbers(yielded) == {("allocated_peak", ""): 100, ("memory_growth", ""): 0}
    (activity,) = (each for each in yielded if isinstance(each, TraceReport))
    assert activity.held == (MemoryItem(scope="fc", role="activations", bytes=100),)
    assert (len(session.calls), session.entered) == (memory.CALLS, 0)


def test_what_calls_leave_behind_is_doubted() -> None:
    """Bytes a call, and the module."""
    yielded = measured(Watched(leaves=4))
    assert numbers(yielded)["memory_growth", ""] == 4
    (doubt,) = (each for each in yielded if isinstance(each, Doubt))
    assert doubt.code == "leak"
    assert "kept" in doubt.seen


def test_an_interruption_leaves_one_call() -> None:
    """Its peak is told; nothing is said of growth."""
    session = Watched()
    yielded = measured(session, interrupted=lambda: True)
    assert len(session.calls) == 1
    assert numbers(yielded) == {("allocated_peak", ""): 100}


def test_progress_is_told() -> None:
    """After every call."""
    events: list[Any] = []
    measured(Watched(), watch=events.append)
    assert [event.runs for event in events if isinstance(event, Progressed)] == list(range(1, memory.CALLS))


def test_a_training_step_has_peaks_by_stage_and_its_state() -> None:
    """Gradients and state as they were seen stand under another scope than those predicted."""
    session = Trained()
    yielded = measured(session, inspection=StaticOptions(mode=Mode.TRAIN, optimizer="sgd"))
    assert session.optimizer == "sgd"
    assert numbers(yielded) == {
        ("allocated_peak", ""): 8,
        ("allocated_peak", "forward"): 0,
        ("allocated_peak", "backward"): 8,
        ("allocated_peak", "optimizer"): 8,
        ("memory_growth", ""): 0,
        ("gradient_bytes", "measured"): 8,
        ("optimizer_bytes", "measured"): 16,
    }


@pytest.mark.parametrize(("session", "mode"), [(Plain(), Mode.INFERENCE), (Watched(), Mode.TRAIN)])
def test_a_backend_that_tells_nothing_leaves_the_process(session: LocalSession, mode: Mode) -> None:
    """It is said so, and no number is made up."""
    (doubt,) = measured(session, inspection=StaticOptions(mode=mode))
    assert doubt.code == "process-memory-only"
    assert doubt.code in CODES

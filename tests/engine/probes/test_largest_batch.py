"""The probe ``largest-batch`` on sessions that take so many bytes for each sample."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest

from modeldyno.base.errors import RequestError, is_out_of_memory
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.static_options import Mode, StaticOptions
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.static_data import MemoryItem
from modeldyno.engine.environment import machine
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.interfaces.session import HasMemory, LocalSession
from modeldyno.engine.probes import largest_batch
from modeldyno.engine.probes.largest_batch import BatchTrials, search_largest
from modeldyno.engine.trace.allocations import AllocationEvent, AllocationRecord
from modeldyno.engine.trace.memory_category import Category
from modeldyno.models.static.graph import Graph, Op, Role, Storage, Tensor
from modeldyno.testing.fakes import a_model
from modeldyno.testing.probes import ProbeSuite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modeldyno.models.interface import Feed, Tracing

MODEL = replace(a_model(), inputs=(InputSpec(name="x", shape=("batch", 4), dtype="float32"),))
WEIGHTS, SAMPLE = 1000, 100


@dataclass
class Session(LocalSession):
    """Weights of a kilobyte, and 100 bytes for each sample."""

    sizes: list[int] = field(default_factory=list)
    full: float = float("inf")

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Give something to call."""
        del feed
        return lambda: None

    def arrays(self, output: Any) -> Feed:
        """Nothing."""
        del output
        return {}

    @contextmanager
    def allocations(self, feed: Feed) -> Iterator[Callable[[], AllocationRecord]]:
        """Watch."""
        yield lambda: self.call(len(feed["x"]))

    def call(self, size: int) -> AllocationRecord:
        """Take the bytes of a batch."""
        self.sizes.append(size)
        if size * SAMPLE > self.full:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB.")
        before = (MemoryItem(scope="", role=Category.WEIGHTS, bytes=WEIGHTS),)
        return AllocationRecord(events=(AllocationEvent(0.1, 1, SAMPLE * size),), seconds=1.0, before=before)


@dataclass
class Device(Session):
    """The same on a device of its own."""

    def peak_reserved(self) -> int:
        """Nothing."""
        return 0


@dataclass
class Trained(Session):
    """The same, and steps that take ten times as much."""

    @contextmanager
    def training(self, feeds: Sequence[Feed], optimizer: str) -> Iterator[Trained]:
        """Train."""
        assert optimizer == "adamw"
        self.size = len(feeds[0]["x"])
        yield self

    def step(self) -> Mapping[str, float]:
        """Nothing."""
        return {}

    def watched(self) -> AllocationRecord:
        """Take ten times the bytes."""
        return self.call(10 * self.size)


def subject(session: Session, **more: Any) -> ProbeContext:
    feeds = ({"x": np.zeros((1, 4), "float32")},)
    return ProbeContext(model=MODEL, session=session, feeds=feeds, calls=(lambda: None,), **more)


def find_largest_batch(
    session: Session, plan: Plan | None = None, **more: Any
) -> tuple[float | None, list[Doubt]]:
    """Give the answer and the doubts."""
    yielded = list(largest_batch.measure(subject(session, **more), plan or Plan(max_time=60.0)))
    answers = [m.value for m in yielded if isinstance(m, Measurement)]
    assert all(
        (m.metric, m.scope) == ("largest_batch", "measured") for m in yielded if isinstance(m, Measurement)
    )
    return answers[0] if answers else None, [each for each in yielded if isinstance(each, Doubt)]  # type: ignore[return-value]


class TestSuite(ProbeSuite):
    name = "largest-batch"

    @pytest.fixture
    def subject(self) -> ProbeContext:
        """A session and a limit."""
        return subject(Session(), inspection=StaticOptions(memory=10_000))


def test_the_fakes_have_the_capabilities() -> None:
    """One of them has a device of its own."""
    assert isinstance(Session(), HasMemory)
    assert Session().peak_reserved() is None
    assert Device().peak_reserved() is not None


def analysable(tracing: Tracing) -> Graph:
    """The same network, as an analysis sees it."""
    batch = int(tracing.inputs[0].shape[0])  # type: ignore[index]
    storages = (Storage(WEIGHTS, Role.WEIGHT, -1), Storage(SAMPLE * batch, Role.ACTIVATION, 0))
    made = Tensor((batch,), "float32", storage=1)
    return Graph(ops=(Op("aten.relu", {}, (made,)),), storages=storages, sizes={"batch": batch})


def test_the_prediction_is_for_the_same_room() -> None:
    """What an analysis says of the bytes that were searched stands beside the answer, under their number."""
    model = replace(MODEL, graph=analysable)
    for graph_of, expected in ((model, [90.0]), (MODEL, []), (replace(model, graph=_unanalysable), [])):
        limited = replace(subject(Session(), inspection=StaticOptions(memory=10_000)), model=graph_of)
        yielded = list(largest_batch.measure(limited, Plan(max_time=60.0)))
        answers = {m.scope: m.value for m in yielded if isinstance(m, Measurement)}
        assert answers["measured"] == 90
        assert [value for scope, value in answers.items() if scope == "room=10000"] == expected


def _unanalysable(_tracing: Tracing) -> Graph:
    raise RuntimeError("no")


@pytest.mark.parametrize("answer", [0, 1, 2, 3, 7, 8, 9, 100, 999, 1000])
def test_the_search_finds_the_boundary(answer: int) -> None:
    """Wherever it lies, with its next neighbour; doubling first."""
    tried: list[int] = []

    def fit(size: int) -> bool:
        tried.append(size)
        return size <= answer

    good, bad = search_largest(fit, lambda good, bad: (good + bad) // 2, 1000)
    assert (good, bad) == (answer, answer + 1 if answer < 1000 else None)
    assert tried[:3] == [1, 2, 4][: len(tried)] or answer < 2
    assert len(tried) <= 22


def test_the_search_ends_where_nothing_more_is_tried() -> None:
    """What is known by then is the answer."""
    answers = chain([True, True, False], [None] * 9)
    assert search_largest(lambda _size: next(answers), lambda good, bad: (good + bad) // 2, 1000) == (2, 4)


def test_a_stated_limit_is_found_to_the_sample() -> None:
    """(10,050 - 1000) / 100 samples fit; no batch beyond the limit is ever tried."""
    session = Session()
    answer, doubts = find_largest_batch(session, inspection=StaticOptions(memory=10_050))
    assert (answer, doubts) == (90, [])
    assert max(session.sizes) == 90
    assert len(session.sizes) < 14


def test_a_device_says_itself_when_it_is_full() -> None:
    """Its error is caught, and the search goes on below."""
    session = Device(full=12_345)
    answer, doubts = find_largest_batch(session)
    assert (answer, doubts) == (123, [])
    assert max(session.sizes) == 128


def test_a_device_that_holds_nothing_has_no_answer() -> None:
    """There is no number where not even one sample runs, and a doubt says why."""
    answer, doubts = find_largest_batch(Device(full=10))

    assert answer is None
    assert ["it ran out of memory" in each.seen for each in doubts] == [True]


def test_another_error_is_no_answer() -> None:
    """It comes through."""

    class Broken(Device):
        def call(self, size: int) -> AllocationRecord:
            raise ZeroDivisionError(size)

    with pytest.raises(ZeroDivisionError):
        find_largest_batch(Broken())


def test_training_steps_are_tried_in_training() -> None:
    """They take ten times as much here."""
    inspection = StaticOptions(memory=10_050, mode=Mode.TRAIN)
    assert find_largest_batch(Trained(), inspection=inspection)[0] == 9
    with pytest.raises(RequestError, match="cannot train"):
        find_largest_batch(Session(), inspection=inspection)


def test_without_a_limit_the_host_is_not_tried() -> None:
    """The machine's memory is never spent."""
    session = Session()
    with pytest.raises(RequestError, match="`memory_limit=4GiB`"):
        find_largest_batch(session)
    assert session.sizes == []


def test_a_limit_of_the_process_counts_what_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights are in it already; the payload, and drawing it, takes its part."""
    used = psutil.Process().memory_info().rss
    process = SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=used))
    monkeypatch.setattr("psutil.Process", lambda: process)
    limit = round((used + 9000 - WEIGHTS) / 0.9) + 1
    assert find_largest_batch(Session(), plan=Plan(memory_limit=limit, max_time=60))[0] == 80
    with pytest.raises(RequestError, match="before any batch"):
        find_largest_batch(Session(), plan=Plan(memory_limit=used // 2))


def test_a_limit_beyond_the_machine_is_cut_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is stated, the machine has no more."""
    used = psutil.Process().memory_info().rss
    monkeypatch.setattr(machine, "memory_limit", lambda: used // 2)
    with pytest.raises(RequestError, match="before any batch"):
        find_largest_batch(Session(), inspection=StaticOptions(memory=10**15))


def test_when_the_time_is_up_the_search_says_so() -> None:
    """What ran so far is told, with a doubt."""
    session = Session()
    answer, doubts = find_largest_batch(
        session, inspection=StaticOptions(memory=10**6), interrupted=lambda: len(session.sizes) > 4
    )
    assert answer in {4, 8}
    assert [doubt.code for doubt in doubts] == ["time-limit"]


def test_what_a_batch_would_take_is_told_from_those_before() -> None:
    """One alone is scaled, two make a line; nothing is known before the first."""
    trials = BatchTrials(run=lambda size: 1000 + 100 * size, limit=10_000, time_is_up=lambda: False)
    assert trials.expected(8) == 0
    assert trials.fit(1)
    assert trials.expected(2) == 2200
    assert trials.fit(2)
    assert trials.expected(4) == 1400
    assert trials.between(2, 200) == 90
    assert not trials.fit(91)
    assert trials.totals == {1: 1100, 2: 1200}


@pytest.mark.parametrize(
    ("error", "spent"),
    [
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), True),
        (RuntimeError("CUDA out of memory."), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_errors_that_tell_of_spent_memory(error: Exception, *, spent: bool) -> None:
    """Those of the frameworks are known by their words."""
    assert is_out_of_memory(error) is spent


def test_a_batch_of_one_that_does_not_run_is_told() -> None:
    """Nothing fits: there is no answer, and the doubt says what one sample takes and what there is."""
    answer, doubts = find_largest_batch(Session(), inspection=StaticOptions(memory=WEIGHTS))

    assert answer is None
    assert [each.code for each in doubts] == ["largest-batch"]
    assert "it takes 1.07 KiB, and 1,000 B is available" in doubts[0].seen


def test_a_search_that_meets_no_limit_says_so() -> None:
    """The largest batch that is tried is not the largest that runs."""
    answer, doubts = find_largest_batch(Device())

    assert answer == largest_batch.MOST
    assert [each.code for each in doubts] == ["largest-batch"]

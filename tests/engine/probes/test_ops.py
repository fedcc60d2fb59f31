"""The probe ``ops``, on sessions that are made up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Artifact
from modeldyno.base.result.trace_data import RedundancyKind, TraceReport
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.engine.probes import ops
from modeldyno.engine.trace.dataflow import DataFlow, FlowStep, TensorView
from modeldyno.engine.trace.op_events import Occurrence, WatchedCalls
from modeldyno.testing.fakes import a_model
from modeldyno.testing.known_latency import KnownLatency
from modeldyno.testing.probes import ProbeSuite

if TYPE_CHECKING:
    from modeldyno.models.interface import Feed

FEED = {"x": np.zeros((1, 4))}
X = TensorView(storage=1, shape=(4,), strides=(1,), capacity=4, bytes=16)
CLONED = DataFlow(
    steps=(
        FlowStep(
            name="torch.Tensor.clone", scope="fc", inputs=(X,), outputs=(replace(X, storage=2),), time=0.5
        ),
        FlowStep(name="torch.Tensor.add", inputs=(replace(X, storage=2),), outputs=(replace(X, storage=3),)),
    ),
    given=frozenset({1}),
    outputs=frozenset({3}),
)


@dataclass
class Session(LocalSession):
    """Each of its calls takes two seconds, and runs as many operators as it is told."""

    events: int = 3
    hidden: bool = False
    seconds: float = 2.0
    requests: list[tuple[int, Path | None]] = field(default_factory=list)

    def prepare(self, feed: Feed) -> Any:
        """Not used."""
        raise NotImplementedError

    def arrays(self, output: Any) -> Any:
        """Not used."""
        raise NotImplementedError

    def operators(self, feed: Feed, calls: int, trace: Path | None) -> WatchedCalls:
        """Tell of operators, and write a trace."""
        assert feed is FEED
        self.requests.append((calls, trace))
        if trace is not None:
            trace.write_bytes(b"{}")
        occurrences = (Occurrence(name="mm", scope="fc", self_time=1.0, total_time=1.0),) * self.events
        return WatchedCalls(
            times=(self.seconds,) * calls, occurrences=occurrences * calls, hidden=self.hidden
        )


class Following(Session):
    """Follows data, too."""

    def flow(self, feed: Feed) -> DataFlow | None:
        """Give a call with a needless clone."""
        assert feed is FEED
        return CLONED


class Opaque(Session):
    """Its code is compiled."""

    def flow(self, _feed: Feed) -> DataFlow | None:
        """Give nothing."""
        return None


class Refusing(Session):
    """Does not bear to be followed."""

    def flow(self, _feed: Feed) -> DataFlow | None:
        """Raise what a framework may raise."""
        raise RuntimeError("no such dispatch")


def a_subject(session: Any, **changes: Any) -> ProbeContext:
    """Make a ProbeContext whose plain calls take a millisecond."""
    made = ProbeContext(model=a_model(), session=session, calls=(KnownLatency(0.001),), feeds=(FEED,))
    return replace(made, **changes)


def measured(session: Any, plan: Plan | None = None, **changes: Any) -> list[Any]:
    """Measure."""
    return list(ops.measure(a_subject(session, **changes), plan or Plan(max_time=200.0)))


def doubts(yielded: list[Any]) -> dict[str, str]:
    """Give what is doubted."""
    return {doubt.code: doubt.seen for doubt in yielded if isinstance(doubt, Doubt)}


class TestOps(ProbeSuite):
    name = "ops"

    @pytest.fixture
    def subject(self) -> ProbeContext:
        """Give a session with operators and a flow."""
        return a_subject(Following())


def test_operators_are_told_for_one_call_with_what_watching_costs() -> None:
    """Sums are those of one call; the overhead is that of watched calls over plain ones."""
    yielded = measured(Session())
    (activity,) = [each for each in yielded if isinstance(each, TraceReport)]
    overhead, *_ = [each for each in yielded if isinstance(each, Measurement)]

    assert [(row.name, row.scope, row.calls, row.self_time) for row in activity.executed] == [
        ("mm", "fc", 3.0, 3.0)
    ]
    assert (overhead.metric, overhead.scope) == ("pass_overhead", "ops")
    assert isinstance(overhead.value, float)
    assert 2 < overhead.value <= 2000
    assert doubts(yielded) == {}


def test_each_watched_call_is_divided_into_operators_and_the_time_outside() -> None:
    """Beside both are the calls without a profiler: their difference is what watching costs."""
    values = {each.metric: each.value for each in measured(Session()) if isinstance(each, Measurement)}
    inside, outside, plain = (values[name] for name in ("operator_time", "dispatch_time", "unwatched_time"))

    assert isinstance(inside, Distribution)
    assert isinstance(outside, Distribution)
    assert isinstance(plain, Distribution)
    assert len(inside) == len(outside) == ops.ENOUGH_CALLS
    assert outside.samples()[1:].tolist() == [2.0] * (ops.ENOUGH_CALLS - 1)
    assert 2 * ops.ENOUGH_CALLS <= len(plain) <= 2 * ops.MOST_CALLS


@pytest.mark.parametrize(
    ("session", "max_time", "calls"),
    [
        (Session(), 1000.0, ops.ENOUGH_CALLS),
        (Session(seconds=0.05), 1000.0, 20),
        (Session(), 24.0, 3),
        (Session(), 1.0, 1),
        (Session(events=ops.MOST_EVENTS // 4), 1000.0, 4),
        (Session(events=2 * ops.MOST_EVENTS), 1000.0, 1),
        (Session(events=0, seconds=0.0), 1000.0, ops.MOST_CALLS),
    ],
    ids=["most of long ones", "short", "time", "little time", "size", "large", "nothing"],
)
def test_watching_is_bounded(session: Session, max_time: float, calls: int) -> None:
    """After one call that tells time and size, there are so many more as the plan and the memory bear."""
    measured(session, Plan(max_time=max_time))
    assert session.requests == [(1, None), (calls, None)]


def test_an_interruption_leaves_it_at_one_call() -> None:
    """What the first call told is told; nothing is followed or traced."""
    session = Following()
    yielded = measured(
        session, interrupted=lambda: True, observation=ProbeOptions(trace="/nowhere/trace.json")
    )
    assert session.requests == [(1, None)]
    assert [type(each) for each in yielded] == [*[Measurement] * 4, TraceReport]


def test_needless_steps_are_told() -> None:
    """What the flow of a call shows to be needless is told with its part of a plain call."""
    *_, report = measured(Following())
    (waste,) = report.wastes
    assert (waste.kind, waste.scope) == (RedundancyKind.COPY, "fc")
    assert 0 < waste.time < 0.5, "what recording lengthened is shortened"


def test_compiled_code_is_told_as_such() -> None:
    """What cannot be told apart is doubted, and nothing is called needless."""
    yielded = measured(Opaque(hidden=True))
    assert list(doubts(yielded)) == ["unseen-layers"]
    assert [each.wastes for each in yielded if isinstance(each, TraceReport)] == [None]


def test_a_model_that_cannot_be_followed_keeps_its_operators() -> None:
    """The reason is a doubt, no failure."""
    yielded = measured(Refusing())
    assert "RuntimeError: no such dispatch" in doubts(yielded)["not-followed"]
    assert [each for each in yielded if isinstance(each, TraceReport)]


class TestTrace:
    def test_it_belongs_to_the_result(self, tmp_path: Path) -> None:
        """A trace of a few calls is kept, with its path and digest."""
        session, path = Session(), tmp_path / "trace.json"
        *_, kept = measured(session, observation=ProbeOptions(trace=str(path)))

        assert session.requests[-1] == (ops.TRACED, path)
        assert kept == Artifact(name="trace", path=str(path), digest=f"sha256:{sha256(b'{}').hexdigest()}")

    def test_it_has_fewer_calls_where_they_are_large(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A trace is no larger than what a browser opens; a call that is larger by itself has none."""
        monkeypatch.setattr(ops, "LARGEST", ops.LARGEST // 100)
        path = tmp_path / "trace.json"
        half, larger = Session(events=2_000), Session(events=20_000)
        measured(half, observation=ProbeOptions(trace=str(path)))
        assert half.requests[-1] == (2, path)
        path.unlink()

        doubted = doubts(measured(larger, observation=ProbeOptions(trace=str(path))))
        assert "20,000 events" in doubted["no-trace"]
        assert not path.exists()

    def test_a_place_that_cannot_be_written_is_one_sentence(self, tmp_path: Path) -> None:
        """The summary stays."""
        path = tmp_path / "none" / "trace.json"
        yielded = measured(Session(), observation=ProbeOptions(trace=str(path)))
        assert doubts(yielded)["no-trace"] == (f"no trace was written: No such file or directory: {path}")
        assert [each for each in yielded if isinstance(each, TraceReport)]

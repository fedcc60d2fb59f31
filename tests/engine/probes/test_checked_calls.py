"""Checked calls take a small share of the time, and what they keep is no memory and no leak of the model."""

from __future__ import annotations

import random
from itertools import cycle
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from modeldyno.base.metrics.call_checks import FEWEST
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.engine.probes import checked_calls, latency
from modeldyno.engine.probes.checked_calls import ROUNDS, CheckedCalls
from modeldyno.models.load_stages import WatchStage
from modeldyno.testing.fakes import a_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.stats.statistics import Samples
    from modeldyno.engine.interfaces.session import Session


class Clock:
    """A clock that only calls move."""

    def __init__(self) -> None:
        self.now = 0.0

    def seconds(self) -> float:
        """Return its time."""
        return self.now

    def nanoseconds(self) -> int:
        """Return its time."""
        return round(self.now * 1e9)


class Direct(LocalSession):
    """A session that hands arrays to a function, and counts its calls."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function, self.calls = function, 0

    def prepare(self, feed: dict[str, Any]) -> Callable[[], Any]:
        """Return a call with these inputs."""

        def call() -> Any:
            self.calls += 1
            return self.function(feed["x"])

        return call

    def arrays(self, output: Any) -> dict[str, Any]:
        """Return the only output."""
        return output if isinstance(output, dict) else {"y": np.asarray(output)}


def subject_of(session: Direct, size: int, **changes: Any) -> ProbeContext:
    """Return a model with eight inputs."""
    random = np.random.default_rng(0)
    feeds = tuple({"x": random.random((1, size), np.float32)} for _ in range(8))
    return ProbeContext(
        model=a_model(),
        session=cast("Session", session),
        calls=tuple(map(session.prepare, feeds)),
        feeds=feeds,
        drawn=frozenset({"x"}),
        **changes,
    )


@pytest.mark.parametrize("seconds", [1e-6, 1e-4])
def test_short_calls_are_checked_in_three_percent_of_the_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Beside the samples, of which there are as many as were asked for; a round may end what is left."""
    clock = Clock()
    for name in ("perf_counter", "perf_counter_ns"):
        reading = clock.seconds if name == "perf_counter" else clock.nanoseconds
        monkeypatch.setattr(checked_calls, name, reading)

    def work(x: Any) -> Any:
        clock.now += seconds
        return x

    session = Direct(work)

    def draw(n: int) -> Samples:
        for _ in range(n):
            session.function(None)
        return np.full(n, seconds)

    with CheckedCalls(subject=subject_of(session, 16), draw=draw) as checked:
        for _ in range(200):
            assert len(checked.times(100)) == 100

    assert len(checked.readings) == ROUNDS
    assert session.calls == 6 * ROUNDS - 1  # the first output shows how large they are
    assert checked.spent <= 0.03 * clock.now


def test_long_calls_are_samples_when_they_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call of 10 ms is made for the checks alone."""
    clock = Clock()
    monkeypatch.setattr(checked_calls, "perf_counter", clock.seconds)
    monkeypatch.setattr(checked_calls, "perf_counter_ns", clock.nanoseconds)
    monkeypatch.setattr(checked_calls, "time_one_call", lambda call: (0.01, call()))

    def work(x: Any) -> Any:
        clock.now += 0.01
        return x

    session = Direct(work)
    subject = subject_of(session, 16)

    def draw(n: int) -> Samples:
        for _ in range(n):
            subject.calls[0]()
        return np.full(n, 0.01)

    with CheckedCalls(subject=subject, draw=draw) as checked:
        samples = np.concatenate([checked.times(10) for _ in range(20)])

    assert len(checked.readings) == ROUNDS
    assert session.calls == len(samples) == 200
    assert samples == pytest.approx(0.01)


@pytest.mark.parametrize(("seconds", "rounds"), [(0.099, 1), (0.101, 0)])
@pytest.mark.parametrize("chunks", [1, 3])
def test_a_pass_too_short_for_a_round_makes_one_if_that_takes_a_moment(
    monkeypatch: pytest.MonkeyPatch, seconds: float, rounds: int, chunks: int
) -> None:
    """Of calls below 0.1 s; half a second more is too much for who wanted a moment."""
    clock, session, subject = _clocked(monkeypatch, seconds)

    with CheckedCalls(subject=subject, draw=_plain_calls(subject, seconds)) as checked:
        for _ in range(chunks):
            checked.times(1)
        list(checked.doubts(seconds))

    assert len(checked.readings) == rounds
    assert session.calls == chunks + 5 * rounds
    assert clock.now == pytest.approx(session.calls * seconds)


def test_the_round_of_a_short_pass_goes_on_until_a_lazy_output_is_sure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One reading that shows work asks for as many as believe it, and the doubt is raised."""
    clock, _, subject = _clocked(monkeypatch, 1e-3)
    session = cast("Any", subject.session)
    plain = session.arrays

    def computed_when_read(output: Any) -> dict[str, Any]:
        clock.now += 0.05 if isinstance(output, float) else 0.0
        return dict(plain({"y": np.ones(16)} if isinstance(output, float) else output))

    monkeypatch.setattr(session, "function", lambda x: float(x.sum()))
    monkeypatch.setattr(session, "arrays", computed_when_read)
    with CheckedCalls(subject=subject, draw=_plain_calls(subject, 1e-3)) as checked:
        checked.times(1)
        codes = {doubt.code for doubt in checked.doubts(1e-3)}

    assert len(checked.readings) >= FEWEST
    assert "lazy-output" in codes


def test_code_of_ours_that_is_cold_is_no_work_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """After calls that nobody reads, reading a number takes ten times as long as a call of 10 us does."""
    clock, session, subject = _clocked(monkeypatch, 1e-5)
    plain, since_reading = session.arrays, [0]

    def work(x: Any) -> float:
        clock.now += 1e-5
        since_reading[0] += 1
        return float(x.sum())

    def arrays(output: Any) -> dict[str, Any]:
        clock.now += 2e-4 if since_reading[0] > 1 else 1e-5
        since_reading[0] = 0
        return plain(output)

    monkeypatch.setattr(session, "function", work)
    monkeypatch.setattr(session, "arrays", arrays)
    with CheckedCalls(subject=subject, draw=_plain_calls(subject, 1e-5)) as checked:
        for _ in range(20 * ROUNDS):
            checked.times(1000)
        codes = {doubt.code for doubt in checked.doubts(1e-5)}

    assert len(checked.readings) == ROUNDS
    assert "lazy-output" not in codes


def _clocked(monkeypatch: pytest.MonkeyPatch, seconds: float) -> tuple[Clock, Direct, ProbeContext]:
    """Return a model whose calls take some seconds of a clock that they alone move."""
    clock = Clock()
    for name in ("perf_counter", "perf_counter_ns"):
        reading = clock.seconds if name == "perf_counter" else clock.nanoseconds
        monkeypatch.setattr(checked_calls, name, reading)
    monkeypatch.setattr(checked_calls, "time_one_call", lambda call: (seconds, call()))
    monkeypatch.setattr(checked_calls, "_public_clocks", dict)
    monkeypatch.setattr(checked_calls, "_threads_in_pause", lambda _seconds: 0.0)

    def work(x: Any) -> Any:
        clock.now += seconds
        return x

    session = Direct(work)
    return clock, session, subject_of(session, 16)


def _plain_calls(subject: ProbeContext, seconds: float) -> Callable[[int], Samples]:
    def draw(n: int) -> Samples:
        for _ in range(n):
            subject.calls[0]()
        return np.full(n, seconds)

    return draw


def test_new_inputs_are_made_in_the_profilers_own_stage() -> None:
    """Their memory is subtracted, and given back in such a stage."""
    stages: list[WatchStage] = []
    made: list[WatchStage] = []

    class Marked(Direct):
        def prepare(self, feed: dict[str, Any]) -> Callable[[], Any]:
            made.extend(stages[-1:])
            return super().prepare(feed)

    session = Marked(lambda x: x)
    subject = subject_of(session, 16, mark=stages.append)
    with CheckedCalls(subject=subject, draw=np.zeros) as checked:
        assert len(checked.new) == ROUNDS

    assert set(made) == {WatchStage.PROFILER}
    assert stages[-1] is WatchStage.TIMED
    assert not checked.new


@pytest.mark.parametrize("count", [250_000, 2_000_000])
def test_new_inputs_are_no_leak(count: int) -> None:
    """Eight of 1 or of 8 MB, which live as long as the pass."""
    plan = Plan(min_time=0.2, max_time=0.5, precision=0.5)
    events = latency.measure(subject_of(Direct(lambda x: x.sum()), count), plan)

    assert not [each for each in events if isinstance(each, Doubt) and each.code == "leak"]


def test_what_our_reading_does_to_the_caches_is_not_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call that follows a reading is slow; it is none of those that a new input is judged by."""
    clock, session, subject = _clocked(monkeypatch, 1e-3)
    cold: list[bool] = []
    plain, read = session.function, checked_calls._read_values

    def work(x: Any) -> Any:
        clock.now += 0.05 if cold else 0.0
        cold.clear()
        return plain(x)

    def read_values(arrays: dict[str, Any]) -> dict[str, Any]:
        cold.append(True)
        return read(arrays)

    monkeypatch.setattr(session, "function", work)
    monkeypatch.setattr(checked_calls, "_read_values", read_values)
    monkeypatch.setattr(random, "random", cycle((0.0, 1.0)).__next__)  # a plain call each time
    with CheckedCalls(subject=subject, draw=_plain_calls(subject, 1e-3)) as checked:
        for _ in range(20 * ROUNDS):
            checked.times(10)
        codes = {doubt.code for doubt in checked.doubts(1e-3)}

    assert len(checked.inputs) == ROUNDS
    assert "answers-repeat" not in codes

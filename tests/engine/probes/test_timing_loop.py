from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.stop_rule import measure_until_stable
from modeldyno.base.result.result import Progressed
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.probes import latency, static, throughput, timing_loop
from modeldyno.testing.fakes import a_model
from modeldyno.testing.known_latency import KnownLatency

if TYPE_CHECKING:
    from modeldyno.base.stats.statistics import Samples

PLAN = Plan(min_time=0.05, min_runs=10, max_time=5.0)


def test_each_call_is_timed_as_the_callable_itself_saw_it() -> None:
    """Our record of every call agrees with the ground truth's own, within what entering it costs."""
    truth = KnownLatency(0.001, 0.002)
    ours = timing_loop.time_each_call((truth,))(200)
    theirs = [ns * 1e-9 for ns in truth.record]
    errors = sorted(mine - own for mine, own in zip(ours, theirs, strict=True))

    assert errors[0] >= 0
    assert errors[100] < 1e-4  # some 100 ns; much more where coverage traces the callable


def test_payloads_are_cycled_through() -> None:
    """Every payload gets its turn, across chunks, too."""
    turns: list[int] = []
    draw = timing_loop.time_each_call(tuple(lambda i=i: turns.append(i) for i in range(3)))  # type: ignore[misc]
    draw(4)
    draw(3)

    assert turns == [0, 1, 2, 0, 1, 2, 0]


class VirtualCalls:
    """Calls that take some virtual milliseconds, the last ones as long as all that follow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *milliseconds: float) -> None:
        self.made, self._now, self._takes = 0, 0, milliseconds
        monkeypatch.setattr(timing_loop, "perf_counter_ns", lambda: self._now)

    def __call__(self) -> None:
        """Let the time of a call pass."""
        self._now += round(1e6 * self._takes[min(self.made, len(self._takes) - 1)])
        self.made += 1


def test_short_calls_are_timed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of short calls is long enough for the clock, and gives the seconds of one call."""
    call = VirtualCalls(monkeypatch, 0.5)
    draw = timing_loop.time_call_blocks((call,), 0.01)
    draw(2)
    before = call.made

    assert list(draw(3)) == [0.0005] * 3
    assert call.made - before == 3 * 20


def test_a_slow_first_call_does_not_shorten_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of the first draw is long, so that the next draw costs what this one did."""
    call = VirtualCalls(monkeypatch, 20.5, 0.5)
    draw = timing_loop.time_call_blocks((call,), 0.03)

    assert list(draw(1)) == [0.0005]
    assert call.made >= 60
    before = call.made
    draw(1)
    assert call.made - before == 60


def test_long_calls_are_blocks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call longer than a block is made once."""
    call = VirtualCalls(monkeypatch, 20.0)
    timing_loop.time_call_blocks((call,), 0.01)(3)

    assert call.made == 3


def test_the_clock_is_measured() -> None:
    """Its step and its cost are positive and far below a microsecond's order."""
    facts = timing_loop.clock_facts()

    assert 0 < facts["clock_resolution"] < 1e-5
    assert 0 < facts["timer_cost"] < 1e-4


def test_latency_finds_the_truth() -> None:
    """The samples are the callable's own record of its last calls, each a little longer."""
    truth = KnownLatency(0.002)
    measurement, *_ = latency.measure(ProbeContext(model=a_model(), calls=(truth,)), PLAN)
    samples = list(measurement.value.samples())  # type: ignore[union-attr]
    own = [ns * 1e-9 for ns in truth.record[-len(samples) :]]
    excess = sorted(ours / theirs for ours, theirs in zip(samples, own, strict=True))

    assert measurement.metric == "latency"  # type: ignore[union-attr]
    assert excess[0] >= 1
    assert excess[len(excess) // 2] < 1.05


def test_throughput_counts_samples_and_batches() -> None:
    """A batch of eight every 2 ms is at most 4,000 samples a second, and eight times fewer batches."""
    truth = KnownLatency(0.002)
    yielded = list(throughput.measure(ProbeContext(model=a_model(), calls=(truth,), samples=8), PLAN))
    samples, batches = (m for m in yielded if isinstance(m, Measurement))

    assert samples.interval is not None
    assert 0 < samples.interval.low <= samples.runs[0] <= samples.interval.high
    assert samples.runs[0] <= 4000
    assert batches.runs[0] == pytest.approx(samples.runs[0] / 8)


def test_while_measuring_progress_and_provisional_samples_are_told() -> None:
    """Whoever watches could save what there is at any time."""
    events: list[object] = []
    subject = ProbeContext(model=a_model(), calls=(KnownLatency(0.001),), watch=events.append)
    list(latency.measure(subject, PLAN))

    assert any(isinstance(event, Progressed) and event.stage == "latency: steady" for event in events)
    assert any(isinstance(event, Measurement) and event.metric == "latency" for event in events)


def test_interruption_ends_measuring_with_what_there_is() -> None:
    """An interrupted measurement keeps its samples and says why it stopped."""
    truth = KnownLatency(0.001)
    subject = ProbeContext(model=a_model(), calls=(truth,), interrupted=lambda: len(truth.record) > 300)
    measurement, *doubts = latency.measure(subject, Plan(min_time=60, max_time=100))

    assert measurement.value.stop == "interrupted"  # type: ignore[union-attr]
    assert "interrupted" in {doubt.code for doubt in doubts}  # type: ignore[union-attr]


def test_a_drift_is_a_doubt() -> None:
    """A callable that becomes slower and slower, in virtual time, is doubted."""
    drawn = random.Random(0)
    now = [0.0]
    calls = [0]

    def slowing(n: int) -> Samples:
        first, calls[0] = calls[0], calls[0] + n
        samples = np.array(
            [(0.001 + 2e-6 * call) * drawn.uniform(0.99, 1.01) for call in range(first, calls[0])]
        )
        now[0] += float(samples.sum())
        return samples

    paced = measure_until_stable(slowing, plan=Plan(max_time=2.0), clock=lambda: now[0])

    doubts = timing_loop.steady_state_doubts("latency", paced, timing_loop.distribution(paced), PLAN)
    assert "drift" in {doubt.code for doubt in doubts}


def test_static_needs_no_session() -> None:
    """What a model weighs is known without running it, as far as the loader knows it."""
    assert {
        m.metric
        for m in static.measure(ProbeContext(model=a_model(file_bytes=10)), PLAN)
        if isinstance(m, Measurement)
    } >= {
        "parameters",
        "weight_bytes",
        "file_bytes",
    }
    assert list(static.measure(ProbeContext(model=a_model(weights=None)), PLAN)) == []

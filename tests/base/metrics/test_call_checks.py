"""Checked calls: what they say of cheats, and what they do not say of honest models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeldyno.base.metrics import call_checks
from modeldyno.base.metrics.call_checks import AfterCalls, NewInputTimes, ReadingTimes
from modeldyno.base.metrics.constraints import Answer, Constraint, Verdict
from modeldyno.base.metrics.doubt import CODES, Doubt
from modeldyno.base.metrics.measurement import (
    UNEARNED,
    WHY_VOID,
    Distribution,
    Interval,
    Measurement,
    void_unearned,
)
from modeldyno.base.metrics.metric import Query
from modeldyno.base.metrics.queries import list_numbers
from modeldyno.comparison.change.change_test import judge_changes
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.testing import sample_results

MS, US = 1e-3, 1e-6
READ = ReadingTimes(call=100 * US, first=12 * US, again=10 * US, ready=8 * US, release=US, size=4096)
AFTER = AfterCalls(call=100 * US, elapsed=2.0, collected=0.01, threads=0.0)


def _inputs(*times: tuple[float, float, float], plain: float = US) -> list[NewInputTimes]:
    return [
        NewInputTimes(known=known, first=first, again=again, plain=plain) for known, first, again in times
    ]


def test_a_table_of_answers_is_slow_for_an_input_that_it_has_not_seen() -> None:
    """The doubt says by how much."""
    (doubt,) = call_checks.answers_repeat(_inputs(*[(US, 5 * MS, US)] * 5))

    assert doubt.code == "answers-repeat"
    assert doubt.seen == (
        "5 calls with inputs never seen before took 5.00 ms, "
        "the same inputs again 1.00 us: 5,000 times faster"
    )


def test_a_table_that_is_filled_later_is_slow_for_a_new_input_twice() -> None:
    """Both calls are compared with the known input next to them."""
    (doubt,) = call_checks.answers_repeat(_inputs(*[(US, 5 * MS, 5 * MS)] * 8))

    assert "the cycled ones 1.00 us: 5,000 times faster" in doubt.seen


@pytest.mark.parametrize(
    "times",
    [
        [(100 * US, 120 * US, 100 * US)] * 8,
        [(0.1 * US, 2 * US, 0.2 * US)] * 8,
        [(10 * US, 35 * US, 30 * US)] * 8,
        [(1 * MS, 9 * MS, 1 * MS)] * 7 + [(1 * MS, 1 * MS, 9 * MS)],
        [(US, 5 * MS, US)] * 2,
        [(1 * MS, 9 * MS, 1 * MS)] * 4,
        [],
    ],
    ids=["cold cache", "tiny function", "learned branches", "noise", "two inputs", "four inputs", "none"],
)
def test_what_caches_branches_and_noise_explain_is_no_table(times: list[tuple[float, float, float]]) -> None:
    """No honest model is accused."""
    assert not list(call_checks.answers_repeat(_inputs(*times)))


def test_a_time_that_is_that_of_new_inputs_is_earned() -> None:
    """What is faster at once again, as its inputs are still in the caches, is not what is reported."""
    streamed = _inputs(*[(90 * US, 100 * US, 30 * US)] * 8, plain=80 * US)

    assert not list(call_checks.answers_repeat(streamed))
    assert not call_checks.looks_repeated(streamed)


def test_answers_look_repeated_after_the_first_new_input() -> None:
    """It is worth further calls; what takes as long again is not."""
    assert call_checks.looks_repeated(_inputs((US, 5 * MS, US)))
    assert call_checks.looks_repeated(_inputs((US, 5 * MS, 5 * MS)))
    assert not call_checks.looks_repeated(_inputs((US, 1.2 * US, US)))
    assert not call_checks.looks_repeated([])


@pytest.mark.parametrize(
    "reading",
    [replace(READ, first=3 * MS, again=10 * US), replace(READ, first=3 * MS, again=3 * MS)],
    ids=["a device is waited for", "it is computed each time"],
)
def test_reading_a_lazy_output_takes_as_long_as_the_work(reading: ReadingTimes) -> None:
    """Whether it is computed once or each time."""
    (doubt,) = call_checks.lazy_output([reading] * 3)

    assert doubt.code == "lazy-output"
    assert "a call took 100 us, and reading its output 3.00 ms" in doubt.seen


@pytest.mark.parametrize(
    "readings",
    [
        [READ] * 8,
        [replace(READ, first=3 * MS)] * 2,
        [replace(READ, first=10 * MS, again=9 * MS, ready=8 * MS, size=10_000_000)] * 8,
        [replace(READ, call=MS, first=0.4 * MS, again=0.3 * MS)] * 8,
        [replace(READ, first=10 * MS)] + [READ] * 7,
        [replace(READ, first=30 * MS, again=8 * MS, ready=26 * MS)] * 3,
        [],
    ],
    ids=["ready", "too few", "large", "conversion", "one hiccup", "slow to convert", "none"],
)
def test_reading_what_is_ready_is_not_lazy(readings: list[ReadingTimes]) -> None:
    """Large outputs, conversions and hiccups are no work."""
    assert not list(call_checks.lazy_output(readings))


@pytest.mark.parametrize(
    ("after", "reading", "evidence"),
    [
        (replace(AFTER, threads=0.004), READ, "threads went on"),
        (replace(AFTER, collected=1.9), READ, "garbage collector took 95%"),
        (AFTER, replace(READ, release=3 * MS), "releasing an output"),
    ],
)
def test_work_after_the_calls_is_named(after: AfterCalls, reading: ReadingTimes, evidence: str) -> None:
    """In threads, in the collector, or when an output is released."""
    (doubt,) = call_checks.deferred_work(after, [reading] * 3)

    assert doubt.code == "deferred-work"
    assert evidence in doubt.seen


@pytest.mark.parametrize(
    "readings",
    [[READ] * 3, [replace(READ, release=1.0)] * 2, [replace(READ, release=3 * MS, size=8_000_000)] * 8],
)
def test_nothing_goes_on_after_the_calls_of_an_honest_model(readings: list[ReadingTimes]) -> None:
    """A few readings show nothing of a release, and giving a large output's memory back takes its time."""
    assert not list(call_checks.deferred_work(AFTER, readings))


def test_a_rate_beyond_any_format_of_the_machine_is_beyond_its_peak() -> None:
    """64 times the peak of float32 is what no format reaches."""
    (doubt,) = call_checks.beyond_peak(12.6e6, 0.3 * US, 1, lambda: 1e11)

    assert doubt.code == "beyond-peak"
    assert "420 times what was measured" in doubt.seen


@pytest.mark.parametrize("peak", [None, 1e12])
def test_a_rate_within_the_peak_or_without_one_is_believed(peak: float | None) -> None:
    """Formats of fewer bits are up to 64 times faster."""
    assert not list(call_checks.beyond_peak(12.6e6, 0.3 * US, 1, lambda: peak))


def test_no_peak_is_measured_for_an_ordinary_rate() -> None:
    """Measuring it takes seconds."""
    assert not list(call_checks.beyond_peak(1e9, 10 * MS, 1, lambda: pytest.fail("it was measured")))


@pytest.mark.parametrize("moved", [0.0, 0.02, 4.0, -3.0])
def test_a_clock_that_stands_still_or_runs_otherwise_was_replaced(moved: float) -> None:
    """Whichever way."""
    (doubt,) = call_checks.replaced_clock("time.perf_counter", moved, 2.0)

    assert doubt.code == "replaced-clock"


def test_a_clock_that_keeps_time_was_not_replaced() -> None:
    """Within what reading two clocks takes."""
    assert not list(call_checks.replaced_clock("time.monotonic", 2.001, 2.0))


def test_every_doubt_that_makes_a_time_void_says_why() -> None:
    """In the list of doubts, and where the figure is missing."""
    assert set(CODES) >= UNEARNED
    assert set(WHY_VOID) >= UNEARNED


RATE = Measurement(metric="throughput", value=100.0, interval=Interval(low=90.0, high=110.0), runs=(100.0,))
TIMES = Measurement(metric="latency", value=Distribution.of([0.01] * 100))
STAGE = Measurement(metric="latency", value=Distribution.of([0.01] * 100), scope="load")


def test_times_of_calls_are_void_with_a_doubt_that_they_are_unearned() -> None:
    """Of the whole model; stages are measured otherwise, and other doubts change nothing."""
    latency, rate, stage = void_unearned((TIMES, RATE, STAGE), ("drift", "lazy-output"))

    assert isinstance(latency.value, Distribution)
    assert latency.value.void == rate.void == "lazy-output"
    assert stage is STAGE
    assert void_unearned((TIMES, RATE), ("drift",)) == (TIMES, RATE)


def test_a_void_number_has_no_value_and_decides_no_bound() -> None:
    """The reason is said."""
    _, rate = void_unearned((TIMES, RATE), ("answers-repeat",))
    judgement = Constraint.parse("throughput >= 1/s").judge((rate,))

    assert judgement.verdict is Verdict.UNDECIDED
    assert Answer.to(Query.parse("throughput"), (rate,)).why == (
        "inputs that were seen before are answered faster than new ones"
    )
    assert not list(list_numbers((rate,)))


def test_a_number_is_void_if_it_is_in_one_of_several_processes() -> None:
    """Whichever."""
    _, rate = void_unearned((TIMES, RATE), ("answers-repeat",))

    assert RATE.pooled(rate).void == rate.pooled(RATE).void == "answers-repeat"


@pytest.mark.parametrize(
    ("codes", "outcome"),
    [
        (("constant-output",), ChangeVerdict.UNDECIDED),
        (("drift",), ChangeVerdict.BETTER),
        ((), ChangeVerdict.BETTER),
    ],
)
def test_times_of_what_does_other_work_are_undecided(codes: tuple[str, ...], outcome: ChangeVerdict) -> None:
    """If only one side has a doubt about what it computes."""
    fast = replace(TIMES, value=Distribution.of(*[[0.001] * 100] * 5))
    slow = replace(TIMES, value=Distribution.of(*[[0.01] * 100] * 5))
    doubts = tuple(Doubt(code=code, seen="", advice="") for code in codes)
    baseline, candidate = (
        replace(sample_results.a_small_result(), measurements=(times,), doubts=raised)
        for times, raised in ((slow, ()), (fast, doubts))
    )

    (change,) = judge_changes(baseline, candidate, queries=["latency.p50"])

    assert change.outcome is outcome
    assert (change.difference is None) == (change.outcome is ChangeVerdict.UNDECIDED)
    assert ("only one of them has the doubt constant-output" in change.why) == ("constant-output" in codes)


def test_without_readings_nothing_looks_lazy() -> None:
    """As of outputs that have no values."""
    assert not call_checks.looks_lazy(())

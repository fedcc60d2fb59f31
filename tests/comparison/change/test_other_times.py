"""What a machine, and others on it, may do between two times is no change of a model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.metrics.doubt import CODES, Doubt
from modeldyno.base.metrics.measurement import (
    Distribution,
    Interval,
    Measurement,
    observed_number,
    ratio_number,
)
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.result import Environment
from modeldyno.base.result.slowdown import explain_slowdown, slowdown_by_others
from modeldyno.comparison.change.build import CompareOptions, compare_results
from modeldyno.comparison.change.comparison import Change, ChangeVerdict
from modeldyno.comparison.change.other_times import OtherTimes
from modeldyno.testing.sample_results import a_job, a_small_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

SPEED, RATE, MEMORY = map(Query.parse, ("latency.p50", "throughput", "process_memory.max"))


def run(
    seconds: float = 0.01,
    *,
    calls: int = 100,
    processes: int = 5,
    rate_seconds: float = 1.0,
    others: float = 0.0,
    stolen: float = 0.0,
    hardware: dict[str, Any] | None = None,
    codes: tuple[str, ...] = (),
    rate: float = 0.0,
    **changes: Any,
) -> Result:
    """Make a Result of calls that take so long, one second in all, and of a rate measured as long."""
    samples = [[seconds * (1 + n / 1000)] * calls for n in range(processes)]
    measurements = (
        Measurement(metric="latency", value=Distribution.of(*samples)),
        ratio_number("throughput", [1.0 / seconds * rate_seconds], [rate_seconds * processes]),
        ratio_number("batch_rate", [rate or 1.0 / seconds], [1.0]),
        observed_number("foreign_cpu", others),
        observed_number("steal", stolen),
        Measurement(metric="parameters", value=100),
    )
    doubts = tuple(Doubt(code=code, seen=CODES[code], advice="") for code in codes)
    facts: dict[str, Any] = {"cores_allowed": 2} if hardware is None else hardware
    environment = Environment(hardware=facts)
    return a_small_result(
        **({"measurements": measurements, "doubts": doubts, "environment": environment} | changes)
    )


QUIET = run()
DISTURBED = run(others=1.0, codes=("interference",))


def a_change(outcome: ChangeVerdict, low: float, high: float, query: Query = SPEED) -> Change:
    """Make a change with an interval."""
    return Change(
        query=query,
        baseline=1.0,
        candidate=1.0 + (low + high) / 2,
        difference=(low + high) / 2,
        interval=Interval(low=low, high=high),
        outcome=outcome,
        why="5 and 5 processes",
    )


@pytest.mark.parametrize(
    ("result", "query", "factor"),
    [
        (QUIET, SPEED, 1.0),
        (run(others=1.0), SPEED, 1.0),  # nothing was worth a doubt
        (DISTURBED, SPEED, 2.0),
        (DISTURBED, MEMORY, 1.0),
        (run(others=0.1, codes=("interference",)), SPEED, 1 / 0.9),  # all of it while latency was measured
        (run(others=0.1, codes=("interference",), rate_seconds=0.25), SPEED, 1 / (1 - 0.05 * 1.25)),
        (run(others=0.1, codes=("interference",), rate_seconds=0.25), RATE, 1 / (1 - 0.05 * 5)),
        (run(others=0.1, codes=("interference",)), Query.parse("load_time"), 1 / 0.95),
        (run(others=1.5, codes=("interference",)), SPEED, 4.0),
        (run(others=2.5, codes=("interference",)), SPEED, 20.0),
        (run(stolen=0.2, codes=("steal",)), SPEED, 1 / 0.8),
        (run(others=0.1, codes=("interference",), hardware={}), SPEED, 1 / 0.8),
        (run(others=0.1, codes=("interference",), hardware={"cpu_quota": 0.5}), SPEED, 1 / 0.8),
        (run(rate=50.0, codes=("inconsistent",)), RATE, 2.0),
        (run(rate=200.0, codes=("inconsistent",)), RATE, 2.0),
        (run(rate=200.0, codes=("inconsistent",)), Query.parse("load_time"), 1.0),
        (run(codes=("inconsistent",), measurements=()), RATE, 1.0),
        (run(codes=("interference",), measurements=(observed_number("foreign_cpu", 0.5),)), RATE, 1 / 0.75),
    ],
)
def test_how_much_others_may_have_slowed_a_side_down(result: Result, query: Query, factor: float) -> None:
    """By what they took of its cores, as far as a doubt says so."""
    assert slowdown_by_others(result, query) == pytest.approx(factor, rel=0.01)


def test_the_cores_of_a_pinned_run_are_those_it_was_given() -> None:
    """One of two, of which a neighbour had half."""
    job = replace(a_job(), plan=replace(a_job().plan, pin=(1,)))
    assert slowdown_by_others(replace(DISTURBED, job=job), SPEED) == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("baseline", "candidate", "change", "evident"),
    [
        (QUIET, QUIET, a_change(ChangeVerdict.WORSE, 0.09, 0.2), True),
        (QUIET, QUIET, a_change(ChangeVerdict.WORSE, 0.07, 0.2), False),
        (QUIET, DISTURBED, a_change(ChangeVerdict.WORSE, 0.9, 1.1), False),
        (QUIET, DISTURBED, a_change(ChangeVerdict.WORSE, 1.2, 1.4), True),
        (DISTURBED, QUIET, a_change(ChangeVerdict.WORSE, 0.2, 0.4), True),  # that makes it look better
        (DISTURBED, QUIET, a_change(ChangeVerdict.BETTER, -0.5, -0.4), False),
        (QUIET, DISTURBED, a_change(ChangeVerdict.BETTER, -0.5, -0.4), True),
        (QUIET, DISTURBED, a_change(ChangeVerdict.WORSE, -0.5, -0.4, RATE), False),
        (QUIET, DISTURBED, a_change(ChangeVerdict.WORSE, 0.2, 0.4, MEMORY), True),
        (QUIET, QUIET, a_change(ChangeVerdict.UNDECIDED, 0.2, 0.4), False),
        (QUIET, DISTURBED, a_change(ChangeVerdict.WORSE, 0.02, 0.02), True),  # a count
    ],
)
def test_a_difference_is_evident_beyond_what_the_machine_explains(
    baseline: Result, candidate: Result, change: Change, *, evident: bool
) -> None:
    """Others explain only that the side which they disturbed does worse."""
    assert OtherTimes(baseline=baseline, candidate=candidate).is_evident(change) is evident


def test_intervals_that_know_the_machine_need_no_more_room() -> None:
    """The history of a model says how it differs from time to time."""
    times = OtherTimes(baseline=QUIET, candidate=QUIET, known={SPEED})
    assert times.is_evident(a_change(ChangeVerdict.WORSE, 0.04, 0.2))


@pytest.mark.parametrize(
    ("baseline", "query", "hides"),
    [(QUIET, SPEED, False), (DISTURBED, SPEED, True), (DISTURBED, MEMORY, False)],
)
def test_a_baseline_that_was_slowed_down_may_hide_a_regression(
    baseline: Result, query: Query, *, hides: bool
) -> None:
    """In what depends on time."""
    same = a_change(ChangeVerdict.SAME, -0.01, 0.01, query)
    assert OtherTimes(baseline=baseline, candidate=QUIET).may_hide(same) is hides


@pytest.mark.parametrize(
    ("factor", "text"),
    [(1.0, None), (1.004, None), (1.12, "up to 12% slower"), (2.04, "up to 2 times slower")],
)
def test_a_slowdown_is_said_as_a_share_or_as_times(factor: float, text: str | None) -> None:
    """Less than half a percent explains nothing, and is not named."""
    explained = explain_slowdown(factor, "one side")
    assert explained == (text and f"other processes may have made one side {text}")


SAME, OPEN = a_change(ChangeVerdict.SAME, -0.01, 0.01), a_change(ChangeVerdict.UNDECIDED, -0.05, 0.05)


@pytest.mark.parametrize(
    ("candidate", "change", "apart", "why"),
    [
        (QUIET, SAME, SAME, ""),
        (QUIET, SAME, OPEN, "the machine may have changed in between"),
        (DISTURBED, SAME, SAME, "other processes slowed one side down, which may hide a change"),
        (QUIET, OPEN, OPEN, ""),
        (QUIET, a_change(ChangeVerdict.WORSE, 0.5, 0.6), a_change(ChangeVerdict.WORSE, 0.2, 0.9), ""),
        (QUIET, a_change(ChangeVerdict.WORSE, 0.5, 0.6), OPEN, "the machine may have changed in between"),
        (QUIET, a_change(ChangeVerdict.WORSE, 0.05, 0.06), OPEN, "a machine may differ by 8%"),
        (DISTURBED, a_change(ChangeVerdict.WORSE, 0.5, 0.6), OPEN, "one side up to 2 times slower"),
    ],
)
def test_a_verdict_that_the_machine_may_explain_is_none(
    candidate: Result, change: Change, apart: Change, why: str
) -> None:
    """It is undecided, with its reason and what it was based on."""
    (judged,) = OtherTimes(baseline=QUIET, candidate=candidate).judge((change,), (apart,))

    if why:
        assert judged.outcome is ChangeVerdict.UNDECIDED
        assert why in judged.why
        assert judged.why.endswith("; 5 and 5 processes")
        assert judged.interval is not None
        assert judged.interval.low <= 0 <= judged.interval.high
    else:
        assert judged is change


def test_two_stored_results_are_compared_as_those_of_two_times() -> None:
    """Twice as long beside a neighbour is undecided; in turns the neighbour was beside both."""
    slower = run(0.02, others=1.0, codes=("interference",))

    apart, turns = (compare_results(QUIET, slower, CompareOptions(), in_turns=each) for each in (False, True))

    assert (apart.outcome, turns.outcome) == (ChangeVerdict.UNDECIDED, ChangeVerdict.WORSE)
    assert compare_results(QUIET, run(0.02), CompareOptions()).outcome is ChangeVerdict.WORSE


@pytest.mark.parametrize(
    ("baseline", "candidate", "query", "low", "high"),
    [
        (QUIET, DISTURBED, SPEED, 1.5 / 2.16 - 1, 1.6 * 1.08 - 1),
        (DISTURBED, QUIET, SPEED, 1.5 / 1.08 - 1, 1.6 * 2.16 - 1),
        (DISTURBED, QUIET, RATE, 1.5 / 2.16 - 1, 1.6 * 1.08 - 1),
    ],
)
def test_an_undecided_change_has_an_interval_with_what_the_machine_may_have_done(
    baseline: Result, candidate: Result, query: Query, low: float, high: float
) -> None:
    """Without its neighbours the candidate may be faster, and the baseline too."""
    change = a_change(ChangeVerdict.SAME, 0.5, 0.6, query)
    (judged,) = OtherTimes(baseline=baseline, candidate=candidate).judge((change,), (change,))

    assert judged.interval is not None
    assert (judged.interval.low, judged.interval.high) == pytest.approx((low, high))

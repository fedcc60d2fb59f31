from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from modeldyno.sweeps.strategies import ladder
from modeldyno.sweeps.study.study import TrialRequest
from modeldyno.testing.sample_studies import a_study
from modeldyno.testing.strategies import GOALS, LATE, RATE, add_done_trial, add_failed_trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.metrics.metric import Query


def climbed(
    axis: str, gives: Callable[[float], dict[Query, float] | None], goal: str = "a bound"
) -> list[float]:
    """Run the search; return the values in the order in which they were measured."""
    study = a_study(axis, goal=GOALS[goal])
    while (ask := ladder.propose(study)) is not None:
        (value,) = ask.point.values()
        result = gives(float(value))
        study = (
            add_failed_trial(study, ask, kind="crash")
            if result is None
            else add_done_trial(study, ask, result)
        )
    return [float(*trial.point.values()) for trial in study.trials]


def full(workers: float) -> Callable[[float], dict[Query, float]]:
    """A closed loop on a number of workers of 1 ms, whose p99 is its mean."""
    return lambda n: {RATE: 1000 * min(n, workers), LATE: 0.001 * max(1.0, n / workers)}


def test_it_doubles_until_twice_as_much_gives_nothing_more() -> None:
    """Two steps without a gain are enough, and a flat curve is not refined."""
    assert climbed("concurrency=1..1024*2", full(8)) == [1, 2, 4, 8, 16, 32]


@pytest.mark.parametrize("edge", [1, 2, 3, 21, 100, 127])
def test_it_closes_in_on_the_edge_of_a_bound(edge: int) -> None:
    """The largest value that meets the constraint and the smallest that violates it are both measured."""
    measured = climbed("batch_size=1..200", lambda n: {RATE: n, LATE: 0.02 * n / (edge + 0.5)}, "a bound")

    assert {edge, edge + 1} <= set(measured)
    assert len(measured) <= 2 * math.log2(200) + 1


def test_nothing_is_measured_beyond_a_failure() -> None:
    """A value that fails ends the climb, and the range below it is bisected."""
    measured = climbed("batch_size=1..64", lambda n: {RATE: n, LATE: 0.001} if n <= 20 else None)

    assert {20, 21} <= set(measured)
    assert max(measured) == 32


def test_a_bound_that_more_does_not_break_does_not_end_the_climb() -> None:
    """A required throughput is reached by more load, not by less."""
    measured = climbed("concurrency=1..64*2", lambda n: {RATE: 10 * n, LATE: 0.001 * n}, "to be minimised")

    assert 16 in measured


@pytest.mark.parametrize("peak", [3, 12, 40])
def test_the_best_of_a_curve_with_a_peak_is_found_between_its_rungs(peak: int) -> None:
    """The best value is refined between its neighbours where the curve is not flat."""

    def rate(n: float) -> float:
        return 1000 * math.exp(-(math.log(n / peak) ** 2))

    measured = climbed("threads=1..64", lambda n: {RATE: rate(n), LATE: 0.001})

    assert max(map(rate, measured)) > 950
    assert len(measured) <= 16


def test_where_the_first_value_breaks_the_bound_there_is_nothing_to_climb() -> None:
    """The search ends with one measurement."""
    assert climbed("batch_size=1..64*2", lambda n: {RATE: n, LATE: n}) == [1]


def test_it_goes_on_from_what_was_measured_in_the_middle() -> None:
    """Above a default it climbs; below one that violates the constraint it goes down."""
    study = a_study("batch_size=1..64*2", goal=GOALS["a bound"])
    middle = add_done_trial(study, TrialRequest(point={"batch_size": 16}), {RATE: 16, LATE: 0.01})
    beyond = add_done_trial(study, TrialRequest(point={"batch_size": 16}), {RATE: 16, LATE: 0.1})

    assert ladder.propose(middle) == TrialRequest(point={"batch_size": 32})
    lower = ladder.propose(beyond)
    assert lower is not None
    assert float(lower.point["batch_size"]) < 16

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tests.support.sample_trials import a_trial, add_trials, an_answer

from modeldyno.base.metrics.metric import Query
from modeldyno.sweeps.strategies.acquisition import Acquisition
from modeldyno.sweeps.study.study import Study, TrialRequest
from modeldyno.testing.sample_studies import a_served_study, a_study, make_goal
from modeldyno.testing.strategies import LATE, RATE, add_done_trial, add_failed_trial

if TYPE_CHECKING:
    from modeldyno.sweeps.study.goal import Goal
    from modeldyno.sweeps.study.search_space import Point

BOUND = make_goal(maximize="throughput", require=["latency.p99 <= 10ms"])


def full_server(study: Study, *slots: int) -> Study:
    """Measure a server saturated at 1,000/s, whose p99 is 1.5 times the mean."""
    for n in slots:
        study = add_done_trial(
            study, TrialRequest(point={"concurrency": n}), {RATE: 1000.0, LATE: 1.5 * n / 1000}
        )
    return study


def excess(study: Study, concurrency: int) -> float:
    """Return by how much the constraints are expected to be exceeded."""
    return float(Acquisition.of(study).draws([{"concurrency": concurrency}])[1].mean())


def test_latency_follows_from_the_throughput_where_a_closed_loop_sets_the_pace() -> None:
    """Samples in flight double and the rate does not: the unmeasured latency is predicted to double."""
    study = full_server(a_study("concurrency=1..64*2", goal=BOUND), 2, 4)

    assert excess(study, 4) < 0.05
    assert 0.05 < excess(study, 8) < excess(study, 16) < excess(study, 64)
    assert excess(study, 64) > 1


def test_where_requests_come_when_they_are_due_it_does_not() -> None:
    """In an open loop the rate is given, and the latency is modelled on its own."""
    study = a_served_study("rate=1..64*2", goal=BOUND)
    for n in (1, 2, 4):
        study = add_done_trial(study, TrialRequest(point={"rate": n}), {RATE: float(n), LATE: 0.005})
    outlook = Acquisition.of(study)

    assert not any(output.coupled for output in outlook.outputs)


def test_numbers_that_may_be_nothing_are_compared_as_well() -> None:
    """No errors at all meet a constraint of none; a few violate it."""
    errors = Query.parse("error_rate")
    study = a_study("threads=1..8", goal=make_goal(maximize="throughput", require=["error_rate <= 0"]))
    for n in range(1, 8):
        study = add_done_trial(
            study, TrialRequest(point={"threads": n}), {RATE: 10.0 * n, errors: 0.0 if n < 4 else 0.02}
        )
    _, beyond = Acquisition.of(study).draws([{"threads": 1}, {"threads": 7}])

    assert beyond[0].mean() < 0.5 < beyond[1].mean()


def test_weights_say_how_much_an_objective_counts() -> None:
    """Twice the rate at twice the latency is a gain where the rate counts for more."""
    points: list[Point] = [{"batch_size": 1}, {"batch_size": 8}]

    def better(goal: Goal) -> bool:
        study = a_study("batch_size=1..8*2", goal=goal)
        for n in (1, 2, 4, 8):
            study = add_done_trial(
                study, TrialRequest(point={"batch_size": n}), {RATE: 10.0 * n, LATE: 0.01 * n}
            )
        score = Acquisition.of(study).draws(points)[0].mean(axis=1)
        return bool(score[1] > score[0])

    assert better(make_goal(maximize="throughput:3", minimize="latency.p99"))
    assert not better(make_goal(maximize="throughput", minimize="latency.p99:3"))


def test_what_lies_beside_a_failure_is_likely_to_fail() -> None:
    """A failure lowers the probability of its neighbours, and less so of distant points."""
    study = a_study("batch_size=1..64*2", goal=BOUND)
    study = add_done_trial(study, TrialRequest(point={"batch_size": 1}), {RATE: 10.0, LATE: 0.001})
    study = add_failed_trial(study, TrialRequest(point={"batch_size": 64}), kind="crash")
    near, far = Acquisition.of(study).success_probability([{"batch_size": 32}, {"batch_size": 2}])

    assert near < far - 0.1


def test_a_word_that_has_always_failed_is_likely_to_fail_again() -> None:
    """The failure counts however far the other numbers are."""
    study = a_study("compile=default,off", "batch_size=1..64*2", goal=BOUND)
    for n in (1, 16, 64):
        study = add_done_trial(
            study, TrialRequest(point={"compile": "off", "batch_size": n}), {RATE: 10.0, LATE: 0.001}
        )
        study = add_failed_trial(
            study, TrialRequest(point={"compile": "default", "batch_size": n}), kind="crash"
        )
    bad, good = Acquisition.of(study).success_probability(
        [{"compile": word, "batch_size": 4} for word in ("default", "off")]
    )

    assert bad < 0.2
    assert good > 0.5


def test_what_looks_err_by_themselves_is_taken_for_noise() -> None:
    """The same figures give a weaker trend where each is reported as noisy."""

    def strayed(error: float) -> float:
        study = a_study("threads=1..8", goal=make_goal(maximize="throughput"))
        rates = (100.0, 130.0, 80.0, 120.0, 90.0, 125.0, 85.0)
        trials = [
            a_trial({"threads": n}, an_answer("throughput", rate, error=error))
            for n, rate in enumerate(rates, 1)
        ]
        score, _ = Acquisition.of(add_trials(study, trials)).draws([{"threads": n} for n in range(1, 8)])
        return float(np.std(score.mean(axis=1)))

    assert strayed(0.3) < 0.5 * strayed(0.001)

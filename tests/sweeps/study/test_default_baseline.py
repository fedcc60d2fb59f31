"""The default at its best load: few loads, whatever the curve looks like."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.result import FailureKind
from modeldyno.sweeps.study.default_baseline import MOST, best_so_far, next_baseline_trial, value_or_raw
from modeldyno.sweeps.study.goal import Goal, Objective, Rank
from modeldyno.sweeps.study.study import Trial, TrialPurpose, TrialRequest, TrialState
from modeldyno.testing.sample_results import a_failed_result, a_result
from modeldyno.testing.sample_studies import a_served_study, a_study

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.sweeps.study.study import Study

LOADS = (1, 2, 4, 8, 16, 32, 64)


def measured(study: Study, ask: TrialRequest, rate: float | None) -> Study:
    """Add a trial that gave a rate, with a latency of concurrency over rate; None: it failed."""
    number, slots = len(study.trials) + 1, float(ask.point.get("concurrency", 1))
    if rate is None:
        result = a_failed_result()
    else:
        latency = Distribution.of([slots / rate] * 20)
        measurements = (observed_number("throughput", rate), Measurement(metric="latency", value=latency))
        result = a_result(measurements=measurements)
    return study.add(Trial.of(result, study.goal, ask, number=number, seconds=1.0))


def climbed(study: Study, rate: Callable[[float], float | None]) -> list[float]:
    """Measure what is asked for until nothing is; give the loads in their order."""
    loads: list[float] = []
    while (ask := next_baseline_trial(study)) is not None:
        assert ask.stage is TrialPurpose.DEFAULT
        loads.append(float(ask.point.get("concurrency", 0)))
        study = measured(study, ask, rate(loads[-1]))
    return loads


@pytest.mark.parametrize(
    "rate",
    [
        lambda load: load,
        lambda load: min(load, 1.0) + load / 1000,
        lambda load: min(load, 8.0),
        lambda load: min(load, 30.0) - load / 10,
        lambda load: 1 / load,
        lambda load: load / (1 + (load / 4) ** 2),
    ],
    ids=["rising", "flat", "plateau", "peak", "falling", "early peak"],
)
def test_few_loads_find_the_best(rate: Callable[[float], float]) -> None:
    """At most four loads are measured, and the best of them gives at least nine tenths of the most."""
    loads = climbed(a_served_study("instances=1,2", "concurrency=1..64*2"), rate)

    assert len(loads) <= MOST
    assert max(map(rate, loads)) >= 0.9 * max(map(rate, LOADS))


def test_a_bound_is_approached_from_both_sides() -> None:
    """Beyond a bound nothing is looked for: the best load is the greatest that holds it."""
    goal = Goal(
        objectives=(Objective.parse("throughput"),), constraints=(Constraint.parse("latency.p50 <= 10ms"),)
    )
    study = a_served_study("concurrency=1..64*2", goal=goal)
    loads = climbed(study, lambda load: 100.0 * load if load <= 4 else 400.0)

    assert loads == [8, 1, 4] or 4 in loads
    assert 64 not in loads


def test_what_fails_is_tried_at_lesser_loads() -> None:
    """A server that breaks down is asked for less, down to the least load, and then left alone."""
    study = a_served_study("concurrency=1..64*2")

    assert climbed(study, lambda _load: None) == [8, 2, 1]
    assert climbed(study, lambda load: load if load < 8 else None)[:2] == [8, 2]


def test_a_skipped_load_is_known() -> None:
    """A load that cannot be is not asked for again."""
    study = a_served_study("concurrency=8")
    skipped = Trial(number=1, point={"concurrency": 8}, state=TrialState.SKIPPED)

    assert next_baseline_trial(study) == TrialRequest(point={"concurrency": 8}, stage=TrialPurpose.DEFAULT)
    assert next_baseline_trial(study.add(skipped)) is None


@pytest.mark.parametrize(
    "study",
    [
        a_study("batch_size=1,2"),
        a_served_study("concurrency=1..64*2", default={"concurrency": 4}),
        a_served_study("instances=1,2", "concurrency=1,2,4 if instances=2", default={"instances": 1}),
    ],
    ids=["no load", "a load of its own", "a load that does not matter"],
)
def test_one_measurement_is_enough(study: Study) -> None:
    """Where there is no load to choose, the default is measured once, as it is."""
    ask = next_baseline_trial(study)

    assert ask == TrialRequest(point=study.default, stage=TrialPurpose.DEFAULT)
    assert next_baseline_trial(measured(study, ask, 1.0)) is None


def test_each_load_where_each_is_ranked() -> None:
    """Where configurations are ranked at each load, the default is measured at all of them."""
    goal = Goal(objectives=(Objective.parse("throughput"),), rank=Rank.EACH)
    loads = climbed(a_served_study("concurrency=1,2,4,8,16", goal=goal), lambda load: load)

    assert loads == [1, 2, 4, 8, 16]


def test_points_have_the_order_of_the_axes() -> None:
    """A point names axes in their order, another load at its middle, and what is no axis last."""
    study = a_served_study(
        "concurrency=1,2,4", "instances=1,2", "rate=10,20,30", default={"threads": 3, "instances": 2}
    )
    ask = next_baseline_trial(study)

    assert ask is not None
    assert list(ask.point.items()) == [("concurrency", 2), ("instances", 2), ("rate", 20), ("threads", 3)]


def test_verification_is_not_the_search() -> None:
    """What verifies the default says nothing of which loads it was measured at."""
    study = measured(a_study("batch_size=1,2"), TrialRequest(point={}, stage=TrialPurpose.VERIFY), 1.0)

    assert next_baseline_trial(study) is not None


def test_the_best_so_far_breaks_no_bound() -> None:
    """The best so far has the highest score of what is done and in bounds; it is the first of equals."""
    goal = Goal(
        objectives=(Objective.parse("throughput"),), constraints=(Constraint.parse("latency.p50 <= 10ms"),)
    )
    study = a_served_study("concurrency=1,2,4", goal=goal)
    assert best_so_far(study) is None
    for load, rate in ((1, 500.0), (2, 1000.0), (2, 1000.0), (4, 300.0), (4, None), (1, 0.0)):
        study = measured(study, TrialRequest(point={"concurrency": load}), rate or None)
    best = best_so_far(study)

    assert best is not None
    assert best.number == 2


def test_nothing_is_no_score() -> None:
    """What gave no rate at all, or not what the goal asks for, is never the best."""
    study = a_study("batch_size=1,2", goal=Goal(objectives=(Objective.parse("throughput"),)))
    nothing = a_result(measurements=(observed_number("throughput", 0.0),))
    other = a_result(measurements=(observed_number("load_time", 1.0),))
    for number, result in enumerate((nothing, other), 1):
        study = study.add(Trial.of(result, study.goal, TrialRequest(point={}), number=number, seconds=1.0))

    assert best_so_far(study) is None


def test_nothing_is_the_best_score_of_what_is_to_be_smaller() -> None:
    """A load without errors is known to be good: greater ones are tried, and it is the best so far."""
    goal = Goal(objectives=(Objective.parse("error_rate"),))
    study = a_served_study("concurrency=1..64*2", goal=goal)
    ask = TrialRequest(point={"concurrency": 8}, stage=TrialPurpose.DEFAULT)
    result = a_result(measurements=(observed_number("error_rate", 0.0),))
    study = study.add(Trial.of(result, goal, ask, number=1, seconds=1.0))
    further, best = next_baseline_trial(study), best_so_far(study)

    assert further is not None
    assert further.point == {"concurrency": 32}
    assert best is not None
    assert best.point == {"concurrency": 8}


def test_a_percentile_that_is_no_claim_is_a_hint() -> None:
    """Without enough samples the plain quantile is taken; of a number there is none."""
    goal = Goal(objectives=(Objective.parse("latency.p99"),))
    study = measured(a_study("batch_size=1,2", goal=goal), TrialRequest(point={}), 20.0)
    trial = study.trials[0]
    certified = trial.ask(Query.parse("latency.p99"))

    assert certified is not None
    assert certified.value is None
    assert value_or_raw(trial, Query.parse("latency.p99")) == 0.05
    assert value_or_raw(trial, Query.parse("energy")) is None
    assert value_or_raw(replace(trial, answers=()), Query.parse("latency.p99")) is None
    assert measured(study, TrialRequest(point={}), None).trials[1].kind == FailureKind.OOM

"""Loads between one that holds the bounds and one that breaks them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_trials import a_trial, add_trials, an_answer

from modeldyno.sweeps.study.bisection import bisected_axis, next_bisection_trial
from modeldyno.sweeps.study.goal import Rank
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.study.study import Budget, Study, Trial, TrialPurpose, TrialState
from modeldyno.testing.sample_studies import a_served_study, a_study, make_goal

if TYPE_CHECKING:
    from modeldyno.sweeps.study.search_space import Point

WITHIN = make_goal(maximize="throughput", require=["latency.p99 <= 10ms"])
MOST = {1: 21.4, 2: 45.4, 3: 13.4, 4: 0.5}
"""Instances to the concurrency up to which they hold the bound."""


def measured(point: Point, stage: TrialPurpose = TrialPurpose.SEARCH) -> Trial:
    """Answer as a server does whose tail rises with the requests in flight."""
    load = float(point.get("concurrency") or point["rate"])
    p99 = 0.01 * load / MOST[int(point["instances"])]
    return a_trial(point, an_answer("throughput", 100 * load), an_answer("latency.p99", p99), stage=stage)


def searched(
    *instances: int, bisect: int = 9, loads: str = "concurrency=1..64*2", rank: Rank = Rank.BEST
) -> Study:
    """Measure configurations at all loads of the axis."""
    goal = replace(WITHIN, rank=rank)
    study = a_served_study(
        loads, "instances=1,2,3,4", goal=goal, default={"instances": 1}, budget=Budget(bisect=bisect)
    )
    (axis, *_) = study.space.axes
    return add_trials(
        study, [measured({axis.name: v, "instances": n}) for n in instances for v in axis.values]
    )


def bisected(study: Study) -> list[float]:
    """Measure the loads that are asked for, and return them."""
    loads = []
    while (ask := next_bisection_trial(study)) is not None:
        assert ask.stage is TrialPurpose.BISECT
        loads.append(next(float(v) for name, v in ask.point.items() if name in study.loads))
        study = add_trials(study, [measured(ask.point, ask.stage)])
        assert len(loads) < 40
    return loads


@pytest.mark.parametrize(
    ("instances", "loads"),
    [(1, [23, 19, 21, 22]), (2, [45, 54, 49, 47]), (3, [11, 13, 14]), (4, [])],
)
def test_the_largest_load_within_the_bound_is_found(instances: int, loads: list[float]) -> None:
    """By halving the ratio of two loads until they are neighbours, or within 5 %."""
    assert bisected(searched(instances)) == loads


def test_the_best_load_is_one_between() -> None:
    """What is found takes part in the ranking: 21 in flight, where the axis has 16 and 32."""
    study = searched(1)
    while (ask := next_bisection_trial(study)) is not None:
        study = add_trials(study, [measured(ask.point, ask.stage)])
    best = ranking(study).best

    assert best is not None
    assert best.point == {"concurrency": 21, "instances": 1}


def test_no_more_steps_than_wanted_for_each_configuration() -> None:
    """The best come first; the default takes part, however good it is."""
    assert bisected(searched(1, 2, 3, bisect=1)) == [45, 11, 23]


def test_a_first_load_that_breaks_the_bound_is_bisected_downwards() -> None:
    """The axis begins at 16, and eight requests in flight hold the bound."""
    assert bisected(searched(3, loads="concurrency=16..64*2")) == [4, 8, 11, 13, 14]


def test_a_rate_may_be_any_number() -> None:
    """It ends where two rates are within 5 %."""
    assert bisected(searched(1, loads="rate=8..64*2")) == pytest.approx([22.6, 19.0, 20.7, 21.6])


def test_a_small_load_that_breaks_the_bound_by_chance_is_passed_over() -> None:
    """The tail of one request in flight was disturbed; the largest load that held the bound counts."""
    study = searched(1)
    disturbed = a_trial(
        {"concurrency": 1, "instances": 1}, an_answer("throughput", 100.0), an_answer("latency.p99", 0.5)
    )
    trials = [disturbed, *study.trials[1:]]

    assert bisected(replace(study, trials=tuple(trials))) == [23, 19, 21, 22]


def test_a_load_that_failed_is_beyond_the_bound() -> None:
    """The next one is below it."""
    study = searched(1)
    failed = a_trial({"concurrency": 23, "instances": 1}, stage=TrialPurpose.BISECT, state=TrialState.FAILED)
    ask = next_bisection_trial(add_trials(study, [failed]))

    assert ask is not None
    assert ask.point["concurrency"] == 19


def test_there_is_nothing_between_without_a_bound_that_breaks() -> None:
    """No bound, no load that is varied, one that is a product of knobs, each load for itself, or no wish."""
    assert next_bisection_trial(searched(1, loads="concurrency=1..16*2")) is None
    assert next_bisection_trial(searched(1, bisect=0)) is None
    assert bisected_axis(searched(1, rank=Rank.EACH)) is None
    assert bisected_axis(a_study("batch_size=1,2", goal=WITHIN)) is None
    assert bisected_axis(a_served_study("instances=1,2", "concurrency=2*instances", goal=WITHIN)) is None
    assert bisected_axis(a_served_study("concurrency=1,2", goal=make_goal(maximize="throughput"))) is None

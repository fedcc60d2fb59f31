from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_trials import a_trial, add_trials, an_answer

from modeldyno.base.metrics.constraints import Constraint, Verdict
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.cost import Price
from modeldyno.base.result.result import FailureKind
from modeldyno.sweeps.loop import run_trials
from modeldyno.sweeps.study.goal import Goal, Objective
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.study.study import Trial, TrialPurpose, TrialState, rerank_study
from modeldyno.testing.sample_studies import SimulatedTrials, a_study

if TYPE_CHECKING:
    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.result.result import Result
    from modeldyno.sweeps.study.study import Study

FAST = Goal(
    objectives=(Objective.parse("latency.min"),), constraints=(Constraint.parse("latency.std <= 5ms"),)
)


def swept() -> tuple[Study, dict[str, Result]]:
    """Sweep three batches: the larger, the slower a call; the largest fails, and another cannot be."""

    def fails(point: dict[str, KnobValue]) -> FailureKind | None:
        return FailureKind.OOM if point["batch_size"] == 4 else None

    bench = SimulatedTrials(rate=lambda point: 800.0 / float(point["batch_size"]), fails=fails)
    study, results = a_study("batch_size=1,2,4", default={"batch_size": 1}), {}
    for after, trial, result in run_trials(study, rooms=bench):
        study = after
        if result is not None:
            results[trial.result] = result
    skipped = Trial(
        number=len(study.trials) + 1, point={"batch_size": 8}, state=TrialState.SKIPPED, failure="no"
    )
    return study.add(skipped), results


def test_another_goal_is_answered_from_the_results() -> None:
    """A statistic that nobody asked for before is found in the samples, and its bound is judged."""
    study, results = swept()
    anew, unknown = rerank_study(study, FAST, results.get)
    before = next(trial for trial in study.trials if trial.state is TrialState.DONE)
    after = anew.trials[before.number - 1]

    assert unknown == 0
    assert anew.goal == FAST
    assert after.ask(FAST.queries[1]) is not None
    assert {j.constraint for j in after.judgements} == set(FAST.constraints)
    best = ranking(anew).best
    assert best is not None
    assert best.point == {"batch_size": 1}


def test_what_was_verified_for_another_goal_has_no_precedence() -> None:
    """The one with the most throughput was measured again, and not the one with the shortest calls."""

    def trial(batch: int, rate: float, latency: float, stage: TrialPurpose) -> Trial:
        answers = (an_answer("throughput", rate), an_answer("latency.p50", latency))
        return a_trial({"batch_size": batch}, *answers, stage=stage)

    fastest = Goal(objectives=(Objective.parse("throughput"),))
    quickest = Goal(objectives=(Objective.parse("latency.p50"),))
    points = ((1, 1300.0, 0.00038), (2, 2100.0, 0.00045))
    study = add_trials(
        a_study("batch_size=1,2", goal=fastest, default={"batch_size": 1}),
        [
            *(trial(*point, TrialPurpose.SEARCH) for point in points),
            *(trial(*points[1], TrialPurpose.VERIFY) for _ in "ab"),
        ],
    )
    best, other = ranking(study).best, ranking(rerank_study(study, quickest, lambda _name: None)[0]).best

    assert best is not None
    assert other is not None
    assert (best.point, other.point) == ({"batch_size": 2}, {"batch_size": 1})
    assert not other.verified


def test_what_did_not_end_well_stays_as_it_was() -> None:
    """A failure and a point that cannot be are not asked; number, stage and time stay, too."""
    study, results = swept()
    anew, _ = rerank_study(study, FAST, results.get)

    assert anew.trials[-1] == study.trials[-1]
    for before, after in zip(study.trials, anew.trials, strict=True):
        kept = ("number", "point", "state", "stage", "care", "seconds", "failure", "kind", "doubts", "result")
        assert all(getattr(before, name) == getattr(after, name) for name in kept)
    assert any(trial.state is TrialState.FAILED for trial in anew.trials)


def test_without_results_what_the_study_kept_must_do() -> None:
    """Usual questions are answered by the study alone; what it did not keep is counted as unknown."""
    study, _ = swept()
    goal = Goal(
        objectives=(Objective.parse("latency.mean"),), constraints=(Constraint.parse("throughput >= 500/s"),)
    )
    unasked = replace(FAST, constraints=(Constraint.parse("latency.p75 <= 5ms"),))
    done = [trial for trial in study.trials if trial.state is TrialState.DONE]
    anew, none = rerank_study(study, goal, lambda _id: None)

    assert none == 0
    assert anew.trials[0].judgements[0].verdict is Verdict.HELD
    assert rerank_study(study, unasked, lambda _id: None)[1] == len(done)


def test_a_trial_without_a_result_is_asked_itself() -> None:
    """A study that was read from a file has answers, and no store to look in."""
    study, results = swept()
    bare = replace(study, trials=tuple(replace(trial, result="") for trial in study.trials))

    assert rerank_study(bare, FAST, results.__getitem__)[0].goal == FAST


CHEAP = Goal(
    objectives=(Objective.parse("cost"),),
    constraints=(Constraint.parse("cost <= 0.5"),),
    price=Price(per_hour=1.2),
)


def test_a_price_gives_every_trial_its_cost() -> None:
    """From its Result, or where that is gone from the throughput that the study kept: the same."""
    study, results = swept()
    anew, unknown = rerank_study(study, CHEAP, results.get)
    kept, none = rerank_study(study, CHEAP, lambda _id: None)

    assert (unknown, none) == (0, 0)
    for trial, bare in zip(anew.trials, kept.trials, strict=True):
        cost, again, rate = trial.ask(COST), bare.ask(COST), trial.ask(Query.parse("throughput"))
        assert (cost and cost.value) == pytest.approx(again and again.value)
        if rate is not None and cost is not None:
            assert (cost.value or 0) * (rate.value or 0) == pytest.approx(1.2 / 3600 * 1e6)
            assert bare.judgements[0].verdict is trial.judgements[0].verdict
    best = ranking(anew).best
    assert best is not None
    assert best.point == {"batch_size": 1}


COST = Query.parse("cost")


def test_another_price_replaces_the_cost() -> None:
    """Twice the price is twice the cost, though the Result is gone."""
    study, _ = swept()
    once, _ = rerank_study(study, CHEAP, lambda _id: None)
    twice, _ = rerank_study(once, replace(CHEAP, price=Price(per_hour=2.4)), lambda _id: None)
    costs = [trial.trials[0].ask(COST) for trial in (once, twice)]

    assert costs[0] is not None
    assert costs[1] is not None
    assert costs[1].value == pytest.approx(2 * (costs[0].value or 0))

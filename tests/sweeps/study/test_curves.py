"""Which loads are measured after a search, and that the ranking does not see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.sample_trials import a_trial, add_trials, an_answer

from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.study.study import Budget, Study, Trial, TrialPurpose, TrialState
from modeldyno.sweeps.study.verification import next_curve_trial
from modeldyno.testing.sample_studies import a_served_study, a_study

if TYPE_CHECKING:
    from modeldyno.sweeps.study.search_space import Point


def point(instances: int, concurrency: int) -> Point:
    return {"instances": instances, "concurrency": concurrency}


def rated(where: Point, rate: float, stage: TrialPurpose = TrialPurpose.SEARCH) -> Trial:
    return a_trial(where, an_answer("throughput", rate), stage=stage)


def searched(curves: int) -> Study:
    """Measure three configurations at one load, the third of which fails."""
    study = a_served_study("concurrency=1,4,8", "instances=1,2,3", budget=Budget(curves=curves))
    failed = a_trial(point(3, 4), state=TrialState.FAILED)
    return add_trials(study, [rated(point(1, 4), 100), rated(point(2, 4), 200), failed])


def completed(study: Study) -> Study:
    """Measure what is asked for until nothing is."""
    while (ask := next_curve_trial(study)) is not None:
        assert ask.stage is TrialPurpose.CURVE
        study = add_trials(study, [rated(ask.point, 1000, ask.stage)])
    return study


def test_the_best_come_first_and_each_load_once() -> None:
    """A configuration that failed has no curve."""
    study = completed(searched(3))

    assert [trial.point for trial in study.trials[3:]] == [point(2, 1), point(2, 8), point(1, 1), point(1, 8)]


def test_no_more_configurations_than_wanted() -> None:
    """Only the best one, and none without the option."""
    assert [trial.point for trial in completed(searched(1)).trials[3:]] == [point(2, 1), point(2, 8)]
    assert next_curve_trial(searched(0)) is None


def test_a_space_without_loads_has_no_curves() -> None:
    """There is nothing to complete."""
    assert next_curve_trial(a_study("batch_size=1,2", budget=Budget(curves=3))) is None


def test_the_ranking_does_not_see_curves() -> None:
    """A load that was measured once, after all, and looks better is no answer."""
    before = searched(2)
    study = completed(before)
    best, first = ranking(study).best, ranking(before).best

    assert best is not None
    assert first is not None
    assert best.point == first.point == point(2, 4)
    assert ranking(study).measurements == 7
    assert study.searched.trials == before.trials
    assert before.searched is before

"""How long a trial looks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.sweeps.study.goal import Goal, Objective
from modeldyno.sweeps.study.study import TrialPurpose, TrialRequest
from modeldyno.sweeps.study.trial_effort import LONGEST, trial_job
from modeldyno.testing.sample_results import a_job

GOAL = Goal(
    objectives=(Objective.parse("throughput"), Objective.parse("latency.p95")),
    constraints=(
        Constraint.parse("latency.p99 <= 10ms"),
        Constraint.parse("service_time.p90 <= 10ms"),
        Constraint.parse("latency.mean <= 10ms"),
    ),
)
JOB = replace(a_job(), plan=Plan(max_time=20.0, min_time=1.0, precision=0.02, percentiles=("p50",)))


def test_a_search_looks_shortly() -> None:
    """A look of a search takes 1.2 s and is content with 15 %; twice the care is twice of it."""
    plan = trial_job(JOB, GOAL, TrialRequest(point={})).plan

    assert (plan.max_time, plan.min_time, plan.precision) == (LONGEST, 0.6, 0.15)
    assert trial_job(JOB, GOAL, TrialRequest(point={}, care=2.0)).plan.max_time == 2 * LONGEST


def test_a_search_certifies_objectives_alone() -> None:
    """Of a percentile that is bounded, a search asks for as many samples as hint at it."""
    plan = trial_job(
        replace(JOB, plan=replace(JOB.plan, percentiles=("p99",))), GOAL, TrialRequest(point={})
    ).plan

    assert plan.percentiles == ("p95",)
    assert plan.min_runs == 300
    few = trial_job(replace(JOB, plan=replace(JOB.plan, max_runs=50)), GOAL, TrialRequest(point={})).plan
    assert few.min_runs == 50
    assert (
        trial_job(JOB, replace(GOAL, constraints=()), TrialRequest(point={})).plan.min_runs
        == JOB.plan.min_runs
    )


def test_a_plan_that_asks_for_less_is_kept() -> None:
    """Where the Plan is quicker than a short look, so is the look."""
    quick = replace(JOB, plan=Plan(max_time=0.5, min_time=0.1, precision=0.2))

    assert trial_job(quick, GOAL, TrialRequest(point={}, stage=TrialPurpose.DEFAULT)).plan == replace(
        quick.plan, percentiles=("p95",), min_runs=300
    )


def test_verification_is_as_careful_as_the_plan() -> None:
    """What verifies is measured as long as the user said, where the decision needs it."""
    plan = trial_job(JOB, GOAL, TrialRequest(point={}, stage=TrialPurpose.VERIFY)).plan

    assert plan == replace(JOB.plan, percentiles=("p50", "p95", "p99"))


@pytest.mark.parametrize(("care", "longest", "precision"), [(0.25, 5.0, 0.04), (0.01, 1.5, 0.2)])
def test_less_care_relaxes_what_bounds_a_look(care: float, longest: float, precision: float) -> None:
    """A part of the time, with a precision to match, but no less than a search looks; what is least stays."""
    plan = trial_job(JOB, GOAL, TrialRequest(point={}, stage=TrialPurpose.VERIFY, care=care)).plan

    assert plan.max_time == longest
    assert plan.precision == pytest.approx(precision)
    assert (plan.min_time, plan.min_runs) == (JOB.plan.min_time, JOB.plan.min_runs)


@pytest.mark.parametrize(("least", "longest"), [(0.1, LONGEST), (4.0, 6.0), (19.0, 20.0)])
def test_the_least_time_fits_into_a_look_beside_its_warm_up(least: float, longest: float) -> None:
    """A warm-up takes a third of a look at most; the Plan bounds both."""
    job = replace(JOB, plan=replace(JOB.plan, min_time=least))

    assert (
        trial_job(job, GOAL, TrialRequest(point={}, stage=TrialPurpose.VERIFY, care=0.01)).plan.max_time
        == longest
    )


@pytest.mark.parametrize(
    ("stage", "duration", "requests"),
    [(TrialPurpose.SEARCH, 2 * LONGEST, 20), (TrialPurpose.VERIFY, 20.0, 20)],
)
def test_a_window_is_shortened_and_lengthened(stage: TrialPurpose, duration: float, requests: int) -> None:
    """The steady window of a load follows the look; requests that were asked for follow the care alone."""
    job = replace(JOB, load=Load(duration=10.0, requests=10))
    load = trial_job(job, GOAL, TrialRequest(point={}, stage=stage, care=2.0)).load

    assert load == Load(duration=duration, requests=requests)


def test_a_window_that_the_user_names_is_not_shortened() -> None:
    """Less care does not measure less than the load says."""
    job = replace(JOB, load=Load(duration=10.0, requests=10))

    assert trial_job(job, GOAL, TrialRequest(point={}, stage=TrialPurpose.VERIFY, care=0.25)).load == job.load


def test_a_load_without_a_window_has_none() -> None:
    """Where nobody says how long, the Plan does."""
    assert trial_job(replace(JOB, load=Load()), GOAL, TrialRequest(point={}, care=2.0)).load == Load()

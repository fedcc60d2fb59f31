"""How long a trial looks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeldyno.core.glance import looking
from modeldyno.core.goal import Constraint
from modeldyno.core.load import Load
from modeldyno.core.objective import Goal, Objective
from modeldyno.core.plan import Plan
from modeldyno.core.study import Ask, Stage
from modeldyno.testing.results import a_job

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
    """A look of a search takes 3 s and is content with 5 %; half of it is half the care."""
    plan = looking(JOB, GOAL, Ask(point={})).plan

    assert (plan.max_time, plan.min_time, plan.precision) == (3.0, 0.5, 0.05)
    assert looking(JOB, GOAL, Ask(point={}, care=2.0)).plan.max_time == 6.0


def test_a_plan_that_asks_for_less_is_kept() -> None:
    """Where the Plan is quicker than a short look, so is the look."""
    quick = replace(JOB, plan=Plan(max_time=0.5, min_time=0.1, precision=0.2))

    assert looking(quick, GOAL, Ask(point={}, stage=Stage.DEFAULT)).plan == replace(
        quick.plan, percentiles=("p95", "p99")
    )


def test_verification_is_as_careful_as_the_plan() -> None:
    """What verifies is measured as long as the user said."""
    plan = looking(JOB, GOAL, Ask(point={}, stage=Stage.VERIFY)).plan

    assert plan == replace(JOB.plan, percentiles=("p50", "p95", "p99"))


@pytest.mark.parametrize(
    ("stage", "duration", "requests"), [(Stage.SEARCH, 6.0, 20), (Stage.VERIFY, 20.0, 20)]
)
def test_a_window_is_shortened_and_lengthened(stage: Stage, duration: float, requests: int) -> None:
    """The steady window of a load follows the look; requests that were asked for follow the care alone."""
    job = replace(JOB, load=Load(duration=10.0, requests=10))
    load = looking(job, GOAL, Ask(point={}, stage=stage, care=2.0)).load

    assert load == Load(duration=duration, requests=requests)


def test_a_load_without_a_window_has_none() -> None:
    """Where nobody says how long, the Plan does."""
    assert looking(replace(JOB, load=Load()), GOAL, Ask(point={}, care=2.0)).load == Load()

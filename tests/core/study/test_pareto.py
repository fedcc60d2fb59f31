"""Candidates that no other is better than in everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.sample_trials import a_trial, add_trials, an_answer

from modeldyno.core.metrics.constraints import Constraint
from modeldyno.core.study.goal import Goal, Objective
from modeldyno.core.study.pareto import front_membership, pareto_front
from modeldyno.core.study.search_space import key
from modeldyno.testing.sample_studies import a_study

if TYPE_CHECKING:
    from modeldyno.core.study.study import Study

GOAL = Goal(objectives=(Objective.parse("throughput"), Objective.parse("latency.p99")))
BOUNDED = Goal(objectives=GOAL.objectives, constraints=(Constraint.parse("latency.p99 <= 25ms"),))


def of(*values: tuple[float, float], goal: Goal = GOAL) -> Study:
    """Measure batches 1, 2, ... with these rates and latencies."""
    trials = (
        a_trial({"batch_size": n}, an_answer("throughput", rate), an_answer("latency.p99", p99))
        for n, (rate, p99) in enumerate(values, 1)
    )
    return add_trials(a_study("batch_size=1..9", goal=goal), trials)


def batches(study: Study) -> list[float]:
    return [float(candidate.point["batch_size"]) for candidate in pareto_front(study)]


class TestFront:
    def test_what_another_is_better_than_in_everything_is_not_on_it(self) -> None:
        """From the fastest on, each next one is slower and has the smaller latency."""
        assert batches(of((100, 0.01), (200, 0.02), (150, 0.03), (300, 0.04))) == [4, 2, 1]

    def test_equals_are_both_on_it(self) -> None:
        """Neither is better; one that is as good in one objective and worse in another is beaten."""
        assert sorted(batches(of((100, 0.01), (100, 0.01), (100, 0.02)))) == [1, 2]

    def test_only_what_holds_its_bounds(self) -> None:
        """Others are on it only where none does."""
        assert batches(of((100, 0.01), (300, 0.04), goal=BOUNDED)) == [1]
        assert batches(of((200, 0.03), (300, 0.04), goal=BOUNDED)) == [2, 1]

    def test_nothing_measured(self) -> None:
        """A study without trials has no front."""
        assert pareto_front(of()) == ()
        assert front_membership(of()) == {}


class TestMembership:
    def test_what_is_clear_is_sure(self) -> None:
        """Whoever is far from all others is on the front in every resample, or in none."""
        shares = front_membership(of((100, 0.01), (200, 0.02), (150, 0.06)))

        assert shares[key({"batch_size": 1})] == pytest.approx(1.0, abs=0.05)
        assert shares[key({"batch_size": 2})] == pytest.approx(1.0, abs=0.05)
        assert shares.get(key({"batch_size": 3}), 0.0) < 0.05

    def test_what_is_surely_beaten_is_left_out(self) -> None:
        """One that is worse by far in everything is never on it, and costs nothing."""
        assert set(front_membership(of((100, 0.01), (10, 0.1)))) == {key({"batch_size": 1})}

    def test_neighbours_cannot_be_told_apart(self) -> None:
        """Two that are nearly alike are each on it in a part of the resamples."""
        shares = front_membership(of((100, 0.0100), (101, 0.0099)))

        assert batches(of((100, 0.0100), (101, 0.0099))) == [2]
        assert 0.5 < shares[key({"batch_size": 1})] < 0.95
        assert shares[key({"batch_size": 2})] > shares[key({"batch_size": 1})]

    def test_a_bound_that_may_be_broken_takes_from_it(self) -> None:
        """Who holds a bound in half of the cases is on the front in half of them."""
        shares = front_membership(of((100, 0.01), (200, 0.0249), goal=BOUNDED))

        assert shares[key({"batch_size": 2})] == pytest.approx(0.55, abs=0.12)

"""Trials of a candidate joined to one value, and the chance that its bounds hold."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import t as student
from tests.support.sample_trials import a_trial, add_trials, an_answer

from modeldyno.base.metrics.constraints import Answer, Constraint, Verdict
from modeldyno.base.metrics.measurement import CLIENT_LIMITED, SATURATED, Interval
from modeldyno.base.metrics.metric import Query
from modeldyno.sweeps.study.pooled_estimate import (
    DOUBTED,
    OPEN_ERROR,
    PRIOR,
    UNCERTIFIED,
    Estimate,
    Spread,
    _probability_within,
    bound_miss,
    estimate,
    judge_candidate,
    judge_trial,
    median_trial_error,
    missing_samples,
    pool_answers,
    probability_of_bounds,
    run_to_run_spread,
    search_hint,
    shown_estimate,
    shown_value,
    total_miss,
)
from modeldyno.sweeps.study.search_space import key
from modeldyno.sweeps.study.study import Trial, TrialPurpose, TrialState
from modeldyno.testing.sample_studies import a_served_study, a_study

if TYPE_CHECKING:
    from modeldyno.sweeps.study.study import Candidate, Study

RATE, P99 = Query.parse("throughput"), Query.parse("latency.p99")
HERE = {"batch_size": 1}
BOUND = Constraint.parse("latency.p99 <= 10ms")
KNOWN = Spread(relative=0.03, degrees=1e6)
"""A spread that is not learnt but known."""


def rates(*values: float, error: float = 0.0, stage: TrialPurpose = TrialPurpose.SEARCH) -> list[Trial]:
    return [a_trial(HERE, an_answer("throughput", value, error=error), stage=stage) for value in values]


def the_candidate(study: Study) -> Candidate:
    return study.candidates[key(HERE)]


def of(*trials: Trial, bound: str = "latency.p99 <= 10ms") -> tuple[Study, Candidate]:
    """Make a study of one candidate with one bound."""
    bounds = (Constraint.parse(bound),)
    study = a_study()
    study = add_trials(replace(study, goal=replace(study.goal, constraints=bounds)), trials)
    return study, the_candidate(study)


def feasibility(study: Study, candidate: Candidate) -> float:
    """Return the probability that a candidate works and holds the bounds of its study."""
    spreads = [run_to_run_spread(study, bound.query) for bound in study.goal.constraints]
    return probability_of_bounds(candidate, study.goal, spreads)


class TestSpread:
    def test_without_repeats_it_is_what_is_assumed(self) -> None:
        """A study in which nothing was repeated takes 3 %, worth two degrees of freedom."""
        assert run_to_run_spread(add_trials(a_study(), rates(100.0)), RATE) == Spread(
            relative=PRIOR, degrees=2.0
        )

    @pytest.mark.parametrize("truth", [0.01, 0.03, 0.1])
    def test_it_is_learnt_from_repeats(self, truth: float) -> None:
        """Of many repeats of many points, it is what they differ by."""
        source, trials = np.random.default_rng(4), list[Trial]()
        for batch in range(60):
            for _ in range(6):
                answer = an_answer("throughput", 100.0 * math.exp(source.normal(0, truth)), error=0.0)
                trials.append(a_trial({"batch_size": batch}, answer))

        assert run_to_run_spread(add_trials(a_study(), trials), RATE).relative == pytest.approx(
            truth, rel=0.1
        )

    def test_what_trials_err_by_themselves_is_no_part_of_it(self) -> None:
        """Repeats that differ by less than their own intervals allow leave nothing to the runs."""
        study = add_trials(a_study(), rates(100.0, 104.0, 96.0, 101.0, error=0.1))

        assert run_to_run_spread(study, RATE).relative == pytest.approx(PRIOR * math.sqrt(2 / 5), rel=0.05)
        assert run_to_run_spread(study, RATE).degrees == pytest.approx(2.0, abs=0.01)

    def test_groups_that_err_much_hide_nothing(self) -> None:
        """Runs of 0.42 and 4 ms differ tenfold, however much the trials of other points err by themselves."""
        times = [(1, 0.00042, 0.01), (1, 0.004, 0.01), *((n, 0.002, 0.9) for n in (2, 3, 4) for _ in "ab")]
        trials = [
            a_trial({"batch_size": n}, an_answer("latency.mean", seconds, error=error))
            for n, seconds, error in times
        ]
        study, query = add_trials(a_study(), trials), Query.parse("latency.mean")
        pooled = estimate(study, the_candidate(study), query)

        assert run_to_run_spread(study, query).relative > 0.6
        assert pooled is not None
        assert pooled.low < min(trial_times := (0.00042, 0.004))
        assert pooled.high > max(trial_times)

    @pytest.mark.parametrize("count", [150, pytest.param(2000, marks=pytest.mark.slow)])
    def test_intervals_cover_the_truth_where_errors_differ(self, count: int) -> None:
        """Points whose trials err by 1 to 80 % themselves, and by 20 % from run to run."""
        source, covered = np.random.default_rng(7), 0
        for _ in range(count):
            trials = []
            for batch in range(1, 7):
                own = 0.01 if batch == 1 else math.exp(source.uniform(math.log(0.01), math.log(0.8)))
                for _ in range(3):
                    value = 100.0 * math.exp(source.normal(0, math.hypot(0.2, own)))
                    trials.append(a_trial({"batch_size": batch}, an_answer("throughput", value, error=own)))
            study = add_trials(a_study(), trials)
            pooled = estimate(study, the_candidate(study), RATE)
            assert pooled is not None
            covered += pooled.low <= 100.0 <= pooled.high

        assert 0.93 - 2 * math.sqrt(0.06 / count) <= covered / count <= 0.99

    def test_what_cannot_be_compared_tells_nothing(self) -> None:
        """Failures, counts, zeros, and what was not measured have no spread."""
        exact = [a_trial(HERE, an_answer("throughput", v, exact=True)) for v in (1.0, 2.0)]
        zeros = [a_trial({"batch_size": 2}, an_answer("throughput", v, error=0.0)) for v in (0.0, 2.0)]
        failed = [a_trial({"batch_size": 3}, state=TrialState.FAILED)] * 2
        study = add_trials(a_study(), [*exact, *zeros, *failed])

        assert run_to_run_spread(study, RATE).degrees == 2.0

    def test_a_server_that_stays_open_does_not_repeat_its_start(self) -> None:
        """Of the looks at one server the last counts, beside those that began with a start."""
        trials = rates(100.0, 130.0, 100.0)
        again = rates(100.0, 100.0, stage=TrialPurpose.VERIFY)

        assert run_to_run_spread(add_trials(a_served_study(), trials), RATE).degrees == 2.0
        assert run_to_run_spread(add_trials(a_served_study(), [*trials, *again]), RATE).degrees == 4.0
        assert run_to_run_spread(add_trials(a_served_study(), [*trials, *again]), RATE).relative < PRIOR
        assert run_to_run_spread(add_trials(a_study(), [*trials, *again]), RATE).relative > 0.08


class TestEstimate:
    def test_one_trial(self) -> None:
        """Its error is that of its interval and that from run to run, as of independent causes."""
        pooled = pool_answers([an_answer("throughput", 100.0, error=0.04)], KNOWN)

        assert pooled is not None
        assert pooled.value == pytest.approx(100.0)
        assert pooled.error == pytest.approx(0.05)
        assert pooled.between == pytest.approx(0.03)
        assert math.log(pooled.high / 100) == pytest.approx(1.96 * 0.05, rel=1e-3)
        assert pooled.low * pooled.high == pytest.approx(100.0**2)

    def test_trials_are_weighted_by_how_well_they_are_known(self) -> None:
        """A short look counts less than a long one, and no more than the runs allow."""
        pooled = pool_answers(
            [an_answer("throughput", 100.0, error=0.0), an_answer("throughput", 110.0, error=0.09)], KNOWN
        )

        assert pooled is not None
        assert math.log(pooled.value / 100) == pytest.approx(math.log(1.1) / 11)
        assert pooled.error == pytest.approx(1 / math.sqrt(1 / 0.0009 + 1 / 0.009))

    def test_few_degrees_of_freedom_widen_the_interval(self) -> None:
        """A spread that is an estimate gives Student's interval; where it matters little, a normal one."""
        plain = pool_answers([an_answer("throughput", 100.0, error=0.0)], Spread(relative=0.03, degrees=4.0))
        rough = pool_answers([an_answer("throughput", 100.0, error=0.3)], Spread(relative=0.03, degrees=4.0))

        assert plain is not None
        assert rough is not None
        assert math.log(plain.high / 100) == pytest.approx(2.776 * 0.03, rel=0.01)
        assert math.log(rough.high / 100) == pytest.approx(1.96 * rough.error, rel=0.01)

    @pytest.mark.parametrize("degrees", [2.0, 4.0, 6.0, 30.0])
    def test_intervals_and_chances_are_students(self, degrees: float) -> None:
        """Of two runs with the spread of so many degrees: the end of the interval has 2.5 % beyond it."""
        answers = [an_answer("throughput", 100.0, error=0) for _ in range(2)]
        between = Spread(relative=0.03, degrees=degrees)
        pooled = pool_answers(answers, between)

        assert pooled is not None
        half = float(student.ppf(0.975, degrees)) * 0.03 / math.sqrt(2)
        assert pooled.high == pytest.approx(100 * math.exp(half), rel=1e-6)
        for end, chance in ((pooled.high, 0.975), (pooled.low, 0.025)):
            bound = Constraint.parse(f"throughput <= {end}/s")
            assert _probability_within(pooled, bound, between) == pytest.approx(chance, rel=1e-6)

    def test_an_open_end_is_told_by_the_other(self) -> None:
        """An interval that is bounded on one side gives the error of that side."""
        half = an_answer(
            "throughput", 100.0, interval=Interval(low=100 / math.exp(1.96 * 0.04), high=math.inf)
        )
        pooled = pool_answers([half], KNOWN)

        assert pooled is not None
        assert pooled.error == pytest.approx(0.05, rel=1e-3)

    def test_an_interval_that_reaches_zero(self) -> None:
        """It has no logarithm; its distance is taken as a share of the value."""
        wide = an_answer("throughput", 100.0, interval=Interval(low=0.0, high=math.inf))
        pooled = pool_answers([wide], KNOWN)

        assert pooled is not None
        assert pooled.error == pytest.approx(math.hypot(1 / 1.96, 0.03), rel=1e-3)

    def test_a_count_has_no_error(self) -> None:
        """Two trials that counted the same agree for certain; those that did not, do not."""
        same = [an_answer("parameters", 7.0, exact=True)] * 2
        other = [*same, an_answer("parameters", 8.0, exact=True)]
        pooled, differing = pool_answers(same, KNOWN), pool_answers(other, KNOWN)

        assert pooled == Estimate(value=7.0, low=7.0, high=7.0, error=0.0)
        assert differing is not None
        assert differing.error > 0

    def test_an_evaluation_keeps_the_interval_of_its_samples(self) -> None:
        """Another process would answer alike, so repeats make it no surer."""
        answer = Answer(
            query=Query.parse("accuracy"), value=0.9, interval=Interval(low=0.88, high=0.92), exact=True
        )
        one, three = (pool_answers([answer] * n, Spread(relative=0.1, degrees=2)) for n in (1, 3))

        assert one == three
        assert one is not None
        assert (one.low, one.value, one.high) == (0.88, 0.9, 0.92)
        assert one.error == pytest.approx(0.0113, abs=1e-4)

    def test_what_has_no_logarithm_is_a_mean(self) -> None:
        """Of zeros and small shares: the mean, with the error that they show, and never below zero."""
        pooled = pool_answers([an_answer("error_rate", v, error=0.0) for v in (0.0, 0.02)], KNOWN)
        none = pool_answers([an_answer("error_rate", 0.0, interval=Interval(low=0.0, high=0.0098))], KNOWN)
        below = pool_answers([an_answer("error_rate", -1.0, error=0.0)], KNOWN)

        assert pooled is not None
        assert (pooled.value, pooled.low) == (0.01, 0.0)
        assert pooled.error == pytest.approx(1.0)
        assert none is not None
        assert none.error == pytest.approx(0.0025, rel=1e-3)
        assert below is not None
        assert below.low == -1.0

    def test_nothing_measured(self) -> None:
        """No answer, or none with a value, is no estimate."""
        assert pool_answers([None, an_answer("throughput", None)], KNOWN) is None

    def test_what_was_verified_speaks_alone(self) -> None:
        """The figure that a candidate was chosen for is not quoted."""
        study = add_trials(a_study(), [*rates(200.0), *rates(100.0, 100.0, stage=TrialPurpose.VERIFY)])
        estimated = estimate(study, the_candidate(study), RATE)

        assert estimated is not None
        assert estimated.value == pytest.approx(100.0)


class TestShown:
    """The one estimate that tables and charts show."""

    def test_what_is_certified_is_shown(self) -> None:
        """With every trial in it; else there is none."""
        study, candidate = of(*rates(100.0, 121.0))
        shown = shown_estimate(study, candidate, RATE)

        assert shown is not None
        assert (round(shown.value, 6), shown.certified) == (110.0, True)
        assert shown_value(study, candidate, RATE) == shown.value
        assert shown_value(study, candidate, Query.parse("energy")) is None

    def test_a_percentile_of_few_samples_is_a_hint(self) -> None:
        """The pooled quantiles of all trials, and none where one of them has no quantile."""
        short = an_answer("latency.p99", None, size=9.0)
        trials = [a_trial(HERE, short, an_answer("latency.p99.raw", value)) for value in (0.004, 0.009)]
        study, candidate = of(*trials)
        shown = shown_estimate(study, candidate, P99)

        assert shown is not None
        assert (round(shown.value, 9), shown.certified) == (0.006, False)
        study, candidate = of(*trials, a_trial(HERE, short))
        assert shown_value(study, candidate, P99) is None

    def test_what_few_samples_leave_open_is_its_error(self) -> None:
        """An interval with two ends is as wide as it is; without one of them nothing is known so well."""
        short = an_answer("latency.p99", None, size=9.0)

        def shown(*ends: float) -> Estimate:
            raw = replace(an_answer("latency.p99.raw", 0.004), interval=Interval(low=ends[0], high=ends[1]))
            study, candidate = of(a_trial(HERE, short, raw))
            return shown_estimate(study, candidate, P99) or pytest.fail("there is none")

        assert 0.03 < shown(0.0038, 0.0042).error < 0.06
        assert shown(0.0038, math.inf).error == shown(-math.inf, math.inf).error == OPEN_ERROR
        assert shown(0.0038, math.inf).high > 3.9 * 0.004
        assert shown(-math.inf, 0.4).error > 2

    def test_one_short_trial_beside_a_certified_one_is_seen_only(self) -> None:
        """They are pooled, as all percentiles of a metric are of the same trials."""
        short = an_answer("latency.p99", None, size=9.0)
        study, candidate = of(
            a_trial(HERE, an_answer("latency.p99", 0.004)),
            a_trial(HERE, short, an_answer("latency.p99.raw", 0.009)),
        )
        shown = shown_estimate(study, candidate, P99)

        assert shown is not None
        assert (round(shown.value, 9), shown.certified) == (0.006, False)


class TestHint:
    def test_the_value_comes_first(self) -> None:
        """Where there are values it is their mean, on the logarithmic scale where there is one."""
        assert search_hint(the_candidate(add_trials(a_study(), rates(100.0, 121.0))), RATE) == pytest.approx(
            110.0
        )
        assert search_hint(the_candidate(add_trials(a_study(), rates(0.0, 2.0))), RATE) == pytest.approx(1.0)

    def test_else_the_plain_quantile(self) -> None:
        """A percentile that is no claim yet is a hint all the same."""
        study, candidate = of(
            a_trial(HERE, an_answer("latency.p99", None), an_answer("latency.p99.raw", 0.02))
        )

        assert search_hint(candidate, P99) == pytest.approx(0.02)
        assert estimate(study, candidate, P99) is None
        assert search_hint(candidate, RATE) is None


class TestFeasibility:
    def test_without_bounds_all_hold(self) -> None:
        """Whatever was measured holds no bounds; what never gave anything does not work."""
        study = replace(a_study(), goal=replace(a_study().goal, constraints=()))
        done, failed = (
            add_trials(study, rates(1.0)),
            add_trials(study, [a_trial(HERE, state=TrialState.FAILED)]),
        )

        assert feasibility(done, the_candidate(done)) == 1.0
        assert feasibility(failed, the_candidate(failed)) == 0.0

    @pytest.mark.parametrize(
        ("value", "least", "most"),
        [(0.005, 0.97, 1.0), (0.01, 0.5, 0.5), (0.0105, 0.05, 0.25), (0.02, 0, 0.03)],
    )
    def test_it_follows_the_distance_to_the_bound(self, value: float, least: float, most: float) -> None:
        """On the bound it is even; well within it is sure, and beyond it is not."""
        study, candidate = of(a_trial(HERE, an_answer("latency.p99", value)))

        assert least - 1e-9 <= feasibility(study, candidate) <= most + 1e-9

    def test_a_lower_bound_is_the_mirror_image(self) -> None:
        """What is at least something holds where the value is above it."""
        low, found_low = of(a_trial(HERE, an_answer("throughput", 90.0)), bound="throughput >= 100/s")
        high, found_high = of(a_trial(HERE, an_answer("throughput", 100 / 0.9)), bound="throughput >= 100/s")

        assert feasibility(low, found_low) == pytest.approx(1 - feasibility(high, found_high))
        assert feasibility(low, found_low) < 0.1

    def test_all_bounds_have_to_hold(self) -> None:
        """Two even chances are a quarter."""
        study = a_study()
        twice = replace(study.goal, constraints=(BOUND, Constraint.parse("throughput >= 100/s")))
        study = add_trials(
            replace(study, goal=twice),
            [a_trial(HERE, an_answer("latency.p99", 0.01), an_answer("throughput", 100.0))],
        )

        assert feasibility(study, the_candidate(study)) == pytest.approx(0.25)

    @pytest.mark.parametrize(
        ("bound", "held"), [("parameters <= 7", 1.0), ("parameters < 7", 0.0), ("parameters <= 0", 0.0)]
    )
    def test_a_count_is_judged_for_certain(self, bound: str, held: float) -> None:
        """Seven is at most seven, and not less."""
        study, candidate = of(a_trial(HERE, an_answer("parameters", 7.0, exact=True)), bound=bound)

        assert feasibility(study, candidate) == held

    @pytest.mark.parametrize(("value", "high", "held"), [(0.0, 0.0098, 0.977), (0.01, 0.02, 0.025)])
    def test_a_bound_or_a_value_of_zero(self, value: float, high: float, held: float) -> None:
        """Where there is no logarithm, distances are plain ones."""
        bound = "error_rate <= 0.5%" if not value else "error_rate <= 0"
        answer = an_answer("error_rate", value, interval=Interval(low=0.0, high=high))
        study, candidate = of(a_trial(HERE, answer), bound=bound)

        assert feasibility(study, candidate) == pytest.approx(held, abs=0.02)

    def test_what_is_no_claim_yet_is_at_most_even(self) -> None:
        """A percentile for which samples are missing, or that nobody measured, certifies nothing."""
        near = a_trial(HERE, an_answer("latency.p99", None), an_answer("latency.p99.raw", 0.001))
        far = a_trial(HERE, an_answer("latency.p99", None), an_answer("latency.p99.raw", 0.02))

        assert feasibility(*of(near)) == UNCERTIFIED
        assert feasibility(*of(far)) < 0.1
        assert feasibility(*of(*rates(1.0))) == UNCERTIFIED

    def test_a_percentile_without_a_value_can_break_a_bound(self) -> None:
        """What is above the bound for certain need not be known exactly."""
        broken = an_answer("latency.p99", None, interval=Interval(low=0.02, high=math.inf))
        study, candidate = of(a_trial(HERE, broken, an_answer("latency.p99.raw", 0.005)))

        assert feasibility(study, candidate) == 0.0

    def test_a_run_that_broke_it_counts_against_the_others(self) -> None:
        """Of three runs one was an overload: two thirds of what the others say."""
        void = an_answer("latency.p99", None, interval=Interval(low=0.02, high=math.inf))
        fine = a_trial(HERE, an_answer("latency.p99", 0.001))

        assert feasibility(*of(fine, fine, a_trial(HERE, void))) == pytest.approx(2 / 3, abs=0.01)

    def test_a_look_that_was_too_short_takes_nothing_away(self) -> None:
        """A certified value stands, though another trial had too few samples."""
        short = a_trial(HERE, an_answer("latency.p99", None))

        assert feasibility(*of(short, a_trial(HERE, an_answer("latency.p99", 0.001)))) > 0.98

    @pytest.mark.parametrize("doubt", [SATURATED, CLIENT_LIMITED])
    def test_an_overloaded_server_or_client_is_never_sure(self, doubt: str) -> None:
        """Whatever the figures say, they are not those of a server in a steady state."""
        trial = a_trial(HERE, an_answer("throughput", 1e6), doubts=(doubt,))

        assert feasibility(*of(trial, bound="throughput >= 1/s")) == DOUBTED

    def test_what_failed_when_it_was_tried_again_may_fail_in_use(self) -> None:
        """A candidate that verified once and crashed once works in half of the cases."""
        fine = an_answer("latency.p99", 0.001)
        searched = a_trial(HERE, fine)
        crashed = a_trial(HERE, stage=TrialPurpose.VERIFY, state=TrialState.FAILED)
        again = a_trial(HERE, fine, stage=TrialPurpose.VERIFY)

        assert feasibility(*of(searched, crashed)) == pytest.approx(0.5, abs=0.01)
        assert feasibility(*of(searched, crashed, again)) == pytest.approx(0.5, abs=0.01)
        assert feasibility(*of(a_trial(HERE, state=TrialState.FAILED), again)) > 0.98


class TestMiss:
    def test_it_is_the_share_of_the_bound(self) -> None:
        """A latency of 15 ms misses 10 ms by half, and a rate of 80 misses 100 by a fifth."""
        study = a_study()
        goal = replace(study.goal, constraints=(BOUND, Constraint.parse("throughput >= 100/s")))
        over = add_trials(
            study, [a_trial(HERE, an_answer("latency.p99", 0.015), an_answer("throughput", 80.0))]
        )
        fine = add_trials(
            study, [a_trial(HERE, an_answer("latency.p99", 0.005), an_answer("throughput", 200.0))]
        )

        assert total_miss(the_candidate(over), goal) == pytest.approx(0.7)
        assert total_miss(the_candidate(fine), goal) == 0.0

    def test_a_bound_of_zero_is_missed_by_the_whole(self) -> None:
        """There is no share of nothing."""
        study, candidate = of(a_trial(HERE, an_answer("error_rate", 0.01)), bound="error_rate <= 0")
        none, fine = of(a_trial(HERE, an_answer("error_rate", 0.0, error=0.0)), bound="error_rate <= 0")

        assert total_miss(candidate, study.goal) == 1.0
        assert total_miss(fine, none.goal) == 0.0

    def test_what_is_void_misses_by_what_is_known(self) -> None:
        """The end of an interval is used where there is no value; without either nothing is missed."""
        void = an_answer("latency.p99", None, interval=Interval(low=0.02, high=math.inf))
        _, candidate = of(a_trial(HERE, void))
        _, unknown = of(a_trial(HERE))
        rate = Constraint.parse("throughput >= 100/s")
        _, slow = of(
            a_trial(HERE, an_answer("throughput", None, interval=Interval(low=-math.inf, high=50.0)))
        )

        assert bound_miss(candidate, BOUND) == pytest.approx(1.0)
        assert bound_miss(unknown, BOUND) == 0.0
        assert bound_miss(slow, rate) == pytest.approx(0.5)

    def test_a_failure_misses_everything(self) -> None:
        """What never gave anything misses by more than whatever did."""
        study, candidate = of(a_trial(HERE, state=TrialState.FAILED))

        assert total_miss(candidate, study.goal) == math.inf


class TestJudgement:
    def test_a_trial_is_judged_under_any_goal(self) -> None:
        """By its answer; else as it was judged when it was made; else it is undecided."""
        _, candidate = of(a_trial(HERE, an_answer("latency.p99", 0.005)))
        made = BOUND.on(Answer(query=P99, value=0.02, exact=True))
        other = Constraint.parse("latency.p99 <= 1ms")

        assert judge_trial(candidate.trials[0], other).verdict is Verdict.BROKEN
        assert judge_trial(replace(a_trial(HERE), judgements=(made,)), BOUND) == made
        assert judge_trial(a_trial(HERE), BOUND).verdict is Verdict.UNDECIDED

    @pytest.mark.parametrize("verdict", [Verdict.BROKEN, Verdict.HELD])
    def test_without_a_value_the_trial_that_decides_speaks_for_all(self, verdict: Verdict) -> None:
        """A bound that one trial broke, or held, is not undecided because a later one could not say."""
        low, high = (0.02, math.inf) if verdict is Verdict.BROKEN else (0.0, 0.001)
        known = an_answer("latency.p99", None, interval=Interval(low=low, high=high))
        study, candidate = of(a_trial(HERE, known), a_trial(HERE, an_answer("latency.p99", None)))

        assert [judged.verdict for judged in judge_candidate(study, candidate)] == [verdict]


# --- percentiles of few samples ----------------------------------------------------------------------


def looked(p99: float, size: float | None) -> Trial:
    """Measure a 99th percentile of so many effective samples, too few for a claim; None: it is void."""
    ends = Interval(low=p99 / 1.2, high=math.inf)
    return a_trial(
        HERE,
        an_answer("latency.p99", None, size=size, interval=ends),
        an_answer("latency.p99.raw", p99, size=size, interval=ends),
        stage=TrialPurpose.VERIFY,
    )


@pytest.mark.parametrize(
    ("sizes", "certified"), [((331, 331), True), ((331, 330), False), ((900, None), False)]
)
def test_a_percentile_is_a_claim_of_all_samples_together(
    sizes: tuple[float | None, ...], certified: bool
) -> None:
    """The floor is that of the pool over fresh processes; what is void is no part of it."""
    trials = [looked(0.004, sizes[0]), looked(0.004, sizes[1])]
    study, candidate = of(*trials)
    estimated = estimate(study, candidate, P99)

    assert (estimated is not None) == certified
    assert estimated is None or estimated.value == pytest.approx(0.004)
    assert (feasibility(study, candidate) > UNCERTIFIED) == certified


@pytest.mark.parametrize(
    ("sizes", "lacking"),
    [((331, 331), 0), ((662 / 4,), 3), ((662 / 4, 662 / 4), 1), ((900, None), 0), ((0,), 0)],
)
def test_what_a_percentile_lacks_is_told_for_each_sample_that_it_has(
    sizes: tuple[float | None, ...], lacking: float
) -> None:
    """Of a load that was void no number is enough, and of nothing none follows."""
    assert missing_samples([looked(0.004, size) for size in sizes], BOUND) == pytest.approx(lacking)


def test_nothing_is_lacking_where_no_number_of_samples_helps() -> None:
    """What was not measured is not waited for, nor is what is claimed without samples."""
    assert missing_samples([a_trial(HERE)], BOUND) == 0
    assert missing_samples([looked(0.004, 100)], Constraint.parse("throughput >= 1/s")) == 0


def test_the_spread_is_learnt_from_percentiles_of_few_samples() -> None:
    """What repeats differ by tells of the spread, whether each is a claim or not."""
    study, _ = of(*(looked(p99, 100.0) for p99 in (0.002, 0.008, 0.002, 0.008)))

    assert run_to_run_spread(study, P99).relative > 10 * PRIOR


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ([an_answer("throughput", 100.0, error=e) for e in (0.05, 0.01, 0.3)], 0.05),
        ([an_answer("throughput", 100.0, error=0)], 0.0),
        ([an_answer("throughput", 0.0), an_answer("throughput", 100.0, error=0.05)], 0.05),
        ([an_answer("throughput", None)], 0.0),
    ],
)
def test_looks_tell_by_how_much_they_err_themselves(answers: list[Answer], error: float) -> None:
    """The median share of their values; what was seen once tells nothing, and 0 is no measure of anything."""
    study, _ = of(*(a_trial(HERE, answer) for answer in answers))

    assert median_trial_error(study, Query.parse("throughput")) == pytest.approx(error)


def test_a_percentile_is_not_blurred() -> None:
    """A look gives a hint of it alone."""
    study, _ = of(a_trial(HERE, an_answer("latency.p99", 0.002, error=0.5)))

    assert median_trial_error(study, P99) == 0.0


@pytest.mark.parametrize(
    ("slowed", "least", "factor"),
    [(3.0, 1.0, 3.0), (3.0, 1.5, 2.0), (1.05, 1.0, 1.0), (2.0, 2.0, 1.0)],
)
def test_what_others_may_have_done_to_a_trial_alone_is_an_error_of_it(
    slowed: float, least: float, factor: float
) -> None:
    """Either way; up to 8 % it is that of any two times, and what all trials had counts for none."""
    (plain,) = rates(100.0)
    elsewhere = replace(plain, point={"batch_size": 2}, slowed=least)

    def error(trial: Trial) -> float:
        study = add_trials(a_study(), [trial, elsewhere])
        pooled = estimate(study, the_candidate(study), RATE)
        assert pooled is not None
        return pooled.error

    own = math.log(factor) / 1.96
    expected = math.hypot(error(replace(plain, slowed=least)), own)
    assert error(replace(plain, slowed=slowed)) == pytest.approx(expected, rel=1e-3)


def test_neighbours_change_no_answer_and_no_count() -> None:
    """What is not of time, or was not measured, is as it is without them."""
    memory = Query.parse("process_memory.max")
    trial = a_trial(HERE, an_answer("process_memory.max", 1e6), an_answer("throughput", 100.0))
    disturbed = [replace(trial, slowed=3.0), replace(trial, point={"batch_size": 2})]
    study = add_trials(a_study(), disturbed)
    quiet = add_trials(a_study(), [replace(each, slowed=1.0) for each in disturbed])

    for query in (memory, P99):
        assert estimate(study, the_candidate(study), query) == estimate(quiet, the_candidate(quiet), query)


def test_a_disturbed_percentile_that_was_only_seen_has_the_error_too() -> None:
    """One trial that lacks it leaves it out for all."""
    seen = an_answer("latency.p99", None, size=10), an_answer("latency.p99.raw", 0.01)
    trial = a_trial(HERE, *seen)
    quiet = replace(trial, point={"batch_size": 2})
    study = add_trials(a_study(), [replace(trial, slowed=50.0), quiet])
    shown, plain = (
        shown_estimate(each, the_candidate(each), P99)
        for each in (study, add_trials(a_study(), [trial, quiet]))
    )

    assert shown is not None
    assert plain is not None
    assert shown.error > plain.error
    lacking = add_trials(study, [a_trial(HERE)])
    assert shown_estimate(lacking, the_candidate(lacking), P99) is None

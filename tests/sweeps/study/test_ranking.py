"""The order of candidates, and what may be said of the first."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_trials import a_trial, add_trials, an_answer

from modeldyno.base.metrics.constraints import Constraint, Verdict
from modeldyno.base.metrics.measurement import Interval
from modeldyno.sweeps.study.goal import Goal, Objective, Rank
from modeldyno.sweeps.study.ranking import RankedConfiguration, Ranking, ranking
from modeldyno.sweeps.study.study import TrialPurpose, TrialState
from modeldyno.testing.sample_studies import a_served_study, a_study

if TYPE_CHECKING:
    from modeldyno.sweeps.study.search_space import Point
    from modeldyno.sweeps.study.study import Study, Trial

FREE = Goal(objectives=(Objective.parse("throughput"),))
WITHIN = Goal(
    objectives=(Objective.parse("throughput"),), constraints=(Constraint.parse("latency.p99 <= 10ms"),)
)
BOTH = Goal(objectives=(Objective.parse("throughput:3"), Objective.parse("latency.p99")))


def tried(
    point: Point,
    rate: float,
    p99: float = 0.005,
    *,
    stage: TrialPurpose = TrialPurpose.SEARCH,
    error: float = 0.01,
) -> Trial:
    answers = an_answer("throughput", rate, error=error), an_answer("latency.p99", p99, error=error)
    return a_trial(point, *answers, stage=stage)


def batches(*rates: float, stage: TrialPurpose = TrialPurpose.SEARCH) -> list[Trial]:
    """Measure the batches 1, 2, ...; the first is the default."""
    return [tried({"batch_size": place}, rate, stage=stage) for place, rate in enumerate(rates, 1)]


def in_process(*trials: Trial, goal: Goal = FREE, **changes: object) -> Study:
    return add_trials(a_study("batch_size=1..9", goal=goal, default={"batch_size": 1}, **changes), trials)


def served(*trials: Trial, goal: Goal = WITHIN) -> Study:
    axes = ("instances=1..4", "concurrency=1..64*2")
    return add_trials(a_served_study(*axes, goal=goal, default={"instances": 1}), trials)


def at(instances: int, concurrency: int) -> Point:
    return {"instances": instances, "concurrency": concurrency}


def points(ranked: Ranking) -> list[Point]:
    return [row.point for row in ranked.rows]


def the_best(ranked: Ranking) -> RankedConfiguration:
    assert ranked.best is not None
    return ranked.best


class TestOrder:
    def test_the_best_comes_first(self) -> None:
        """Rows fall from the highest score to the least, numbered from 1."""
        ranked = ranking(in_process(*batches(100, 300, 200)))

        assert [row.point["batch_size"] for row in ranked.rows] == [2, 3, 1]
        assert [row.rank for row in ranked.rows] == [1, 2, 3]
        assert the_best(ranked) == ranked.rows[0]
        assert ranked.default == ranked.rows[2]
        assert ranked.rows[2].default

    def test_what_is_to_be_small_is_turned_round(self) -> None:
        """The least latency is the best."""
        goal = Goal(objectives=(Objective.parse("latency.p99"),))
        trials = [tried({"batch_size": n}, 1.0, p99) for n, p99 in ((1, 0.01), (2, 0.005))]
        ranked = ranking(in_process(*trials, goal=goal))

        gain = the_best(ranked).gain
        assert gain is not None
        assert the_best(ranked).point == {"batch_size": 2}
        assert gain.times == pytest.approx(2.0)

    def test_what_misses_its_bounds_comes_after_what_holds_them(self) -> None:
        """Those that miss less come before those that miss more, however fast."""
        trials = [
            tried({"batch_size": n}, rate, p99)
            for n, rate, p99 in ((1, 100, 0.005), (2, 900, 0.03), (3, 500, 0.02))
        ]
        ranked = ranking(in_process(*trials, goal=WITHIN))

        assert [row.point["batch_size"] for row in ranked.rows] == [1, 3, 2]
        assert [row.feasible for row in ranked.rows] == [True, False, False]
        assert [row.miss for row in ranked.rows] == pytest.approx([0.0, 1.0, 2.0])
        assert [row.verdict for row in ranked.rows] == [Verdict.HELD, Verdict.BROKEN, Verdict.BROKEN]

    def test_the_second_row_is_the_second_best(self) -> None:
        """What seems to hold a bound but lacks samples comes before slower rows that surely hold it."""

        def short(batch: int, rate: float, raw: float) -> Trial:
            p99 = an_answer("latency.p99", None, interval=Interval(low=raw, high=0.1), size=20.0)
            raw_p99 = an_answer("latency.p99.raw", raw)
            return a_trial({"batch_size": batch}, an_answer("throughput", rate), p99, raw_p99)

        unseen = a_trial({"batch_size": 6}, an_answer("throughput", 990.0))
        trials = (
            *(
                tried({"batch_size": 1}, 100),
                tried({"batch_size": 2}, 500),
                tried({"batch_size": 3}, 900, 0.03),
            ),
            *(short(4, 400, 0.006), short(5, 950, 0.0099), unseen, short(7, 999, 0.0099)),
            a_trial({"batch_size": 7}, state=TrialState.FAILED),
        )
        ranked = ranking(in_process(*trials, goal=WITHIN))

        assert [row.point["batch_size"] for row in ranked.rows] == [2, 5, 4, 1, 7, 6, 3]
        assert [str(row.verdict) for row in ranked.rows] == [
            *("held", "undecided", "undecided", "held", "undecided", "undecided", "broken")
        ]
        assert the_best(ranked).point == {"batch_size": 2}

    def test_what_has_no_rank_for_its_doubt_is_named(self) -> None:
        """The first three of them, each with its doubt; not what failed."""
        honest = a_trial({"batch_size": 1}, an_answer("throughput", 100.0))
        cheats = [
            a_trial({"batch_size": size}, an_answer("throughput", 900.0), doubts=("drift", "rows-repeat"))
            for size in (2, 3, 4, 5)
        ]
        failed = a_trial({"batch_size": 6}, state=TrialState.FAILED)

        (doubt,) = (d for d in ranking(in_process(honest, *cheats, failed)).doubts if d.code == "not-ranked")
        assert doubt.seen.startswith(
            "without a rank: batch_size=2 (rows-repeat), batch_size=3 (rows-repeat), "
        )
        assert "batch_size=4 (rows-repeat) and 1 more; " in doubt.seen
        (only,) = (d for d in ranking(in_process(honest, cheats[0])).doubts if d.code == "not-ranked")
        assert only.seen.startswith("without a rank: batch_size=2 (rows-repeat); ")
        assert not [d for d in ranking(in_process(honest, failed)).doubts if d.code == "not-ranked"]

    @pytest.mark.parametrize("code", ["rows-repeat", "coarse-output", "constant-output"])
    def test_what_may_do_other_work_is_never_the_best(self, code: str) -> None:
        """The fastest is not, if it alone has the doubt; a model that always has it is ranked."""
        default, fast = (an_answer("throughput", rate) for rate in (100.0, 900.0))
        honest = a_trial({"batch_size": 1}, default)
        half = a_trial({"batch_size": 2}, fast, doubts=(code, "drift"))
        constant = a_trial({"batch_size": 1}, default, doubts=(code,))

        ranked = ranking(in_process(honest, half))
        assert the_best(ranked).point == {"batch_size": 1}
        assert [row.objectives for row in ranked.rows if row.point == {"batch_size": 2}] == [(None,)]
        assert the_best(ranking(in_process(constant, half))).point == {"batch_size": 2}

    def test_what_has_no_time_is_never_the_best(self) -> None:
        """A configuration whose answers repeat has no rate, and the next one wins."""
        honest = a_trial({"batch_size": 1}, an_answer("throughput", 100.0))
        repeats = a_trial({"batch_size": 2}, an_answer("throughput", None), doubts=("answers-repeat",))

        assert the_best(ranking(in_process(honest, repeats))).point == {"batch_size": 1}

    def test_where_none_holds_the_bounds_there_is_no_best(self) -> None:
        """The one that misses least is first, and nothing is certain."""
        trials = [tried({"batch_size": n}, 100.0 * n, 0.02 * n) for n in (1, 2, 3)]
        ranked = ranking(in_process(*trials, goal=WITHIN))

        assert ranked.best is None
        assert ranked.near_best == 0.0
        assert points(ranked)[0] == {"batch_size": 1}

    def test_failures_come_last(self) -> None:
        """With what went wrong; what has no value of the objective comes before them."""
        failed = a_trial({"batch_size": 2}, state=TrialState.FAILED)
        without = a_trial({"batch_size": 3}, an_answer("latency.p99", 0.02))
        ranked = ranking(in_process(failed, without, *batches(100), goal=WITHIN))

        assert [row.point["batch_size"] for row in ranked.rows] == [1, 3, 2]
        assert ranked.rows[2].failure == "open: it failed"
        assert ranked.rows[2].kind == "error"
        assert ranked.rows[2].miss == math.inf
        assert ranked.rows[2].verdict is Verdict.BROKEN
        assert [row.gain is None for row in ranked.rows] == [False, True, True]
        assert ranked.failed == 1

    def test_an_undecided_bound_is_no_verdict(self) -> None:
        """A row of which a bound was not measured is neither held nor broken."""
        ranked = ranking(in_process(a_trial({"batch_size": 1}, an_answer("throughput", 100.0)), goal=WITHIN))

        assert ranked.rows[0].verdict is Verdict.UNDECIDED
        assert ranked.best is None

    def test_several_objectives_are_one_score(self) -> None:
        """By weights: three times a gain of 10 % outweighs a loss of 20 %, and not one of 50 %."""
        trials = [
            tried({"batch_size": n}, rate, p99)
            for n, rate, p99 in ((1, 100, 0.01), (2, 110, 0.012), (3, 110, 0.015))
        ]
        ranked = ranking(in_process(*trials, goal=BOTH))

        assert [row.point["batch_size"] for row in ranked.rows] == [2, 1, 3]
        gain = the_best(ranked).gain
        assert gain is not None
        assert gain.times == pytest.approx((1.1**3 / 1.2) ** 0.25)

    def test_nothing_measured_ranks_nothing(self) -> None:
        """A study without trials, or with failures only, has no best."""
        failed = in_process(a_trial({"batch_size": 1}, state=TrialState.FAILED))

        assert ranking(in_process()).rows == ()
        assert ranking(failed).best is None
        assert len(ranking(failed).rows) == 1

    def test_a_single_trial_is_the_best(self) -> None:
        """It is the only one; it does not gain on itself."""
        ranked = ranking(in_process(*batches(100)))

        assert the_best(ranked).gain is not None
        assert the_best(ranked).gain.times == 1.0  # type: ignore[union-attr]
        assert ranked.near_best == 1.0
        assert (ranked.measurements, ranked.configurations, ranked.failed, ranked.skipped) == (1, 1, 0, 0)

    def test_points_that_cannot_be_are_counted(self) -> None:
        """They are no rows."""
        ranked = ranking(in_process(*batches(100), a_trial({"batch_size": 2}, state=TrialState.SKIPPED)))

        assert (len(ranked.rows), ranked.skipped, ranked.measurements) == (1, 1, 1)


class TestNothing:
    """What is to be made smaller may be nothing, of which there is no logarithm."""

    def test_nothing_is_better_than_little_but_not_endlessly(self) -> None:
        """A weight of one per cent does not outvote a factor of a hundred."""
        aims = (Objective.parse("throughput:99"), Objective.parse("error_rate:1"))
        ranked = ranking(_failing((1000.0, 0.001), (10.0, 0.0), goal=Goal(objectives=aims)))

        assert points(ranked) == [{"batch_size": 1}, {"batch_size": 2}]

    def test_nothing_is_best_where_it_is_all_that_is_asked_for(self) -> None:
        """No errors are fewer than few."""
        ranked = ranking(_failing((1.0, 0.5), (1.0, 0.001), (1.0, 0.0), goal=_RELIABLE))

        assert points(ranked)[0] == {"batch_size": 3}
        assert the_best(ranked).gain is not None
        assert ranked.near_best > 0.9

    def test_nothing_of_what_is_to_be_made_larger_is_not_made_good(self) -> None:
        """What gives nothing is last, however well it does in all else."""
        aims = (Objective.parse("throughput:1"), Objective.parse("error_rate:99"))
        ranked = ranking(_failing((10.0, 0.5), (0.0, 0.0), goal=Goal(objectives=aims)))

        assert points(ranked) == [{"batch_size": 1}, {"batch_size": 2}]


_RELIABLE = Goal(objectives=(Objective.parse("error_rate"),))


def _failing(*figures: tuple[float, float], goal: Goal) -> Study:
    """Measure the batches 1, 2, ... with a rate and a share of errors each."""
    trials = (
        a_trial({"batch_size": place}, an_answer("throughput", rate), an_answer("error_rate", share))
        for place, (rate, share) in enumerate(figures, 1)
    )
    return in_process(*trials, goal=goal)


class TestCertainty:
    def test_a_clear_winner_is_certain(self) -> None:
        """Twice the rest, measured twice: it is best in all resamples, and beats the default in all."""
        trials = [*batches(100, 200, 90), *batches(100, 200, 90, stage=TrialPurpose.VERIFY)]
        ranked = ranking(in_process(*trials, *batches(100, 200, 90, stage=TrialPurpose.VERIFY)))
        best = the_best(ranked)

        assert ranked.near_best > 0.99
        assert best.gain is not None
        assert best.gain.sure > 0.99
        assert best.gain.low < 2.0 < best.gain.high
        assert best.gain.times == pytest.approx(2.0)
        assert ranked.rivals == ()
        assert (best.trials, best.verified) == (2, 2)

    def test_what_was_seen_too_seldom_may_still_be_the_best(self) -> None:
        """A certainty over what was tried counts the percentiles that too few samples leave open.

        They were without a rank once: a default of 63 us was "over 99 % certain to be the best" of four, two
        of which had been seen at 32 us.
        """
        goal = Goal(objectives=(Objective.parse("latency.p50"),))

        def seen(batch: int, median: float, stage: TrialPurpose = TrialPurpose.SEARCH) -> Trial:
            raw = an_answer("latency.p50.raw", median, interval=Interval(low=-math.inf, high=0.03))
            return a_trial({"batch_size": batch}, an_answer("latency.p50", None, size=5.0), raw, stage=stage)

        default = [
            a_trial({"batch_size": 1}, an_answer("latency.p50", 63e-6, error=0.05), stage=TrialPurpose.VERIFY)
        ] * 2
        ranked = ranking(in_process(*default, seen(2, 32e-6), seen(3, 410e-6), goal=goal))
        best = the_best(ranked)

        assert best.default
        assert ranked.near_best < 0.6
        assert {row.point["batch_size"] for row in ranked.rivals} == {2, 3}
        values = [value for row in ranked.rows for value in row.objectives if value is not None]
        assert [round(1e6 * value.value) for value in values if not value.certified] == [32, 410]

    def test_equals_share_the_resamples(self) -> None:
        """Two that measured the same are each best in half of them, and named as rivals."""
        ranked = ranking(in_process(*batches(50, 100, 100)))

        assert the_best(ranked).share == pytest.approx(0.5, abs=0.1)
        assert sum(row.share for row in ranked.rows) == pytest.approx(1.0)
        assert [row.point["batch_size"] for row in ranked.rivals] == [3]

    def test_an_answer_that_is_hardly_worse_than_the_best_is_right(self) -> None:
        """Each of two equals is the best in half of the resamples, and within 5 % of it in nearly all."""
        pairs = batches(50, 100, 100)
        well = [*pairs, *(t for _ in range(4) for t in batches(50, 100, 100, stage=TrialPurpose.VERIFY))]
        ranked = ranking(in_process(*well))

        assert the_best(ranked).share < 0.7
        assert ranked.near_best > 0.97
        assert 0.7 < ranking(in_process(*pairs)).near_best < ranked.near_best

    def test_an_answer_that_may_break_its_bound_is_not_near_the_best(self) -> None:
        """Where nothing else is near, it is as certain as that the bounds hold."""
        trials = [tried({"batch_size": 1}, 100), tried({"batch_size": 2}, 900, 0.00995)]
        ranked = ranking(in_process(*trials, goal=WITHIN))

        assert ranked.near_best == pytest.approx(the_best(ranked).share)

    def test_a_chance_to_break_a_bound_takes_from_it(self) -> None:
        """What holds its bound in half of the cases cannot be certain."""
        trials = [tried({"batch_size": 1}, 100), tried({"batch_size": 2}, 900, 0.00995)]
        ranked = ranking(in_process(*trials, goal=WITHIN))

        assert the_best(ranked).point == {"batch_size": 2}
        assert ranked.near_best == pytest.approx(the_best(ranked).chance, abs=0.05)
        assert the_best(ranked).share < 0.7

    def test_it_is_a_function_of_the_study(self) -> None:
        """The same study gives the same ranking; another seed other resamples."""
        study = in_process(*batches(93, 100, 100))

        assert ranking(study) == ranking(study)
        assert ranking(replace(study, seed=1)).near_best != ranking(study).near_best

    def test_what_was_verified_is_preferred(self) -> None:
        """A lucky figure that was not measured again does not displace one that was."""
        again = [*batches(100, 200, stage=TrialPurpose.VERIFY), *batches(100, 200, stage=TrialPurpose.VERIFY)]
        lucky = ranking(in_process(*batches(100, 210, 205), *again))
        better = ranking(in_process(*batches(100, 210, 900), *again))

        assert the_best(lucky).point == {"batch_size": 2}
        assert [row.point["batch_size"] for row in lucky.rivals] == [3]
        assert the_best(better).point == {"batch_size": 3}

    @pytest.mark.parametrize("rate", [0.0, 1e-300])
    def test_a_default_that_gives_nothing_is_beaten_endlessly(self, rate: float) -> None:
        """There is no ratio to nothing."""
        gain = the_best(ranking(in_process(*batches(rate, 100)))).gain

        assert gain is not None
        assert gain.times == math.inf
        assert gain.sure == 1.0

    def test_without_a_default_there_is_no_gain(self) -> None:
        """Where it was not measured, or failed, nothing is compared with it."""
        missing = ranking(in_process(*batches(100, 200)[1:]))
        failed = ranking(
            in_process(a_trial({"batch_size": 1}, state=TrialState.FAILED), *batches(100, 200)[1:])
        )

        assert missing.default is None
        assert the_best(missing).gain is None
        assert failed.default is not None
        assert the_best(failed).gain is None


class TestLoads:
    TRIALS = (
        tried(at(1, 1), 100, 0.004),
        tried(at(1, 8), 200, 0.007),
        tried(at(1, 64), 210, 0.07),
        tried(at(2, 1), 90, 0.004),
        tried(at(2, 8), 400, 0.006),
    )

    def test_a_configuration_stands_for_itself_at_its_best_load(self) -> None:
        """The best within the bounds; its share is that of all its loads."""
        ranked = ranking(served(*self.TRIALS))

        assert points(ranked) == [at(2, 8), at(1, 8)]
        assert ranked.default == ranked.rows[1]
        assert ranked.configurations == 2
        assert ranked.measurements == 5
        assert ranked.near_best > 0.95

    def test_each_load_can_be_ranked_apart(self) -> None:
        """Ranks begin anew at each load; the whole has the facts of the best of them."""
        ranked = ranking(served(*self.TRIALS, goal=replace(WITHIN, rank=Rank.EACH)))

        assert points(ranked) == [at(1, 1), at(2, 1), at(2, 8), at(1, 8), at(1, 64)]
        assert [row.rank for row in ranked.rows] == [1, 2, 1, 2, 1]
        assert [part.best and part.best.point for part in ranked.each] == [at(1, 1), at(2, 8), None]
        assert the_best(ranked).point == at(2, 8)
        assert ranked.measurements == 5

    def test_a_faster_load_whose_bound_is_open_is_promising(self) -> None:
        """A load that surely holds the bounds stands for its configuration; the other is to be verified."""
        open_ = a_trial(at(2, 16), an_answer("throughput", 800.0), an_answer("latency.p99", None))
        row = ranking(served(*self.TRIALS, open_)).rows[0]

        assert (row.point, row.promising) == (at(2, 8), (at(2, 16), at(2, 8)))

    def test_of_loads_that_cannot_be_told_apart_the_verified_one_comes_first(self) -> None:
        """It is verified again before another, unless that wins more than twice as often."""
        again = [tried(at(2, 8), 400, 0.006, stage=TrialPurpose.VERIFY)] * 2
        alike = ranking(served(*self.TRIALS, tried(at(2, 16), 404, 0.006), *again)).rows[0]
        other = ranking(served(*self.TRIALS, tried(at(2, 16), 420, 0.006), *again)).rows[0]

        assert alike.promising == (at(2, 8), at(2, 16))
        assert (other.point, other.promising) == (at(2, 8), (at(2, 16), at(2, 8)))

    def test_a_configuration_that_never_wins_has_nothing_more_to_promise(self) -> None:
        """What stands for it is as good as any other of its loads."""
        row = ranking(served(*self.TRIALS)).rows[1]

        assert row.share < 0.01
        assert row.promising == (row.point,)

    def test_a_configuration_that_failed_at_all_loads_is_one_row(self) -> None:
        """That which tells most of what went wrong."""
        lost = [
            a_trial(at(3, 1), state=TrialState.FAILED),
            a_trial(at(3, 8), an_answer("latency.p99", 0.01)),
            a_trial(at(3, 64), state=TrialState.FAILED),
        ]

        assert points(ranking(served(*self.TRIALS, *lost)))[2:] == [at(3, 8)]


class TestSafe:
    EDGE = tried(at(2, 16), 800, 0.0098, error=0.05)
    """A load that may break its bound of 10 ms."""

    def test_beside_a_best_that_may_break_its_bound_stands_what_surely_holds(self) -> None:
        """The best of all such points, be it another load of the same configuration."""
        own = ranking(served(*TestLoads.TRIALS, self.EDGE, tried(at(2, 8), 400, 0.006)))
        other = ranking(served(*TestLoads.TRIALS[:3], self.EDGE))

        assert the_best(own).point == the_best(other).point == at(2, 16)
        assert the_best(own).verdict is Verdict.UNDECIDED
        assert own.safe is not None
        assert (own.safe.point, own.safe.rank, own.safe.verdict) == (at(2, 8), 1, Verdict.HELD)
        assert other.safe is not None
        assert (other.safe.point, other.safe.rank) == (at(1, 8), 2)

    def test_a_best_that_holds_is_safe_itself(self) -> None:
        """Nothing stands beside it."""
        assert ranking(served(*TestLoads.TRIALS)).safe is None

    def test_what_was_verified_is_preferred_to_what_may_be_better(self) -> None:
        """As for the best itself: one that is surely better stands for itself, by one look."""
        again = [tried(at(n, c), 200, 0.006, stage=TrialPurpose.VERIFY) for n, c in ((1, 8),)] * 2
        edge = [tried(at(2, 16), 800, 0.0098, stage=TrialPurpose.VERIFY, error=0.05)] * 2
        alike = ranking(served(self.EDGE, tried(at(1, 8), 200), tried(at(3, 8), 201), *edge, *again))
        better = ranking(served(self.EDGE, tried(at(1, 8), 200), tried(at(3, 8), 400), *edge, *again))

        assert alike.safe is not None
        assert alike.safe.point == at(1, 8)
        assert better.safe is not None
        assert better.safe.point == at(3, 8)

    def test_where_nothing_surely_holds_nothing_is_safe(self) -> None:
        """The best, of which it is not known, is all that there is."""
        assert ranking(served(self.EDGE)).safe is None


class TestCheaper:
    def test_of_equals_the_one_that_takes_less(self) -> None:
        """Three instances and two that cannot be told apart: two will do."""
        ranked = ranking(served(tried(at(1, 8), 100), tried(at(3, 8), 401), tried(at(2, 8), 400)))

        assert the_best(ranked).point == at(3, 8)
        assert ranked.cheaper is not None
        assert ranked.cheaper.point == at(2, 8)

    def test_the_cheapest_is_not_told_to_be_replaced(self) -> None:
        """Where the best takes least there is nothing cheaper."""
        ranked = ranking(served(tried(at(1, 8), 100), tried(at(3, 8), 400), tried(at(2, 8), 401)))

        assert len(ranked.rivals) == 1
        assert ranked.cheaper is None

    def test_what_is_worse_by_more_than_matters_is_no_substitute(self) -> None:
        """A rival that may be as good, but is 6 % worse as far as is known, is not advised."""
        ranked = ranking(served(tried(at(1, 8), 100), tried(at(3, 8), 425), tried(at(2, 8), 400)))

        assert len(ranked.rivals) == 1
        assert ranked.cheaper is None

    def test_what_was_not_verified_is_no_substitute_for_what_was(self) -> None:
        """An unproven figure is no reason to change one's mind."""
        again = [tried(at(n, 8), 100.0 * n, stage=TrialPurpose.VERIFY) for n in (1, 3)] * 2
        ranked = ranking(served(tried(at(1, 8), 100), tried(at(3, 8), 300), tried(at(2, 8), 299), *again))

        assert [row.point for row in ranked.rivals] == [at(2, 8)]
        assert ranked.cheaper is None

    @pytest.mark.parametrize(
        ("first", "second", "cheaper"), [(1.0, 2.0, None), (2.0, 1.0, 3), (1.01, 1.0, None), (None, 1.0, 3)]
    )
    def test_then_the_smaller_memory(self, first: float | None, second: float, cheaper: int | None) -> None:
        """Of as many instances that which takes less memory, where it is less by what matters."""
        memory = [
            None if each is None else an_answer("process_memory.max", each * 2**30)
            for each in (first, second)
        ]
        trials = [
            a_trial({"batch_size": n}, *filter(None, (an_answer("throughput", rate), taken)))
            for n, rate, taken in ((2, 401.0, memory[0]), (3, 400.0, memory[1]))
        ]
        substitute = ranking(in_process(*trials)).cheaper

        assert (substitute.point["batch_size"] if substitute else None) == cheaper

    def test_what_is_rarely_the_best_says_how_often_it_is_nearly_so(self) -> None:
        """At 2 % less two instances are hardly ever the best, and nearly always within 5 % of it."""
        again = [tried(at(n, 8), rate, stage=TrialPurpose.VERIFY) for n, rate in ((3, 408), (2, 400))] * 4
        ranked = ranking(served(tried(at(1, 8), 100), tried(at(3, 8), 408), tried(at(2, 8), 400), *again))

        assert ranked.cheaper is not None
        assert ranked.cheaper.share < 0.1
        assert ranked.cheaper_near > 0.95

    def test_what_may_well_break_its_bound_is_no_substitute(self) -> None:
        """It would save an instance, and hold the bound in six cases of ten, where the best always does."""
        edge = tried(at(2, 8), 400, 0.00985, error=0.05)
        ranked = ranking(served(tried(at(1, 8), 100), tried(at(3, 8), 401, error=0.05), edge))

        assert the_best(ranked).point == at(3, 8)
        assert [row.point for row in ranked.rivals] == [at(2, 8)]
        assert ranked.cheaper is None

    def test_then_the_default(self) -> None:
        """Whoever cannot tell a candidate from the default need not change anything."""
        ranked = ranking(in_process(*batches(400, 401)))

        assert the_best(ranked).point == {"batch_size": 2}
        assert ranked.cheaper is not None
        assert ranked.cheaper.default

    @pytest.mark.parametrize(("chosen", "cheaper"), [(4, 4), (0, None), (True, None), ("all", None)])
    def test_what_a_point_does_not_say_is_what_the_job_says(self, chosen: object, cheaper: object) -> None:
        """Threads of the default are those of its Job; a number that is left to the runtime is the most."""
        study = a_study("threads=0..9", goal=FREE, default={})
        study = replace(study, job=replace(study.job, config={"threads": 8}))
        trials = [
            a_trial({}, an_answer("throughput", 401.0)),
            a_trial({"threads": chosen}, an_answer("throughput", 400.0)),  # type: ignore[dict-item]
        ]
        substitute = ranking(add_trials(study, trials)).cheaper

        assert (substitute.point["threads"] if substitute else None) == (
            chosen if cheaper is not None or isinstance(chosen, bool | str) else None
        )


def test_loads_that_are_products_of_knobs_are_ranked_by_their_numbers() -> None:
    """Four instances at ``2*instances`` are under the same load as two at eight."""
    study = a_served_study("instances=2,4", "concurrency=2*instances,8", goal=FREE, default={"instances": 2})
    trials = [
        tried({"instances": n, "concurrency": load}, 100.0 * n)
        for n, load in ((2, "2*instances"), (2, 8), (4, "2*instances"), (4, 8))
    ]
    ranked = ranking(add_trials(replace(study, goal=replace(FREE, rank=Rank.EACH)), trials))

    assert [study.resolved(trial.point)["concurrency"] for trial in trials] == [4, 8, 8, 8]
    assert [[row.point["instances"] for row in each.rows] for each in ranked.each] == [[2], [4, 2]]

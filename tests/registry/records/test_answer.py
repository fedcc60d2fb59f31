from __future__ import annotations

import random
from typing import Any

import pytest
from tests.support.sample_registry import a_figure, a_target, a_task, a_version

from modeldyno.base.metrics.constraints import Constraint, Verdict
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, observed_number
from modeldyno.base.result.cost import Price
from modeldyno.base.result.result import Failure, FailureKind
from modeldyno.base.result.where import kept_numbers
from modeldyno.registry.records.answer import AnswerCandidate, AnswerState, choose, judge_figure
from modeldyno.registry.records.records import FigureState
from modeldyno.testing.sample_results import a_small_result

FAST = Constraint.parse("latency.p50 <= 20ms")
MUCH = Constraint.parse("throughput >= 100/s")
TASK = a_task(a_version())
TEN_MS = Measurement(
    metric="latency", value=Distribution.of([0.01 + 1e-5 * (n * 7919 % 13) for n in range(500)])
)


def rate(name: str, value: float, error: float = 0.1) -> Measurement:
    """Make a rate with its interval."""
    interval = Interval(low=value * (1 - error), high=value * (1 + error))
    return Measurement(metric=name, value=value, interval=interval)


def judged(
    *measurements: Measurement,
    bounds: tuple[Constraint, ...] = (),
    demand: float | None = None,
    price: Price | None = None,
    among: int = 1,
    **changes: Any,
) -> AnswerCandidate:
    """Judge a figure of these measurements."""
    return judge_figure(
        a_figure(TASK, **changes),
        a_small_result(measurements=measurements),
        a_target(),
        bounds=bounds,
        demand=demand,
        price=price,
        among=among,
    )


class TestCandidate:
    def test_a_fresh_figure_that_holds_answers(self) -> None:
        """It has its rate, and no reason to be out."""
        choice = judged(TEN_MS, rate("throughput", 200.0, 0.25), bounds=(FAST, MUCH))

        assert choice.out == ""
        assert [judgement.verdict for judgement in choice.judgements] == [Verdict.HELD, Verdict.HELD]
        assert (choice.rate, choice.rate_interval) == (200.0, Interval(low=150.0, high=250.0))
        assert (choice.replicas, choice.per_hour) == (None, None)

    @pytest.mark.parametrize("state", [state for state in FigureState if state is not FigureState.FRESH])
    def test_any_other_figure_is_out_with_its_reason(self, state: FigureState) -> None:
        """Also one whose numbers would hold the bounds."""
        assert judged(TEN_MS, state=state, why="too old", bounds=(FAST,)).out == f"{state}: too old"
        assert judged(TEN_MS, state=state, bounds=(FAST,)).out == str(state)

    def test_one_that_ran_out_of_memory_surely_does_not_hold(self) -> None:
        """With the reason; another failure leaves it open."""
        failed = a_figure(TASK, state=FigureState.FAILED, why="call: no")
        by_kind = {
            kind: judge_figure(
                failed,
                a_small_result(failures=(Failure(where="call", kind=kind, message="no 8 GiB left"),)),
                a_target(),
                bounds=(FAST,),
                demand=None,
                price=None,
            )
            for kind in (FailureKind.OOM, FailureKind.CRASH)
        }

        assert by_kind[FailureKind.OOM].out == "it does not fit in memory: no 8 GiB left"
        assert by_kind[FailureKind.OOM].surely_out
        assert by_kind[FailureKind.CRASH].out == "failed: call: no"
        assert not by_kind[FailureKind.CRASH].surely_out
        assert choose("digits", [by_kind[FailureKind.OOM], BROKEN]).state is AnswerState.NOTHING_HOLDS
        assert choose("digits", [by_kind[FailureKind.CRASH], BROKEN]).state is AnswerState.UNKNOWN

    def test_a_figure_without_its_result_is_out(self) -> None:
        """Somebody has removed it from the store."""
        choice = judge_figure(a_figure(TASK), None, None, bounds=(), demand=None, price=None)
        assert choice.out == "its result is no longer in the store"

    def test_a_bound_on_what_was_not_measured_is_named(self) -> None:
        """Nothing else is judged then."""
        choice = judged(TEN_MS, bounds=(FAST, MUCH))
        assert choice.out == "not measured: throughput >= 100/s"
        assert choice.judgements == ()

    def test_a_broken_bound_is_told_with_figures(self) -> None:
        """And an undecided one as such."""
        broken = judged(TEN_MS, rate("throughput", 50.0), bounds=(FAST, MUCH))
        assert broken.out.startswith("throughput >= 100/s: broken (50/s")
        undecided = judged(TEN_MS, rate("throughput", 105.0), bounds=(MUCH,))
        assert "undecided" in undecided.out

    def test_both_bounds_that_do_not_hold_are_told(self) -> None:
        """One after the other."""
        slow = Constraint.parse("latency.p50 <= 1ms")
        out = judged(TEN_MS, rate("throughput", 50.0), bounds=(slow, MUCH)).out
        assert out.count("broken") == 2
        assert "; throughput" in out


class TestKeptNumbers:
    """What a store keeps of a Result answers as the Result itself."""

    @pytest.mark.parametrize(
        "text",
        ["latency.p50 <= 20ms", "latency.p99.9 <= 20ms", "latency.p50 <= 1ms", "throughput >= 195/s"],
    )
    def test_the_verdict_and_the_replicas_are_the_same(self, text: str) -> None:
        """Held, not certified, broken and undecided; also of counts and what was seen once."""
        few = Measurement(metric="parameters", value=1000.0)
        once = observed_number("load_time", 2.0)
        result = a_small_result(measurements=(TEN_MS, rate("throughput", 200.0), few, once))
        bounds = tuple(map(Constraint.parse, (text, "parameters <= 1M", "load_time <= 3s")))
        one, other = (
            judge_figure(a_figure(TASK), read, None, bounds=bounds, demand=150.0, price=None, kept=kept)
            for read, kept in ((result, None), (None, kept_numbers(result)))
        )

        assert [j.verdict for j in one.judgements] == [j.verdict for j in other.judgements]
        assert (one.rate_interval, one.replicas) == (other.rate_interval, other.replicas)
        assert bool(one.out) == bool(other.out)

    def test_what_is_not_kept_was_not_measured(self) -> None:
        """As of a Result."""
        choice = judge_figure(a_figure(TASK), None, None, bounds=(MUCH,), demand=None, price=None, kept={})
        assert choice.out == "not measured: throughput >= 100/s"


class TestCertainty:
    def test_without_bounds_it_is_certain(self) -> None:
        """Nothing is claimed."""
        assert judged(TEN_MS).certainty == 1.0

    def test_each_sampled_bound_takes_its_chance_of_error(self) -> None:
        """By how far it is from the bound: at most one end of a 95 % interval for each."""
        hardly = rate("throughput", 100.00100002, 1e-5)
        assert judged(hardly, bounds=(MUCH,)).certainty == pytest.approx(0.975, abs=1e-3)
        assert judged(hardly, bounds=(MUCH, MUCH)).certainty == pytest.approx(0.95, abs=2e-3)
        assert 1 > judged(TEN_MS, bounds=(FAST,)).certainty > 0.9999

    def test_a_median_of_many_samples_is_sure_of_a_bound_that_a_third_of_them_miss(self) -> None:
        """Of some thousand independent ones, 500 would."""
        times = [0.03 if n * 7919 % 3000 < 1000 else 0.01 for n in range(3000)]
        third = Measurement(metric="latency", value=Distribution.of(times))
        assert judged(third, bounds=(FAST,)).certainty == pytest.approx(1.0, abs=1e-6)

    def test_a_count_takes_nothing(self) -> None:
        """It has no error."""
        few = Constraint.parse("parameters <= 1M")
        choice = judged(Measurement(metric="parameters", value=1000.0), bounds=(few,))
        assert (choice.out, choice.certainty) == ("", 1.0)

    def test_a_demand_takes_one_more_end(self) -> None:
        """Of the interval of the rate, by which replicas are counted; one without an interval takes none."""
        assert judged(rate("throughput", 50.0), demand=100.0).certainty == pytest.approx(0.975)
        assert judged(observed_number("throughput", 50.0), demand=100.0).certainty == 1.0

    def test_of_very_many_bounds_it_is_never_below_nothing(self) -> None:
        """A probability."""
        assert judged(rate("throughput", 100.00100002, 1e-5), bounds=(MUCH,) * 50).certainty == 0.0

    def test_what_is_not_the_answer_has_none(self) -> None:
        """It is not told."""
        assert BROKEN.certainty == 0.0

    def test_one_of_many_must_hold_more_surely(self) -> None:
        """Its reason says how sure it is among so many; replicas are counted more carefully, too."""
        near = rate("throughput", 112.0)
        alone, chosen = (judged(near, bounds=(MUCH,), among=among) for among in (1, 20))
        assert (alone.out, alone.certainty > 0.975) == ("", True)
        assert chosen.out.startswith("throughput >= 100/s: held (110/s")
        assert chosen.out.endswith("but chosen from 20 figures with a certainty of 59% only")
        assert not chosen.surely_out
        assert [judged(near, demand=205.0, among=among).replicas for among in (1, 20)] == [3, 3]
        assert [judged(near, demand=201.0, among=among).replicas for among in (1, 20)] == [2, 3]


class TestReplicas:
    def test_they_are_counted_by_the_lower_end_of_the_rate(self) -> None:
        """200/s that may be 180/s need two replicas for 200/s, which cost twice the price."""
        choice = judged(rate("throughput", 200.0), demand=200.0, price=Price(per_hour=1.5))

        assert (choice.replicas, choice.per_hour, choice.out) == (2, 3.0, "")

    def test_requests_count_before_inferences(self) -> None:
        """A demand is in requests."""
        choice = judged(rate("throughput", 1000.0), rate("request_rate", 100.0, 0.0), demand=100.0)
        assert (choice.rate, choice.replicas) == (100.0, 1)

    def test_a_rate_of_nothing_is_none(self) -> None:
        """The next rate is taken, or there is none."""
        assert judged(rate("request_rate", 0.0), rate("throughput", 50.0)).rate == 50.0
        assert judged(rate("request_rate", 0.0)).rate is None

    def test_a_rate_without_an_interval_counts_as_it_is(self) -> None:
        """As another tool reported it."""
        assert judged(observed_number("throughput", 50.0), demand=100.0).replicas == 2

    def test_an_exact_fit_is_not_rounded_up(self) -> None:
        """Three times 0.1 are not a little more than three tenths; less than one replica is one."""
        assert judged(observed_number("throughput", 0.1), demand=0.1 * 3).replicas == 3
        assert judged(observed_number("throughput", 50.0), demand=1.0).replicas == 1

    def test_a_rate_that_was_not_measured_cannot_be_counted(self) -> None:
        """With a demand that is a reason to be out; without one it is none."""
        assert judged(TEN_MS, demand=10.0).out == "its rate was not measured"
        assert judged(TEN_MS).out == ""

    def test_a_rate_that_may_be_nothing_is_too_uncertain(self) -> None:
        """No number of replicas is surely enough."""
        choice = judged(rate("throughput", 50.0, 1.5), demand=10.0, price=Price(per_hour=1.0))
        assert (choice.out, choice.per_hour) == ("its rate is too uncertain to count replicas", None)

    def test_without_a_demand_one_replica_is_paid(self) -> None:
        """The price of one."""
        choice = judged(TEN_MS, price=Price(per_hour=1.5))
        assert (choice.replicas, choice.per_hour) == (None, 1.5)


def candidate(key: str, **changes: Any) -> AnswerCandidate:
    """Make a candidate of a key."""
    return AnswerCandidate(**{"figure": a_figure(TASK, key=key), "target": a_target(), **changes})


BROKEN = judged(TEN_MS, rate("throughput", 50.0), bounds=(MUCH,))
UNDECIDED = judged(TEN_MS, rate("throughput", 105.0), bounds=(MUCH,))


class TestOrder:
    def test_the_cheapest_is_best(self) -> None:
        """Then fewer replicas, then the higher rate, then the key, in whichever order they come."""
        ordered = [
            candidate("cheap", per_hour=1.0, replicas=9, rate=1.0),
            candidate("few", per_hour=2.0, replicas=1, rate=1.0),
            candidate("quick", per_hour=2.0, replicas=2, rate=9.0),
            candidate("a", per_hour=2.0, replicas=2, rate=1.0),
            candidate("b", per_hour=2.0, replicas=2, rate=1.0),
            candidate("unmeasured", per_hour=2.0, replicas=2),
            candidate("unpriced", rate=100.0),
        ]
        for seed in range(20):
            shuffled = random.Random(seed).sample(ordered, len(ordered))
            answer = choose("digits", shuffled)
            assert [c.figure.key for c in (answer.best, *answer.others) if c] == [
                c.figure.key for c in ordered
            ]

    def test_without_price_and_demand_the_highest_rate_is_best(self) -> None:
        """It is the only criterion."""
        answer = choose("digits", [candidate("slow", rate=1.0), candidate("quick", rate=2.0)])
        assert answer.best is not None
        assert answer.best.figure.key == "quick"


class TestChoose:
    def test_one_that_holds_is_found(self) -> None:
        """Whatever the others are, or are waiting for; those are told with their reasons."""
        holds = judged(TEN_MS, rate("throughput", 200.0), bounds=(MUCH,))
        answer = choose(
            "digits", [BROKEN, holds, UNDECIDED], bounds=(MUCH,), demand=5.0, waiting=3, seconds=60.0
        )

        assert answer.state is AnswerState.FOUND
        assert (answer.best, answer.others, answer.fell_out) == (holds, (), (BROKEN, UNDECIDED))
        assert (answer.model, answer.bounds, answer.demand) == ("digits", ("throughput >= 100/s",), 5.0)
        assert (answer.waiting, answer.seconds, answer.price) == (3, 60.0, None)

    def test_nothing_holds_if_all_are_surely_broken(self) -> None:
        """And nothing is still to be measured."""
        answer = choose("digits", [BROKEN, BROKEN])
        assert (answer.state, answer.best) == (AnswerState.NOTHING_HOLDS, None)

    @pytest.mark.parametrize(
        ("candidates", "waiting"),
        [
            ([], 0),
            ([BROKEN], 1),
            ([BROKEN, UNDECIDED], 0),
            ([BROKEN, judged(TEN_MS, state=FigureState.STALE)], 0),
            ([BROKEN, judged(TEN_MS, state=FigureState.DOUBTFUL)], 0),
            ([BROKEN, judged(TEN_MS, bounds=(MUCH,))], 0),
            ([BROKEN, judged(TEN_MS, demand=5.0)], 0),
        ],
    )
    def test_anything_less_is_unknown(self, candidates: list[AnswerCandidate], waiting: int) -> None:
        """No figure, one that waits, is undecided, stale, doubtful, or lacks what the question needs."""
        answer = choose("digits", candidates, waiting=waiting)
        assert (answer.state, answer.best) == (AnswerState.UNKNOWN, None)

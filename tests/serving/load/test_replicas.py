from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.constraints import Answer, Constraint
from modeldyno.base.metrics.measurement import Interval, Measurement, observed_number
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.cost import Price, cost_answers, costs, with_cost
from modeldyno.serving.load.capacity import Capacity
from modeldyno.serving.load.capacity_steps import CapacitySearch, SearchEnd
from modeldyno.serving.load.load_curve import LoadCurve, LoadPoint
from modeldyno.serving.load.replicas import (
    ReplicaPlan,
    bounds_of,
    largest_holding_load,
    parse_demand,
    plan_replicas,
    running_cost,
)
from modeldyno.testing.sample_results import a_small_result

BOUND = Constraint.parse("latency.p99 <= 50ms")


def answer(query: str, value: float | None, error: float = 0.02) -> Answer:
    interval = None if value is None else Interval(low=value * (1 - error), high=value * (1 + error))
    return Answer(query=Query.parse(query), value=value, interval=interval)


def rung(load: float, rate: float, tail: float | None = None, error: float = 0.02) -> LoadPoint:
    judged = () if tail is None else (BOUND.on(answer("latency.p99", tail, 0.01)),)
    return LoadPoint(load=load, answers=(answer("request_rate", rate, error),), judgements=judged)


class TestPrice:
    @pytest.mark.parametrize(
        ("text", "hourly", "currency"),
        [
            ("1.20/h", 1.2, ""),
            ("1.20", 1.2, ""),
            ("$1.20/h", 1.2, "$"),
            ("24 EUR/d", 1.0, "EUR"),
            ("€730/month", 1.0, "€"),
        ],
    )
    def test_it_is_read(self, text: str, hourly: float, currency: str) -> None:
        """With or without a currency, for an hour, a day or a month."""
        price = Price.parse(text)
        assert price.per_hour == pytest.approx(hourly)
        assert price.currency == currency
        assert Price.parse(str(price)) == price

    @pytest.mark.parametrize("text", ["", "cheap", "$1 EUR", "1.2/fortnight", "-1/h", "1,20/h"])
    def test_what_is_none_is_refused(self, text: str) -> None:
        """In a sentence that shows what one looks like."""
        with pytest.raises(RequestError, match=r"is not a price; write 1\.20/h"):
            Price.parse(text)


class TestCosts:
    def test_a_million_inferences_cost_their_share_of_an_hour(self) -> None:
        """At 100 a second and 3.60 an hour a million take ten thousand seconds: 10."""
        rate = Measurement(metric="throughput", value=100.0, interval=Interval(low=80.0, high=125.0))
        (cost,) = costs(a_small_result(measurements=(rate,)), Price(per_hour=3.6))

        assert cost.of == "million inferences"
        assert cost.amount == pytest.approx(10)
        assert cost.interval is not None
        assert (cost.interval.low, cost.interval.high) == pytest.approx((8, 12.5))

    def test_tokens_and_requests_are_told_apart(self) -> None:
        """A million tokens, and requests where a request is not an inference."""
        measured = (
            observed_number("throughput", 80.0),
            observed_number("request_rate", 10.0),
            observed_number("token_rate", 1000.0),
        )
        all_costs = costs(a_small_result(measurements=measured), Price(per_hour=3.6))
        assert [cost.of for cost in all_costs] == ["million inferences", "million requests", "million tokens"]
        assert [cost.amount for cost in all_costs] == pytest.approx([12.5, 100, 1.0])

    def test_requests_that_are_inferences_are_told_once(self) -> None:
        """The two rates are the same where each request has one sample."""
        measured = (observed_number("throughput", 10.0), observed_number("request_rate", 10.0))
        assert len(costs(a_small_result(measurements=measured), Price(per_hour=1.0))) == 1

    def test_an_open_interval_stays_open(self) -> None:
        """A rate that may be nothing, or anything, bounds no cost."""
        rate = Measurement(metric="throughput", value=100.0, interval=Interval(low=0.0, high=inf))
        (cost,) = costs(a_small_result(measurements=(rate,)), Price(per_hour=3.6))
        assert cost.interval == Interval(low=0.0, high=inf)
        assert costs(a_small_result(), Price(per_hour=3.6)) == ()

    def test_the_table_and_the_metric_are_one_figure(self) -> None:
        """Also of several runs, and neither has one of a rate that is void."""
        rate = replace(observed_number("throughput", 100.0), runs=(90.0, 100.0, 130.0))
        void = replace(observed_number("token_rate", 1000.0), void="client-limited")
        result = a_small_result(measurements=(rate, void))
        (cost,) = costs(result, Price(per_hour=3.6))

        assert cost.amount == with_cost(result, Price(per_hour=3.6))["cost"]


class TestWithCost:
    def test_a_result_has_the_cost_of_a_million(self) -> None:
        """Of inferences and of tokens, each with the interval, the runs and the doubt of its rate."""
        measured = (
            observed_number("throughput", 100.0, interval=Interval(low=80.0, high=125.0)),
            replace(observed_number("token_rate", 1000.0), void="client-limited"),
        )
        result = with_cost(a_small_result(measurements=measured), Price(per_hour=3.6))

        cost, tokens = result.find("cost"), result.find("token_cost")
        assert cost is not None
        assert tokens is not None
        assert cost.value == pytest.approx(10)
        assert cost.runs == pytest.approx((10,))
        assert cost.interval is not None
        assert (cost.interval.low, cost.interval.high) == pytest.approx((8, 12.5))
        assert tokens.value == pytest.approx(1)
        assert (tokens.void, tokens.interval) == ("client-limited", None)

    def test_another_price_replaces_the_first_and_none_changes_nothing(self) -> None:
        """The cost is of one price, and of a Result without a rate there is none."""
        result = a_small_result(measurements=(observed_number("throughput", 100.0),))
        priced = with_cost(with_cost(result, Price(per_hour=3.6)), Price(per_hour=7.2))

        assert [m.metric for m in priced.measurements] == ["throughput", "cost"]
        assert priced["cost"] == pytest.approx(20)
        assert with_cost(result, None) is result
        assert with_cost(a_small_result(), Price(per_hour=1.0)).find("cost") is None

    def test_answers_of_rates_are_answers_of_costs(self) -> None:
        """Where the Result is gone; a rate that is missing or nothing has no cost."""
        kept = (answer("throughput", 100.0, 0.2), answer("latency.p99", 1.0), answer("token_rate", None))
        (cost,) = cost_answers(kept, Price(per_hour=3.6))
        assert str(cost.query) == "cost"
        assert cost.value == pytest.approx(10)
        assert cost.interval is not None
        assert (cost.interval.low, cost.interval.high) == pytest.approx((10 / 1.2, 12.5))
        single = Answer(query=Query.parse("throughput"), value=1.0)
        assert [cost.interval for cost in cost_answers((single,), Price(per_hour=3.6))] == [None]


class TestProvision:
    def test_replicas_are_rounded_up(self) -> None:
        """1,000/s at 300/s each take four, by the interval of the rate as many or one more or less."""
        plan = plan_replicas(1000.0, rung(8, 300.0, error=0.2), closed=True)

        assert (plan.replicas, plan.fewest, plan.most) == (4, 3, 5)
        assert plan.used == pytest.approx(1000 / 1200)

    def test_an_exact_fit_is_not_rounded(self) -> None:
        """Three times 0.1 is not a little more than three tenths."""
        exact = LoadPoint(load=1, answers=(Answer(query=Query.parse("request_rate"), value=0.1, exact=True),))
        assert plan_replicas(0.1 * 3, exact, closed=False).replicas == 3

    def test_a_rate_that_may_be_nothing_bounds_no_number(self) -> None:
        """There is no most."""
        assert plan_replicas(10.0, rung(1, 5.0, error=1.0), closed=False).most is None

    def test_nothing_answered_is_refused(self) -> None:
        """No number of replicas is enough of nothing."""
        for empty in (LoadPoint(load=1), rung(1, 0.0)):
            with pytest.raises(RequestError, match="No request was answered"):
                plan_replicas(10.0, empty, closed=True)

    def test_samples_stand_for_requests_where_nobody_counted_these(self) -> None:
        """As the ladder takes them."""
        alone = LoadPoint(load=1, answers=(answer("throughput", 20.0),))
        assert plan_replicas(100.0, alone, closed=True).replicas == 5

    @pytest.mark.parametrize(("text", "rate"), [("1000/s", 1000.0), ("60/min", 1.0), ("5", 5.0)])
    def test_a_demand_is_a_rate(self, text: str, rate: float) -> None:
        """In requests per second, or per minute."""
        assert parse_demand(text) == pytest.approx(rate)

    @pytest.mark.parametrize("text", ["0/s", "-3/s", "50ms", "much"])
    def test_what_is_no_demand_is_refused(self, text: str) -> None:
        """In one sentence that names the option."""
        with pytest.raises(RequestError, match="`demand`"):
            parse_demand(text)


class TestExpense:
    def test_replicas_cost_busy_or_not(self) -> None:
        """By the hour, and for a million requests at the demand."""
        plan = plan_replicas(500.0, rung(4, 300.0), closed=True)
        spent = running_cost(plan, Price.parse("$1.80/h"))
        assert spent.per_hour == pytest.approx(1.8 * plan.replicas)
        assert spent.per_million == pytest.approx(spent.per_hour / 3600 / 500 * 1_000_000)
        assert spent.currency == "$"


class TestBounds:
    def test_they_are_those_that_loads_were_judged_on(self) -> None:
        """Of a ladder once each; of a search those that were asked for."""
        ladder = LoadCurve(knob="concurrency", rungs=(rung(1, 100.0, 0.02), rung(2, 190.0, 0.03)))
        assert bounds_of(ladder) == (BOUND,)
        search = CapacitySearch(bounds=(BOUND,))
        assert bounds_of(
            Capacity(search=search, rungs=(), end=SearchEnd.SMALLEST, passed=None, failed=1.0)
        ) == (BOUND,)


class TestHolding:
    def test_of_a_ladder_it_is_the_best_that_surely_holds(self) -> None:
        """Beyond it a bound is broken, or not surely held."""
        rungs = (rung(1, 100.0, 0.02), rung(2, 190.0, 0.03), rung(4, 300.0, 0.0499), rung(8, 310.0, 0.09))
        assert largest_holding_load(LoadCurve(knob="concurrency", rungs=rungs)).load == 2

    def test_without_a_bound_there_is_nothing_to_hold(self) -> None:
        """It is asked for."""
        with pytest.raises(RequestError, match="needs a bound"):
            largest_holding_load(LoadCurve(knob="concurrency", rungs=(rung(1, 100.0),)))

    def test_where_none_holds_it_is_said(self) -> None:
        """Of a ladder, and of a search."""
        with pytest.raises(RequestError, match="No load of the ladder surely holds"):
            largest_holding_load(LoadCurve(knob="concurrency", rungs=(rung(1, 100.0, 0.09),)))
        search = CapacitySearch(bounds=(BOUND,))
        broken = Capacity(
            search=search, rungs=(rung(1, 100.0, 0.09),), end=SearchEnd.SMALLEST, passed=None, failed=1.0
        )
        with pytest.raises(RequestError, match="No load was found"):
            largest_holding_load(broken)

    def test_of_a_search_it_is_what_passed(self) -> None:
        """That of the freshly started server, where there is one."""
        passed, fresh = rung(4, 300.0, 0.03), rung(4, 290.0, 0.03)
        capacity = Capacity(
            search=CapacitySearch(bounds=(BOUND,)),
            rungs=(passed,),
            end=SearchEnd.RESOLVED,
            passed=4.0,
            failed=8.0,
        )
        assert largest_holding_load(capacity) == passed
        assert largest_holding_load(replace(capacity, verified=fresh)) == fresh

    def test_a_rung_that_answered_nothing_is_not_chosen(self) -> None:
        """Though it holds every bound."""
        empty = LoadPoint(load=9, judgements=(BOUND.on(answer("latency.p99", 0.01)),))
        largest = largest_holding_load(LoadCurve(knob="concurrency", rungs=(rung(2, 190.0, 0.03), empty)))
        assert largest.load == 2
        assert isinstance(plan_replicas(10.0, largest, closed=True), ReplicaPlan)

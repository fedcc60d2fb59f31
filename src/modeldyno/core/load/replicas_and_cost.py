"""Replicas and cost: how many replicas a demand needs, and what inferences cost at a price per hour."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.core.load.capacity import Capacity
from modeldyno.core.metrics.constraints import Answer, Verdict
from modeldyno.core.metrics.measurement import Interval, Measurement
from modeldyno.core.metrics.metric import COSTS, Query
from modeldyno.core.stats.units import RATE, parse_quantity
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.load.load_curve import LoadCurve, LoadPoint
    from modeldyno.core.metrics.constraints import Constraint
    from modeldyno.core.result.result import Result

_PRICE = re.compile(
    r"\s*(?P<before>[^\d\s.,/+-]{0,3})\s*(?P<amount>\d+(?:\.\d+)?)\s*(?P<after>[^\d\s.,/+-]{0,3})"
    r"\s*(?:/\s*(?P<per>h|d|month))?\s*"
)
_HOURS = {"h": 1.0, "d": 24.0, "month": 730.0}
"""Hours of a month as machine rental counts it: a twelfth of 365 days."""
_SECONDS = 3600.0
MILLION = 1_000_000
_COST_UNITS = {
    "throughput": "million inferences",
    "request_rate": "million requests",
    "token_rate": "million tokens",
}
"""Rate to what a million of it is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Price of one replica: the machine, or the part of it, that was measured."""

    per_hour: float
    currency: str = ""

    @classmethod
    def parse(cls, text: str) -> Price:
        """Read ``1.20/h``, ``$1.20/h``, ``28.80 EUR/d``, ``876/month``; without a unit it is per hour.

        Raises:
            RequestError: it is not a price.
        """
        match = _PRICE.fullmatch(text)
        if match is None or (match["before"] and match["after"]):
            raise RequestError(f"`price` '{text}' is not a price; write 1.20/h, $1.20/h or 876 EUR/month.")
        amount = float(match["amount"]) / _HOURS[match["per"] or "h"]
        return cls(per_hour=amount, currency=match["before"] or match["after"])

    def __str__(self) -> str:
        """Write it as it is read: ``$1.2/h``, ``1.2EUR/h``."""
        amount = f"{self.per_hour:.12f}".rstrip("0").rstrip(".")
        return f"{amount}{self.currency}/h" if self.currency.isalpha() else f"{self.currency}{amount}/h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of an amount of work on one replica that is always busy."""

    of: str
    """Such as ``million inferences``."""
    amount: float
    interval: Interval | None
    """Derived from the interval of the rate; None if that has none."""
    rate: float
    """Per second."""


def costs(result: Result, price: Price) -> tuple[Cost, ...]:
    """Return the cost of the work of a Result: inferences, requests if they are not the same, and tokens."""
    rates = {name: answer for name in _COST_UNITS if (answer := _rate_answer(result, name)) is not None}
    same = "throughput" in rates and "request_rate" in rates
    if same and rates["throughput"].value == rates["request_rate"].value:
        del rates["request_rate"]
    return tuple(_cost(name, rate, price) for name, rate in rates.items())


def _rate_answer(result: Result, metric: str) -> Answer | None:
    measurement = result.find(metric)
    return None if measurement is None or not measurement.value else result.ask(metric)


def _cost(name: str, rate: Answer, price: Price) -> Cost:
    assert rate.value is not None
    spent = _of_a_million_seconds(price)
    interval = None if rate.interval is None else _divided(spent, rate.interval)
    return Cost(of=_COST_UNITS[name], amount=spent / rate.value, interval=interval, rate=rate.value)


def _of_a_million_seconds(price: Price) -> float:
    """Return what a million seconds cost: over a rate it is what a million of it cost."""
    return price.per_hour / _SECONDS * MILLION


def _divided(spent: float, rate: Interval) -> Interval:
    return Interval(
        low=spent / rate.high if math.isfinite(rate.high) else 0.0,
        high=spent / rate.low if rate.low > 0 else math.inf,
    )


def with_cost(result: Result, price: Price | None) -> Result:
    """Add the metrics `cost` and `token_cost` to a Result, as far as it has their rates.

    They replace what an earlier call added, perhaps by another price. Without a price nothing changes.
    """
    if price is None:
        return result
    rates = ((name, result.find(rate)) for name, rate in COSTS.items())
    costs_of_rates = (_cost_of(name, rate, price) for name, rate in rates if rate is not None and rate.value)
    kept = (measurement for measurement in result.measurements if measurement.metric not in COSTS)
    return replace(result, measurements=(*kept, *costs_of_rates))


def _cost_of(name: str, rate: Measurement, price: Price) -> Measurement:
    """Return the cost of a million by a rate; it is void where the rate is."""
    spent = _of_a_million_seconds(price)
    return Measurement(
        metric=name,
        value=spent / rate.mean_with_ends()[1],
        interval=None if rate.interval is None else _divided(spent, rate.interval),
        runs=tuple(spent / one for one in rate.runs if one),
        void=rate.void,
    )


def cost_answers(answers: Sequence[Answer], price: Price) -> Iterator[Answer]:
    """Answer `cost` and `token_cost` from the answers of the rates, where the Result itself is gone."""
    spent = _of_a_million_seconds(price)
    for name, rate in COSTS.items():
        answer = next((each for each in answers if each.query == Query(metric=rate)), None)
        if answer is not None and answer.value:
            yield replace(
                answer,
                query=Query(metric=name),
                value=spent / answer.value,
                interval=None if answer.interval is None else _divided(spent, answer.interval),
            )


# --- replicas --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlan:
    """How many replicas a demand needs, if each runs under the load that was measured to hold."""

    demand: float
    """Requests per second."""
    load: float
    """Concurrency, or requests due in a second, of the measurement that stands for a replica."""
    each: Answer
    """Requests per second that a replica answers within the bounds."""
    replicas: int
    fewest: int
    """By the upper end of the interval of that rate."""
    most: int | None
    """By the lower end; None where nothing bounds it."""
    closed: bool
    """Whether it was measured in a closed loop, which waits for the server."""

    @property
    def used(self) -> float:
        """Share of the replicas' capacity that the demand uses."""
        assert self.each.value is not None
        return self.demand / (self.replicas * self.each.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCost:
    """What the replicas for a demand cost, busy or idle."""

    per_hour: float
    per_thousand: float
    """For 1,000 requests at the demand."""
    currency: str


def running_cost(plan: ReplicaPlan, price: Price) -> RunningCost:
    """Return the cost of the replicas."""
    hourly = plan.replicas * price.per_hour
    return RunningCost(
        per_hour=hourly,
        per_thousand=hourly / _SECONDS / plan.demand * 1000,
        currency=price.currency,
    )


def parse_demand(text: str) -> float:
    """Read requests per second: ``1000/s``, ``60000/min``.

    Raises:
        RequestError: it is not a rate, or not positive.
    """
    try:
        demand = parse_quantity(text, RATE)
    except RequestError as error:
        raise RequestError(f"`demand`: {error}") from None
    if not 0 < demand < math.inf:
        raise RequestError(f"`demand` '{text}' must be positive; write 1000/s.")
    return demand


def plan_replicas(demand: float, rung: LoadPoint, *, closed: bool) -> ReplicaPlan:
    """Compute how many replicas a demand (requests per second) needs.

    Args:
        demand: split evenly among the replicas.
        rung: the load that a replica is known to hold.
        closed: whether it was a closed loop.

    Raises:
        RequestError: no request was answered under that load.
    """
    rate = rung.find("request_rate") or rung.find("throughput")
    if rate is None or not rate.value:
        raise RequestError("No request was answered under that load, so the number of replicas is unknown.")
    ends = rate.bounds()
    return ReplicaPlan(
        demand=demand,
        load=rung.load,
        each=rate,
        replicas=replica_count(demand, rate.value),
        fewest=replica_count(demand, ends.high),
        most=replica_count(demand, ends.low) if ends.low > 0 else None,
        closed=closed,
    )


def replica_count(demand: float, rate: float) -> int:
    """Return demand / rate, rounded up, ignoring floating-point dust."""
    return max(1, math.ceil(round(demand / rate, 9)))


def bounds_of(series: LoadCurve | Capacity) -> tuple[Constraint, ...]:
    """Return the bounds that a series of loads was judged on."""
    if isinstance(series, Capacity):
        return series.search.bounds
    judged = (judgement.constraint for rung in series.rungs for judgement in rung.judgements)
    return series.bounds or tuple(dict.fromkeys(judged))


def largest_holding_load(series: LoadCurve | Capacity) -> LoadPoint:
    """Return the measurement of the largest load that surely holds every bound.

    Raises:
        RequestError: there is no such load, or no bound was given.
    """
    if isinstance(series, Capacity):
        best = series.best
        if best is None or series.verdict is Verdict.BROKEN:
            raise RequestError(
                "No load was found that holds the bounds, so no number of replicas would hold them."
            )
        return best
    if not any(rung.judgements for rung in series.rungs):
        raise RequestError("`demand` needs a bound for each replica to hold: `require=latency.p99 <= 50ms`.")
    held = [
        rung
        for rung in series.by_load
        if rung.judgements and all(j.verdict is Verdict.HELD for j in rung.judgements)
    ]
    if not held:
        raise RequestError(
            "No load of the ladder surely holds the bounds, so the number of replicas is unknown."
        )
    return max(held, key=_rate)


def _rate(rung: LoadPoint) -> float:
    rate = rung.find("request_rate") or rung.find("throughput")
    return (rate.value or 0.0) if rate is not None else 0.0

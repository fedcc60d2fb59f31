"""What inferences and tokens cost at a price per hour."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement import Interval, Measurement
from modeldyno.base.metrics.metric import COSTS, Query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.metrics.constraints import Answer
    from modeldyno.base.result.result import Result

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
        if match is None or (match["before"] and match["after"]) or not math.isfinite(float(match["amount"])):
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
    """Return the cost of the work of a Result: inferences, requests if they are not the same, and tokens.

    Inferences and tokens cost what the metrics `cost` and `token_cost` say; a rate that is void has none.
    """
    rates = {
        name: rate
        for name in _COST_UNITS
        if (rate := result.find(name)) is not None and rate.value and not rate.void
    }
    same = "throughput" in rates and "request_rate" in rates
    if same and _per_second(rates["throughput"]) == _per_second(rates["request_rate"]):
        del rates["request_rate"]
    return tuple(
        Cost(of=_COST_UNITS[name], amount=amount, interval=interval, rate=_per_second(rate))
        for name, rate in rates.items()
        for amount, interval in [_cost_and_interval(rate, price)]
    )


def _per_second(rate: Measurement) -> float:
    return rate.mean_with_ends()[1]


def _price_of_million_seconds(price: Price) -> float:
    """Return what a million seconds cost: over a rate it is what a million of it cost."""
    return price.per_hour / _SECONDS * MILLION


def _cost_interval(spent: float, rate: Interval) -> Interval:
    """Return the interval of an amount over a rate; unbounded where the rate may be 0."""
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
    amount, interval = _cost_and_interval(rate, price)
    spent = _price_of_million_seconds(price)
    return Measurement(
        metric=name,
        value=amount,
        interval=interval,
        runs=tuple(spent / one for one in rate.runs if one),
        void=rate.void,
    )


def _cost_and_interval(rate: Measurement, price: Price) -> tuple[float, Interval | None]:
    """Return what a million of a rate cost, with the interval that follows from that of the rate."""
    spent = _price_of_million_seconds(price)
    interval = None if rate.interval is None else _cost_interval(spent, rate.interval)
    return spent / _per_second(rate), interval


def cost_answers(answers: Sequence[Answer], price: Price) -> Iterator[Answer]:
    """Answer `cost` and `token_cost` from the answers of the rates, where the Result itself is gone."""
    spent = _price_of_million_seconds(price)
    for name, rate in COSTS.items():
        answer = next((each for each in answers if each.query == Query(metric=rate)), None)
        if answer is not None and answer.value:
            yield replace(
                answer,
                query=Query(metric=name),
                value=spent / answer.value,
                interval=None if answer.interval is None else _cost_interval(spent, answer.interval),
            )


def check_price(queries: Iterable[Query]) -> None:
    """Refuse a cost for which there is no price.

    Raises:
        RequestError: one of the queries is a cost.
    """
    if cost := next((query for query in queries if query.metric in COSTS), None):
        raise RequestError(f"{cost} needs the price of the machine; add `price=1.20/h`.")

"""Capacity and cost: how many replicas a demand takes, and what an inference costs at a price per hour."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.core.load.capacity import Capacity
from modeldyno.core.metrics.constraints import Answer, Verdict
from modeldyno.core.metrics.measurement import Interval
from modeldyno.core.stats.units import RATE, parse_quantity
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from modeldyno.core.load.load_curve import Ladder, Rung
    from modeldyno.core.metrics.constraints import Constraint
    from modeldyno.core.result.result import Result

_PRICE = re.compile(
    r"\s*(?P<before>[^\d\s.,/+-]{0,3})\s*(?P<amount>\d+(?:\.\d+)?)\s*(?P<after>[^\d\s.,/+-]{0,3})"
    r"\s*(?:/\s*(?P<per>h|d|month))?\s*"
)
_HOURS = {"h": 1.0, "d": 24.0, "month": 730.0}
"""Of a month, as those who rent machines count it: a twelfth of 365 days."""
_SECONDS = 3600.0
_USED = {
    "throughput": (1000, "1,000 inferences"),
    "request_rate": (1000, "1,000 requests"),
    "token_rate": (1_000_000, "million tokens"),
}
"""Rate to how many of it a cost is told of, and what these are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one replica costs: the machine, or the part of it, that was measured."""

    per_hour: float
    currency: str = ""

    @classmethod
    def parse(cls, text: str) -> Price:
        """Read ``1.20/h``, ``$1.20/h``, ``28.80 EUR/d``, ``876/month``; without a time it is for an hour.

        Raises:
            RequestError: it is no price.
        """
        match = _PRICE.fullmatch(text)
        if match is None or (match["before"] and match["after"]):
            raise RequestError(f"--price '{text}' is no price; write 1.20/h, $1.20/h or 876 EUR/month.")
        amount = float(match["amount"]) / _HOURS[match["per"] or "h"]
        return cls(per_hour=amount, currency=match["before"] or match["after"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What so much work costs on one replica that is always busy."""

    of: str
    """Such as ``1,000 inferences``."""
    amount: float
    interval: Interval | None
    """By that of the rate; None where it has none."""
    rate: float
    """Per second."""


def costs(result: Result, price: Price) -> tuple[Cost, ...]:
    """Give what the work of a Result costs: inferences, requests where they are others, and tokens."""
    rates = {name: found for name in _USED if (found := _answered(result, name)) is not None}
    same = "throughput" in rates and "request_rate" in rates
    if same and rates["throughput"].value == rates["request_rate"].value:
        del rates["request_rate"]
    return tuple(_cost(name, rate, price) for name, rate in rates.items())


def _answered(result: Result, metric: str) -> Answer | None:
    found = result.find(metric)
    return None if found is None or not found.value else result.ask(metric)


def _cost(name: str, rate: Answer, price: Price) -> Cost:
    number, of = _USED[name]
    assert rate.value is not None
    spent = price.per_hour / _SECONDS * number
    bounds = rate.interval
    interval = None
    if bounds is not None:
        interval = Interval(
            low=spent / bounds.high if math.isfinite(bounds.high) else 0.0,
            high=spent / bounds.low if bounds.low > 0 else math.inf,
        )
    return Cost(of=of, amount=spent / rate.value, interval=interval, rate=rate.value)


# --- replicas --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Provision:
    """How many replicas a demand takes, each under the load that was measured to hold."""

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
    """Whether that was measured in a closed loop, which waits for the server."""

    @property
    def used(self) -> float:
        """Part of what the replicas can do that the demand takes."""
        assert self.each.value is not None
        return self.demand / (self.replicas * self.each.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expense:
    """What the replicas cost that a demand takes, busy or not."""

    per_hour: float
    per_thousand: float
    """For 1,000 requests at the demand."""
    currency: str


def expense(found: Provision, price: Price) -> Expense:
    """Give what a Provision costs."""
    hourly = found.replicas * price.per_hour
    return Expense(
        per_hour=hourly,
        per_thousand=hourly / _SECONDS / found.demand * 1000,
        currency=price.currency,
    )


def parse_demand(text: str) -> float:
    """Read requests per second: ``1000/s``, ``60000/min``.

    Raises:
        RequestError: it is no rate, or not positive.
    """
    try:
        demand = parse_quantity(text, RATE)
    except RequestError as error:
        raise RequestError(f"--demand: {error}") from None
    if not 0 < demand < math.inf:
        raise RequestError(f"--demand '{text}' is not more than nothing; write 1000/s.")
    return demand


def provision(demand: float, rung: Rung, *, closed: bool) -> Provision:
    """Say how many replicas a demand (requests per second) takes.

    Args:
        demand: split evenly among the replicas.
        rung: the load that a replica is known to hold.
        closed: whether it was a closed loop.

    Raises:
        RequestError: nothing was answered there.
    """
    found = rung.find("request_rate") or rung.find("throughput")
    if found is None or not found.value:
        raise RequestError("Nothing was answered under that load, so that no number of replicas is known.")
    ends = found.bounds()
    return Provision(
        demand=demand,
        load=rung.load,
        each=found,
        replicas=_needed(demand, found.value),
        fewest=_needed(demand, ends.high),
        most=_needed(demand, ends.low) if ends.low > 0 else None,
        closed=closed,
    )


def _needed(demand: float, rate: float) -> int:
    """Give demand / rate, rounded up, but not for the dust of binary fractions."""
    return max(1, math.ceil(round(demand / rate, 9)))


def bounds_of(found: Ladder | Capacity) -> tuple[Constraint, ...]:
    """Give the bounds that several loads were judged on."""
    if isinstance(found, Capacity):
        return found.search.bounds
    return tuple(dict.fromkeys(j.constraint for rung in found.rungs for j in rung.judgements))


def holding(found: Ladder | Capacity) -> Rung:
    """Give the measurement of the greatest load that surely holds every bound that was asked for.

    Raises:
        RequestError: there is none, or no bound was asked for.
    """
    if isinstance(found, Capacity):
        best = found.best
        if best is None or found.verdict is Verdict.BROKEN:
            raise RequestError(
                "No load was found that holds the bounds, so that no number of replicas would."
            )
        return best
    if not any(rung.judgements for rung in found.rungs):
        raise RequestError(
            "--demand needs a bound that a replica is to hold: --require 'latency.p99 <= 50ms'."
        )
    held = [
        rung
        for rung in found.sorted
        if rung.judgements and all(j.verdict is Verdict.HELD for j in rung.judgements)
    ]
    if not held:
        raise RequestError(
            "No load of the ladder surely holds the bounds, so that no number of replicas is known."
        )
    return max(held, key=_rate)


def _rate(rung: Rung) -> float:
    found = rung.find("request_rate") or rung.find("throughput")
    return (found.value or 0.0) if found is not None else 0.0

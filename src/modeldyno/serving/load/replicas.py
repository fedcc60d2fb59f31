"""How many replicas a demand needs, and what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.constraints import Answer, Verdict
from modeldyno.base.result.cost import MILLION
from modeldyno.base.stats.units import RATE, parse_quantity
from modeldyno.serving.load.capacity import Capacity

if TYPE_CHECKING:
    from modeldyno.base.metrics.constraints import Constraint
    from modeldyno.base.result.cost import Price
    from modeldyno.serving.load.load_curve import LoadCurve, LoadPoint


_SECONDS = 3600.0
"""Of an hour."""


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
    per_million: float
    """For a million requests at the demand."""
    currency: str


def running_cost(plan: ReplicaPlan, price: Price) -> RunningCost:
    """Return the cost of the replicas."""
    hourly = plan.replicas * price.per_hour
    return RunningCost(
        per_hour=hourly,
        per_million=hourly / _SECONDS / plan.demand * MILLION,
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

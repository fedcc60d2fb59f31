"""Lay out capacity planning: replicas for a demand, and the cost of the work."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from modeldyno.core.load.replicas_and_cost import running_cost
from modeldyno.core.report.blocks import Block, Notice, Severity, make_table, note
from modeldyno.core.stats.units import RATE, format_quantity
from modeldyno.views.text import count, estimate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.load.replicas_and_cost import Cost, Price, ReplicaPlan
    from modeldyno.core.metrics.constraints import Constraint


def costs(costs: Sequence[Cost], price: Price) -> Iterator[Block]:
    """Tabulate the cost of the work."""
    if not costs:
        yield note("no rate was measured, so the cost is unknown", code="cost")
        return
    yield make_table(
        f"Cost at {money(price.per_hour, price)} per hour for a replica that is always busy",
        ("of", "cost>", "95 % interval>", "rate>"),
        (
            (
                cost.of,
                money(cost.amount, price),
                _cost_interval(cost, price),
                format_quantity(cost.rate, RATE, 3),
            )
            for cost in costs
        ),
    )


def provision(
    plan: ReplicaPlan, price: Price | None = None, bounds: Sequence[Constraint] = ()
) -> Iterator[Block]:
    """Describe how many replicas a demand needs, the assumptions, and the cost."""
    rate, interval = estimate(plan.each.value, plan.each.interval, RATE)
    under = f" within {' and '.join(map(str, bounds))}" if bounds else ""
    demand, needed = format_quantity(plan.demand, RATE, None), count(plan.replicas, "replica")
    sure = f" ({interval})" if interval else ""
    yield Notice(
        severity=Severity.VERDICT,
        text=f"{demand} needs {needed}{_replica_range(plan)}: each handles {rate}{sure}{under}.",
    )
    if price is not None:
        spent = running_cost(plan, price)
        yield note(
            f"{money(spent.per_hour, price)} per hour, {money(spent.per_thousand, price)} per 1,000 requests "
            f"at this demand, at {plan.used:.0%} of their capacity",
            code="cost",
        )
    yield note(_assumptions(plan), code="assumed")


def _replica_range(plan: ReplicaPlan) -> str:
    if plan.most is None:
        return f" (at least {plan.fewest})"
    return "" if plan.fewest == plan.most else f" ({plan.fewest} to {plan.most})"


def _assumptions(plan: ReplicaPlan) -> str:
    spare = f"one more ({plan.replicas + 1}) tolerates the loss of one"
    loop = (
        "; measured in a closed loop, which never sends more than the server answers: real arrivals are less "
        "even, which --rate with :poisson measures"
        if plan.closed
        else ""
    )
    return f"the demand is spread evenly over replicas that do not slow each other down; {spare}{loop}"


def money(amount: float, price: Price) -> str:
    """Format an amount with its currency; small amounts with three significant digits."""
    digits = f"{amount:,.2f}" if amount >= 1 else f"{amount:.3g}"
    return f"{digits} {price.currency}".strip()


def _cost_interval(cost: Cost, price: Price) -> str:
    if cost.interval is None or not isfinite(cost.interval.high):
        return ""
    return f"{money(cost.interval.low, price)} to {money(cost.interval.high, price)}"

"""Lay out capacity planning: replicas for a demand, and the cost of the work."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Block, Notice, Severity, make_table, note
from modeldyno.base.stats.units import RATE, format_quantity
from modeldyno.base.views.text import count, estimate
from modeldyno.serving.load.replicas import running_cost

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.metrics.constraints import Constraint
    from modeldyno.base.metrics.metric import Query
    from modeldyno.base.result.cost import Cost, Price
    from modeldyno.serving.load.replicas import ReplicaPlan


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
            f"{money(spent.per_hour, price)} per hour, {money(spent.per_million, price)} per million "
            f"requests at this demand, at {plan.used:.0%} of their capacity",
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
    """Format an amount with its currency, ``$1.20`` or ``1.20 EUR``; small amounts with three digits."""
    return money_text(f"{amount:,.2f}" if amount >= 1 else f"{amount:.3g}", price)


def money_text(amount: str, price: Price) -> str:
    """Add the currency to an amount: a sign before it, a word behind."""
    return f"{amount} {price.currency}" if price.currency.isalpha() else f"{price.currency}{amount}"


def cost_text(query: Query, amount: str, price: Price) -> str:
    """Write a cost with its currency and what it is of: ``$0.42 per million inferences``."""
    of = "tokens" if query.metric == "token_cost" else "inferences"
    return f"{money_text(amount, price)} per million {of}"


def _cost_interval(cost: Cost, price: Price) -> str:
    if cost.interval is None or not isfinite(cost.interval.high):
        return ""
    return f"{money(cost.interval.low, price)} to {money(cost.interval.high, price)}"

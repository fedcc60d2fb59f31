"""The goal of a sweep: objectives to improve, constraints to hold, and how points are ranked.

Several objectives are combined into one score by their weights: the weighted mean of log ratios. Unlike
relative differences it is transitive and independent of units, and easy to read: 0.1 is about ten per cent
better, whatever the metric.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.constraints import Constraint, check_kind
from modeldyno.base.metrics.metric import COSTS, METRICS, Better, Query, fraction_of
from modeldyno.base.result.cost import Price, check_price
from modeldyno.base.result.multi_model import bounds_of_each_model, expand_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Rank(StrEnum):
    """Which points are ranked against each other."""

    BEST = "best-load"
    """Each configuration is ranked by its best load that holds the constraints."""
    EACH = "each-load"
    """Configurations are ranked separately at each load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A metric to maximize or minimize."""

    query: Query
    maximize: bool
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Refuse an invalid weight with one sentence."""
        if not 0 < self.weight < math.inf:
            raise RequestError(f"The weight of {self.query} is {self.weight:g}, but must be positive.")

    @classmethod
    def parse(cls, text: str, *, maximize: bool | None = None) -> Objective:
        """Read ``throughput``, ``latency.p99`` or ``throughput:2`` with a weight.

        Without `maximize` the direction comes from the table of metrics.

        Raises:
            RequestError: it is not a query, has no known direction, or the direction contradicts the table.
        """
        match = _WEIGHTED.fullmatch(text)
        head, weight = (match["query"], float(match["weight"])) if match else (text, 1.0)
        query = Query.parse(head)
        if query.part is not None:
            raise RequestError(f"'{text}' is not an objective; drop the .{query.part}.")
        check_kind(query)
        better = METRICS[query.metric].better
        if maximize is None and better is Better.NEITHER:
            raise RequestError(
                f"{query.metric} has no better direction; say `maximize` or `minimize={query.metric}`."
            )
        if maximize is not None and better is (Better.LOWER if maximize else Better.HIGHER):
            refused, meant = ("maximize", "minimize") if maximize else ("minimize", "maximize")
            raise RequestError(
                f"{query.metric} is better the {better} it is, so there is nothing to {refused}; "
                f"write {meant}: {head} (`{meant}={text}`), or objectives: {{{head}: {weight:g}}}, "
                "which takes the direction of each metric from the table of metrics."
            )
        return cls(
            query=query,
            maximize=better is Better.HIGHER if maximize is None else maximize,
            weight=weight,
        )

    def gain(self, value: float, reference: float) -> float:
        """Return the log ratio of a value to the reference, positive if better; infinite for 0."""
        if value <= 0 or reference <= 0:
            better = (value > reference) - (value < reference)
            return self.sign * better * math.inf if better else 0.0
        return math.log(value / reference) * self.sign

    @property
    def sign(self) -> int:
        """1 if more is better, else -1."""
        return 1 if self.maximize else -1

    @property
    def percentile(self) -> str | None:
        """The percentile that must be certified for it, if it names one."""
        name = self.query.statistic
        return name if name is not None and fraction_of(name) is not None else None

    def __str__(self) -> str:
        """Write it as text."""
        weight = "" if self.weight == 1 else f":{self.weight:g}"
        return f"{'maximize' if self.maximize else 'minimize'} {self.query}{weight}"


_WEIGHTED = re.compile(r"(?P<query>.+):(?P<weight>\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Objectives, constraints, the ranking rule, and the price that costs follow from."""

    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...] = ()
    rank: Rank = Rank.BEST
    price: Price | None = None
    """Of the machine; with it, every trial has its cost."""

    def __post_init__(self) -> None:
        """Refuse an invalid goal with one sentence."""
        if not self.objectives:
            raise RequestError("A sweep needs an objective, such as `maximize=throughput`.")
        queries = [objective.query for objective in self.objectives]
        if len(set(queries)) < len(queries):
            raise RequestError("An objective is given twice; give it one weight.")
        if self.price is None:
            check_price(self.queries)

    @property
    def queries(self) -> tuple[Query, ...]:
        """All queries that a trial must answer."""
        queries = (*(o.query for o in self.objectives), *(c.query for c in self.constraints))
        return tuple(dict.fromkeys(queries))

    def gain(self, values: Mapping[Query, float], reference: Mapping[Query, float]) -> float:
        """Return the weighted mean of the gains of all objectives over a reference.

        An infinite loss in one objective is not offset by the others.
        """
        total_weight = sum(objective.weight for objective in self.objectives)
        gains = [o.weight * o.gain(values[o.query], reference[o.query]) for o in self.objectives]
        return -math.inf if -math.inf in gains else sum(gains) / total_weight


def goal_of_each_model(goal: Goal, own: str, beside: Sequence[str]) -> Goal:
    """Return the goal with an objective and a bound for every model where it names none.

    Weights are kept per objective: ``throughput@a:2`` counts twice as much as ``throughput@b``.

    Raises:
        RequestError: the goal has a cost, which models that share a machine have only together.
    """
    if cost := next((query for query in goal.queries if query.metric in COSTS), None):
        raise RequestError(f"{cost} is that of one model on a machine; several share it, so drop `beside`.")
    return replace(
        goal,
        objectives=tuple(
            replace(o, query=q) for o in goal.objectives for q in expand_query(o.query, own, beside)
        ),
        constraints=bounds_of_each_model(goal.constraints, own, beside),
    )

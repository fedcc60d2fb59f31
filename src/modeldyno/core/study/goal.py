"""What a sweep is to find: objectives to be improved, constraints to be held, and how points are ranked.

Several objectives are one score by their weights: the weighted mean of logarithms of ratios. Unlike
differences divided by a mean of the two, it is transitive, knows no unit, and has a reading: 0.1 is ten
per cent better, whatever the metric.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from modeldyno.core.metrics.constraints import Constraint, check_kind
from modeldyno.core.metrics.metric import METRICS, Better, Query, fraction_of
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Rank(StrEnum):
    """Between which points is chosen."""

    BEST = "best-load"
    """A configuration stands for itself at its best load within the constraints."""
    EACH = "each-load"
    """Configurations are ranked apart at each load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A number to be made larger, or smaller."""

    query: Query
    maximize: bool
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Refuse, in one sentence, what cannot be improved."""
        if not 0 < self.weight < math.inf:
            raise RequestError(f"The weight of {self.query} is {self.weight:g}, but must be positive.")

    @classmethod
    def parse(cls, text: str, *, maximize: bool | None = None) -> Objective:
        """Read ``throughput``, ``latency.p99`` or ``throughput:2`` with a weight.

        Without `maximize` the table of metrics says which way is better.

        Raises:
            RequestError: it is no query, nobody knows which way is better, or it is the other way.
        """
        match = _WEIGHED.fullmatch(text)
        head, weight = (match["query"], float(match["weight"])) if match else (text, 1.0)
        query = Query.parse(head)
        if query.part is not None:
            raise RequestError(f"'{text}' is no objective; leave the .{query.part} away.")
        check_kind(query)
        better = METRICS[query.metric].better
        if maximize is None and better is Better.NEITHER:
            raise RequestError(
                f"{query.metric} has no better direction; say --maximize or --minimize {query.metric}."
            )
        if maximize is not None and better is (Better.LOWER if maximize else Better.HIGHER):
            asked, meant = ("maximize", "minimize") if maximize else ("minimize", "maximize")
            raise RequestError(
                f"{query.metric} is better the {better} it is, so there is nothing to {asked}; "
                f"write {meant}: {head} (--{meant} {text}), or objectives: {{{head}: {weight:g}}}, "
                "which takes the direction of each metric from the table of metrics."
            )
        return cls(
            query=query,
            maximize=better is Better.HIGHER if maximize is None else maximize,
            weight=weight,
        )

    def gain(self, value: float, reference: float) -> float:
        """Give the logarithm of how many times better a value is; infinite where the reference is nothing."""
        if value <= 0 or reference <= 0:
            better = (value > reference) - (value < reference)
            return self.sign * better * math.inf if better else 0.0
        return math.log(value / reference) * self.sign

    @property
    def sign(self) -> int:
        """1 where more is better, else -1."""
        return 1 if self.maximize else -1

    @property
    def percentile(self) -> str | None:
        """The percentile that must be certified for it, if it names one."""
        name = self.query.statistic
        return name if name is not None and fraction_of(name) is not None else None

    def __str__(self) -> str:
        """Say it in words."""
        weight = "" if self.weight == 1 else f":{self.weight:g}"
        return f"{'maximize' if self.maximize else 'minimize'} {self.query}{weight}"


_WEIGHED = re.compile(r"(?P<query>.+):(?P<weight>\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Objectives, constraints, and the ranking rule."""

    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...] = ()
    rank: Rank = Rank.BEST

    def __post_init__(self) -> None:
        """Refuse, in one sentence, a goal that cannot be."""
        if not self.objectives:
            raise RequestError("A sweep needs an objective, such as --maximize throughput.")
        queries = [objective.query for objective in self.objectives]
        if len(set(queries)) < len(queries):
            raise RequestError("An objective stands twice; give it one weight.")

    @property
    def queries(self) -> tuple[Query, ...]:
        """All that has to be known of a trial."""
        named = (*(o.query for o in self.objectives), *(c.query for c in self.constraints))
        return tuple(dict.fromkeys(named))

    @property
    def percentiles(self) -> tuple[str, ...]:
        """The percentiles that must be certified."""
        named = (*(o.percentile for o in self.objectives), *(c.percentile for c in self.constraints))
        return tuple(dict.fromkeys(filter(None, named)))

    def gain(self, values: Mapping[Query, float], reference: Mapping[Query, float]) -> float:
        """Give the weighted mean of the gains of all objectives over a reference.

        What is endlessly worse in one of them is not made good by another.
        """
        whole = sum(objective.weight for objective in self.objectives)
        gains = [o.weight * o.gain(values[o.query], reference[o.query]) for o in self.objectives]
        return -math.inf if -math.inf in gains else sum(gains) / whole

"""How many replicas a demand takes, and what they cost: for one Result, or for a load series."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from modeldyno.base.document import Document
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.constraints import Constraint, Verdict
from modeldyno.base.option_spelling import spell_for_command_line
from modeldyno.base.report.blocks import Notice, Severity
from modeldyno.base.result.cost import Cost, Price, costs
from modeldyno.serving.load.capacity import Capacity
from modeldyno.serving.load.capacity_steps import RATE
from modeldyno.serving.load.load_curve import LoadCurve, LoadPoint
from modeldyno.serving.load.replicas import (
    ReplicaPlan,
    bounds_of,
    largest_holding_load,
    parse_demand,
    plan_replicas,
    running_cost,
)
from modeldyno.serving.views import replicas as views

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.report.blocks import Block
    from modeldyno.base.result.result import Result


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CostAnswer(Document):
    """Replicas and costs of a result, as report blocks and as data for its document."""

    KIND = "costs"
    price: Price | None = None
    bounds: tuple[Constraint, ...] = ()
    provision: ReplicaPlan | None = None
    costs: tuple[Cost, ...] | None = None
    why: str = ""
    """Why the number of replicas is unknown, if one was requested."""

    def blocks(self) -> Iterator[Block]:
        """Yield the report blocks; none if nothing was requested."""
        if self.why:
            yield Notice(severity=Severity.UNDECIDED, code="demand", text=spell_for_command_line(self.why))
        if self.provision is not None:
            yield from views.provision(self.provision, self.price, self.bounds)
        if self.costs is not None and self.price is not None:
            yield from views.costs(self.costs, self.price)

    def derived(self) -> dict[str, Any]:
        """Return the derived data for the JSON document."""
        data: dict[str, Any] = {}
        if self.why:
            data["provision"] = {"why": self.why}
        if self.provision is not None:
            data["provision"] = {**asdict(self.provision), "used": self.provision.used}
            if self.price is not None:
                data["expense"] = asdict(running_cost(self.provision, self.price))
        if self.costs is not None and self.price is not None:
            data["costs"] = [{**asdict(cost), "currency": self.price.currency} for cost in self.costs]
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class CostOptions:
    """A demand and a price; parsed before anything is measured."""

    demand: float | None = None
    """Requests per second."""
    price: Price | None = None

    @classmethod
    def parse(cls, demand: str | None, price: str | None) -> Self:
        """Parse a demand, such as ``1000/s``, and the price of a replica, such as ``1.20/h``.

        Raises:
            RequestError: one of them is neither.
        """
        return cls(
            demand=None if demand is None else parse_demand(demand),
            price=None if price is None else Price.parse(price),
        )

    @property
    def is_set(self) -> bool:
        """Whether a demand or a price was given."""
        return self.demand is not None or self.price is not None

    def check(self, bounds: Sequence[str], *, several: bool) -> None:
        """Check before measuring that the demand and the price can be answered.

        Raises:
            RequestError: several loads are measured for a demand, and no bound selects one of them.
        """
        if several and self.demand is not None and not bounds:
            raise RequestError(
                "`demand` needs a bound that each replica must hold: `require=latency.p99 <= 50ms`."
            )

    def of_result(self, result: Result, bounds: Sequence[Constraint] = ()) -> CostAnswer:
        """Compute replicas and costs for one Result.

        Raises:
            RequestError: a demand is given, and the Result was not measured under load.
        """
        if self.demand is None:
            result_costs = None if self.price is None else costs(result, self.price)
            return CostAnswer(price=self.price, costs=result_costs)
        load = result.job.load
        if load is None:
            raise RequestError("`demand` needs a result of modeldyno load: a server's rate within bounds.")
        rung = LoadPoint.of(result, load.slots or load.rate or 0.0, bounds)
        not_held = next((j for j in rung.judgements if j.verdict is not Verdict.HELD), None)
        if not_held is not None:
            advice = "measure a smaller load" if not_held.verdict is Verdict.BROKEN else "measure it longer"
            return CostAnswer(
                why=f"The number of replicas is unknown, because {not_held.sentence()}; {advice}."
            )
        return self._provide(rung, tuple(bounds), closed=load.closed)

    def of_several(self, curve: LoadCurve | Capacity) -> CostAnswer:
        """Compute replicas and costs for a load curve, at the largest load that holds every bound."""
        if self.demand is None:
            return CostAnswer()
        try:
            rung = largest_holding_load(curve)
        except RequestError as error:  # the measurements are reported anyway
            return CostAnswer(why=str(error))
        load = None if curve.job is None else curve.job.load
        closed = curve.knob != RATE if load is None else load.closed
        return self._provide(rung, bounds_of(curve), closed=closed)

    def of_document(
        self, document: Result | LoadCurve | Capacity, bounds: Sequence[Constraint] = ()
    ) -> CostAnswer:
        """Compute replicas and costs for a Result within bounds, or for a load series within its own.

        Raises:
            RequestError: a demand is given for a Result that was not measured under load.
        """
        return (
            self.of_several(document)
            if isinstance(document, LoadCurve | Capacity)
            else self.of_result(document, bounds)
        )

    def _provide(self, rung: LoadPoint, bounds: tuple[Constraint, ...], *, closed: bool) -> CostAnswer:
        assert self.demand is not None
        try:
            needed = plan_replicas(self.demand, rung, closed=closed)
        except RequestError as error:
            return CostAnswer(why=str(error))
        return CostAnswer(price=self.price, bounds=bounds, provision=needed)

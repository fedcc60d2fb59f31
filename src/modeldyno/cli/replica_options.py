"""What a demand takes and a price comes to; shared by the commands that have measured a rate."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from modeldyno.cli.printing import listened, print_blocks
from modeldyno.core.load.load_curve import Rung
from modeldyno.core.load.replicas_and_cost import (
    Cost,
    Price,
    Provision,
    bounds_of,
    costs,
    expense,
    holding,
    parse_demand,
    provision,
)
from modeldyno.core.metrics.constraints import Constraint, Verdict
from modeldyno.core.report.blocks import Notice, Severity
from modeldyno.errors import RequestError
from modeldyno.views.load import replicas as views

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.load.capacity import Capacity
    from modeldyno.core.load.load_curve import Ladder
    from modeldyno.core.report.blocks import Block
    from modeldyno.core.result.result import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Provided:
    """What was asked for, answered: for people as blocks, for programs as part of the document."""

    price: Price | None = None
    bounds: tuple[Constraint, ...] = ()
    provision: Provision | None = None
    costs: tuple[Cost, ...] | None = None
    why: str = ""
    """Why no number of replicas is known, where one is asked for."""

    def blocks(self) -> Iterator[Block]:
        """Lay it out; nothing where nothing was asked for."""
        if self.why:
            yield Notice(severity=Severity.UNDECIDED, code="demand", text=self.why)
        if self.provision is not None:
            yield from views.provision(self.provision, self.price, self.bounds)
        if self.costs is not None and self.price is not None:
            yield from views.costs(self.costs, self.price)

    def derived(self) -> dict[str, Any]:
        """Give what a document says of it beside what was measured."""
        found: dict[str, Any] = {}
        if self.why:
            found["provision"] = {"why": self.why}
        if self.provision is not None:
            found["provision"] = {**asdict(self.provision), "used": self.provision.used}
            if self.price is not None:
                found["expense"] = asdict(expense(self.provision, self.price))
        if self.costs is not None and self.price is not None:
            found["costs"] = [{**asdict(cost), "currency": self.price.currency} for cost in self.costs]
        return found

    def tell(self) -> None:
        """Print it."""
        with listened():
            print_blocks(*self.blocks())


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What ``--demand`` and ``--price`` ask for; read before anything is measured."""

    demand: float | None = None
    """Requests per second."""
    price: Price | None = None

    @classmethod
    def of(cls, options: dict[str, Any]) -> Self:
        """Read the options."""
        demand, price = options["demand"], options["price"]
        return cls(
            demand=None if demand is None else parse_demand(demand),
            price=None if price is None else Price.parse(price),
        )

    @property
    def asked(self) -> bool:
        """Whether there is anything to say."""
        return self.demand is not None or self.price is not None

    def check(self, bounds: Sequence[str], *, several: bool) -> None:
        """Refuse, before anything is measured, what could not be answered.

        Raises:
            RequestError: several loads are measured, and nothing says which of them is to be held.
        """
        if several and self.price is not None and self.demand is None:
            raise RequestError("--price of several loads needs a demand to share: --demand 1000/s.")
        if several and self.demand is not None and not bounds:
            raise RequestError(
                "--demand needs a bound that a replica is to hold: --require 'latency.p99 <= 50ms'."
            )

    def of_result(self, result: Result, bounds: Sequence[Constraint] = ()) -> Provided:
        """Say what one Result comes to.

        Raises:
            RequestError: a demand is held against a Result that is of no load.
        """
        if self.demand is None:
            spent = None if self.price is None else costs(result, self.price)
            return Provided(price=self.price, costs=spent)
        load = result.job.load
        if load is None:
            raise RequestError(
                "--demand needs a result of modeldyno load: a rate within bounds, of a server."
            )
        rung = Rung.of(result, load.slots or load.rate or 0.0, bounds)
        unheld = next((j for j in rung.judgements if j.verdict is not Verdict.HELD), None)
        if unheld is not None:
            advice = "measure a smaller load" if unheld.verdict is Verdict.BROKEN else "measure it longer"
            return Provided(why=f"No number of replicas is known, for {unheld.sentence()}; {advice}.")
        return self._needed(rung, tuple(bounds), closed=load.closed)

    def of_several(self, found: Ladder | Capacity, *, closed: bool) -> Provided:
        """Say what a served curve comes to: at the greatest load that holds every bound."""
        if self.demand is None:
            return Provided()
        try:
            rung = holding(found)
        except RequestError as error:  # what was measured is told all the same
            return Provided(why=str(error))
        return self._needed(rung, bounds_of(found), closed=closed)

    def _needed(self, rung: Rung, bounds: tuple[Constraint, ...], *, closed: bool) -> Provided:
        assert self.demand is not None
        try:
            needed = provision(self.demand, rung, closed=closed)
        except RequestError as error:
            return Provided(why=str(error))
        return Provided(price=self.price, bounds=bounds, provision=needed)

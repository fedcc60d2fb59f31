"""What a demand takes and a price comes to; shared by the commands that have measured a rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from modeldyno.cli.output import listened, print_blocks
from modeldyno.core.block import Notice, Severity
from modeldyno.core.ladder import Rung
from modeldyno.core.provision import Price, costs, holding, parse_demand, provision
from modeldyno.errors import RequestError
from modeldyno.views import provision as views

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.block import Block
    from modeldyno.core.capacity import Capacity
    from modeldyno.core.goal import Constraint
    from modeldyno.core.ladder import Ladder
    from modeldyno.core.result import Result
    from modeldyno.request import Request


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

    def told(self, result: Result, bounds: Sequence[Constraint] = ()) -> None:
        """Print what one Result comes to."""
        with listened():
            print_blocks(*self._of(result, bounds))

    def told_of_several(self, found: Ladder | Capacity, asked: Request) -> None:
        """Print what a served curve comes to: at the greatest load that holds every bound."""
        if self.demand is None:
            return
        closed = asked.load is None or asked.load.closed
        try:
            needed = provision(self.demand, holding(found), closed=closed)
            blocks = tuple(views.provision(needed, self.price, asked.constraints()))
        except RequestError as error:  # what was measured is told all the same
            blocks = (Notice(severity=Severity.UNDECIDED, code="demand", text=str(error)),)
        with listened():
            print_blocks(*blocks)

    def _of(self, result: Result, bounds: Sequence[Constraint]) -> Iterator[Block]:
        if self.demand is not None:
            load = result.job.load
            if load is None:
                raise RequestError(
                    "--demand needs a result of modeldyno load: a rate within bounds, of a server."
                )
            rung = Rung.of(result, load.slots or load.rate or 0.0, bounds)
            if any(judgement.verdict != "held" for judgement in rung.judgements):
                raise RequestError("The bounds do not surely hold under that load; measure a smaller one.")
            found = provision(self.demand, rung, closed=load.closed)
            yield from views.provision(found, self.price, bounds)
        elif self.price is not None:
            yield from views.costs(costs(result, self.price), self.price)

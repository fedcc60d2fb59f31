"""What a search for the largest load looks for, and how hard."""

from __future__ import annotations

import math
from dataclasses import dataclass

from modeldyno.core.load.sla_fit import confidence, limits
from modeldyno.core.metrics.constraints import Constraint
from modeldyno.errors import RequestError

CONCURRENCY, RATE = "concurrency", "rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is looked for, and how hard."""

    bounds: tuple[Constraint, ...]
    """All of them are to hold; at least one must be such that more load can break it."""
    knob: str = CONCURRENCY
    """What is raised: ``concurrency``, or the ``rate`` of an open loop."""
    start: float = 1.0
    """The first load."""
    most: float = 1024.0
    """The largest load that is tried."""
    measurements: int = 10
    """Most loads that are measured, repetitions included."""
    resolution: float = 0.05
    """Ratio, less one, of the smallest load that failed to the largest that passed, at which to stop."""
    patience: float = 8.0
    """Most time that is spent on one load, as a multiple of what the Plan says."""

    def __post_init__(self) -> None:
        """Refuse, in one sentence, what cannot be searched."""
        for broken, message in _contradictions(self):
            if broken:
                raise RequestError(f"{message}.")

    @property
    def whole(self) -> bool:
        """Whether loads are whole numbers."""
        return self.knob == CONCURRENCY

    @property
    def sureness(self) -> float:
        """Standard errors that make a verdict sure.

        Half of the measurements may err: those that bracket the bound are far from it.
        """
        return confidence(math.ceil(self.measurements / 2) * sum(map(limits, self.bounds)))


def _contradictions(search: Search) -> tuple[tuple[bool, str], ...]:
    """Return what must not be, each with the sentence that says so."""
    first, last, fine = search.start, search.most, search.resolution
    return (
        (not any(map(limits, search.bounds)), _NO_LIMIT),
        (not 0 < first <= last < math.inf, f"A search cannot go from {first:g} to {last:g}"),
        (search.measurements < 1, f"A search of {search.measurements} measurements finds nothing"),
        (not 0 < fine < math.inf, f"The resolution of a search is {fine:g}, but must be positive"),
        (not 1 <= search.patience < math.inf, f"The patience of a search is {search.patience:g}, below 1"),
    )


_NO_LIMIT = "No bound limits the load; name one that more load can break, such as 'latency.p99 <= 50ms'"

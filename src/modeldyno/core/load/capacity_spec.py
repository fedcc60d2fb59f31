"""Options of a search for the largest load."""

from __future__ import annotations

import math
from dataclasses import dataclass

from modeldyno.core.load.sla_fit import bonferroni_z, limits_load
from modeldyno.core.metrics.constraints import Constraint
from modeldyno.errors import RequestError

CONCURRENCY, RATE = "concurrency", "rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySearch:
    """Options of a search for the largest load."""

    bounds: tuple[Constraint, ...]
    """All must hold; at least one must be such that more load can break it."""
    knob: str = CONCURRENCY
    """The knob to raise: ``concurrency``, or the ``rate`` of an open loop."""
    start: float = 1.0
    """The first load."""
    most: float = 1024.0
    """The largest load to try."""
    measurements: int = 10
    """Most measurements, repetitions included."""
    resolution: float = 0.05
    """Stop when the smallest failed load exceeds the largest passed one by no more than this share."""
    patience: float = 8.0
    """Most time to spend on one load, as a multiple of the Plan's time."""

    def __post_init__(self) -> None:
        """Refuse invalid options with one sentence."""
        for broken, message in _contradictions(self):
            if broken:
                raise RequestError(f"{message}.")

    @property
    def whole(self) -> bool:
        """Whether loads are whole numbers."""
        return self.knob == CONCURRENCY

    @property
    def required_z(self) -> float:
        """Standard errors that make a verdict sure.

        Only half of the measurements count for the Bonferroni correction, because those that bracket the
        bound are far from it.
        """
        return bonferroni_z(math.ceil(self.measurements / 2) * sum(map(limits_load, self.bounds)))


def _contradictions(search: CapacitySearch) -> tuple[tuple[bool, str], ...]:
    """Return each condition that must not hold, with its message."""
    first, last, resolution = search.start, search.most, search.resolution
    return (
        (not any(map(limits_load, search.bounds)), _NO_LIMIT),
        (not 0 < first <= last < math.inf, f"A search cannot go from {first:g} to {last:g}"),
        (search.measurements < 1, f"A search needs at least one measurement, not {search.measurements}"),
        (
            not 0 < resolution < math.inf,
            f"The resolution of a search is {resolution:g}, but must be positive",
        ),
        (not 1 <= search.patience < math.inf, f"The patience of a search is {search.patience:g}, below 1"),
    )


_NO_LIMIT = "No bound limits the load; name one that more load can break, such as 'latency.p99 <= 50ms'"

"""Whether a machine is still the same: a small reference model, measured from time to time."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ENOUGH = 3
"""Readings before a change can be seen."""
_SHARE = 0.10
"""Smallest change that counts: what a machine varies from day to day by itself is less."""
_WIDTH = 5.0
"""Least change in median absolute deviations of the earlier readings."""
_TO_DEVIATION = 1.4826
"""Median absolute deviations of a normal distribution in a standard deviation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryReading:
    """The reference model, measured once on a quiet machine."""

    at: str
    """UTC, ISO 8601."""
    seconds: float
    """Median time of a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChange:
    """That the reference model has become faster or slower at once."""

    since: str
    """Time of the last reading before the change, UTC; no figure since then is sure."""
    factor: float
    """Time of a call now over that before."""

    @property
    def sentence(self) -> str:
        """Say it."""
        how = (
            f"{self.factor:.2f} times as long" if self.factor > 1 else f"{1 / self.factor:.2f} times as fast"
        )
        return f"the machine has changed: its reference model takes {how} since {self.since[:10]}"


def baseline(readings: Sequence[CanaryReading]) -> tuple[CanaryReading, ...]:
    """Return the latest readings that belong together: those after the last change, the oldest first."""
    start = 0
    for end in range(1, len(readings)):
        if _change(readings[start:end], readings[end]) is not None:
            start = end
    return tuple(readings[start:])


def machine_change(earlier: Sequence[CanaryReading], now: Sequence[CanaryReading]) -> MachineChange | None:
    """Return the change that new readings show; None if they are like the earlier ones.

    Args:
        earlier: the oldest first; only those since the last change count, and at least `ENOUGH` of them.
        now: at least two, one directly after the other: all must show the change.
    """
    usual = baseline(earlier)
    changes = [_change(usual, reading) for reading in now]
    factors = [factor for factor in changes if factor is not None]
    if len(factors) < len(changes) or not factors or len({factor > 1 for factor in factors}) > 1:
        return None
    return MachineChange(since=usual[-1].at, factor=median(factors))


def _change(earlier: Sequence[CanaryReading], reading: CanaryReading) -> float | None:
    """Return the factor of a reading over the known ones, if it is too far from them."""
    if len(earlier) < ENOUGH:
        return None
    usual = median(each.seconds for each in earlier)
    deviation = _TO_DEVIATION * median(abs(each.seconds - usual) for each in earlier)
    if abs(reading.seconds - usual) <= max(_SHARE * usual, _WIDTH * deviation):
        return None
    return reading.seconds / usual

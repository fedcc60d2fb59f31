"""How fast a device could run a network at best: the roofline model.

Time is at least operations over peak operations per second, and at least bytes over bandwidth
(Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009). `ideal` is the bound on any implementation
that does the counted products, however it fuses operators; `eager` is that on running operator by
operator, each with its operands in memory. Both take memory for the device's own: a network that stays
in the caches from one call to the next is bound by its compute only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.core.spec.devices import Device
    from modeldyno.core.static.flops import Counted
    from modeldyno.core.static.totals import Totals


class Bound(StrEnum):
    """Which roof is the lower one."""

    COMPUTE = "compute"
    MEMORY = "memory"


def bound_by(compute_seconds: float, seconds: float) -> Bound:
    """Say what makes a time: the operations, where they alone take as long, but for rounding."""
    return Bound.COMPUTE if compute_seconds >= _ALL * seconds else Bound.MEMORY


_ALL = 0.999


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The shortest time that a call can take."""

    seconds: float
    compute_seconds: float
    """For the operations alone."""
    memory_seconds: float
    """For the bytes alone."""

    @property
    def bound(self) -> Bound:
        """Say which of both takes longer."""
        return bound_by(self.compute_seconds, self.memory_seconds)


def ideal(totals: Totals, device: Device, dtype: str) -> Estimate:
    """Bound one call from below for any implementation of the counted products.

    The products that no mask discards have to be done; element-wise work may be folded into others, as
    a normalisation into a convolution, and is left out. What is read and returned has to move once.
    """
    compute = 2 * totals.causal_macs / device.peak(dtype)
    memory = totals.moved / device.bandwidth
    return Estimate(seconds=max(compute, memory), compute_seconds=compute, memory_seconds=memory)


def eager(costs: Mapping[Counted, int], device: Device, dtype: str) -> Estimate:
    """Bound one call from below that runs one operator after the other, each through memory.

    Args:
        costs: what operators cost, and how many cost that: a Counter of them.
        device: where they run.
        dtype: of their products.
    """
    rate = device.peak(dtype)
    seconds = compute = memory = 0.0
    for cost, times in costs.items():
        working = times * (2 * (cost.macs - cost.skippable) + cost.elementwise) / rate
        moving = times * (cost.read + cost.written) / device.bandwidth
        seconds += max(working, moving)
        compute += working
        memory += moving
    return Estimate(seconds=seconds, compute_seconds=compute, memory_seconds=memory)


def decode(weight_bytes: int, cache_bytes: int, device: Device) -> float:
    """Bound the seconds of one step of generation from below: active weights and cache are read once."""
    return (weight_bytes + cache_bytes) / device.bandwidth

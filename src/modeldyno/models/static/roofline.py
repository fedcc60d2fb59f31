"""Roofline model: lower bounds on the time of a model on a device.

Time is at least operations over peak operations per second, and at least bytes over bandwidth
(Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009). `estimate_ideal` is the bound on any
implementation that does the counted products, however it fuses operators; `estimate_eager` is that on running
operator by operator, each with its operands in memory. Both use the bandwidth of device memory: a model that
stays in the caches from one call to the next is bound by compute only.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.job.devices import DevicePeaks
    from modeldyno.models.flops import CountedOp
    from modeldyno.models.static.totals import Totals


class Bound(StrEnum):
    """Which resource bounds the time."""

    COMPUTE = "compute"
    MEMORY = "memory"


def limiting_resource(compute_seconds: float, seconds: float) -> Bound:
    """Return what bounds a time: compute, where it alone takes as long, up to rounding."""
    return Bound.COMPUTE if compute_seconds >= _ROUNDING * seconds else Bound.MEMORY


_ROUNDING = 0.999


def estimate_ideal(totals: Totals, device: DevicePeaks, dtype: str) -> float:
    """Return a lower bound on the seconds of a call, for any implementation of the counted products.

    Products that no mask discards have to be computed. Element-wise work may be fused into other operators,
    as a normalisation into a convolution, and is left out. Everything read or returned moves once.
    """
    compute = 2 * totals.causal_macs / device.peak(dtype)
    memory = totals.moved / device.bandwidth
    return max(compute, memory)


def estimate_eager(costs: Mapping[CountedOp, int], device: DevicePeaks, dtype: str) -> float:
    """Return a lower bound on the seconds of a call that runs operator by operator, with operands in memory.

    Args:
        costs: a Counter of the costs of the operators.
        device: where they run.
        dtype: of their products.
    """
    rate = device.peak(dtype)
    seconds = 0.0
    for cost, times in costs.items():
        working = times * (2 * (cost.macs - cost.skippable) + cost.elementwise) / rate
        moving = times * (cost.read + cost.written) / device.bandwidth
        seconds += max(working, moving)
    return seconds


def estimate_decode_seconds(weight_bytes: int, cache_bytes: int, device: DevicePeaks) -> float:
    """Return a lower bound on the seconds of one decode step: active weights and cache are read once."""
    return (weight_bytes + cache_bytes) / device.bandwidth

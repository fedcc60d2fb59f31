"""An accelerator at a moment, whoever told of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProcess:
    """A process on a device."""

    pid: int
    name: str | None
    """None if it is not known here, as in another container."""
    bytes: int | None
    """The device memory that it holds."""
    computes: bool = True
    """False if it only draws, as a desktop does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """An accelerator, or a MIG instance of one, at a moment; None where a figure is unknown."""

    index: int
    """The number that the driver gives the card."""
    instance: int | None = None
    """The number of a MIG instance on its card; None for a whole card."""
    uuid: str
    name: str
    cuda: str | None = None
    """What it is called in programs, such as ``cuda:0``; None if they do not see it, or if CUDA's order is
    not known because the cards differ."""
    utilization: float | None = None
    """Share of the last moment in which anything ran on it, from 0 to 1."""
    memory_used: int | None = None
    """Bytes."""
    memory_free: int | None = None
    memory_total: int | None = None
    power: float | None = None
    """Watts."""
    power_limit: float | None = None
    temperature: float | None = None
    """Degrees Celsius."""
    clock: float | None = None
    """Hertz."""
    memory_clock: float | None = None
    processes: tuple[DeviceProcess, ...] = ()
    """Those that the driver shows; in a container it may show none."""

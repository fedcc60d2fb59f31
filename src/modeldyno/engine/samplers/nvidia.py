"""Readings of the NVIDIA devices that CUDA will use, from NVML or else nvidia-smi.

Runs in the side process. NVML needs the package nvidia-ml-py; without it, two looping `nvidia-smi` processes
are read. Unavailable values are left out, never reported as 0. Standard library otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.engine.environment.nvidia import (
    CORE_SENSOR,
    MEGA,
    MEMORY_CLOCK,
    MILLI,
    PERCENT,
    SM_CLOCK,
    hides_all_devices,
    list_nvml_cards,
    load_nvml,
    query_nvml,
    read_memory,
    scaled,
    visible_devices,
)
from modeldyno.engine.environment.nvidia_smi import list_smi_cards
from modeldyno.engine.samplers import nvidia_smi

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.engine.environment.nvidia import VisibleDevice

COUNTER_PERIOD = 0.1
"""Maximum seconds between two updates of the energy counter, on devices that have one."""


class Nvml:
    """Reads devices with NVML."""

    def __init__(self, nvml: Any, visible: Mapping[str, VisibleDevice]) -> None:
        """Open the devices to watch; `nvml` is the initialised module."""
        self._nvml = nvml
        handles = {name: self._handle(device) for name, device in visible.items()}
        self._handles = {name: pair for name, pair in handles.items() if None not in pair}
        self._read_up_to = dict.fromkeys(self._handles, 0)
        for name, (card, _) in self._handles.items():
            self._new_shares(name, card)  # those of before are not of interest
        self.devices: dict[str, dict[str, Any]] = {
            name: {"kind": "gpu", "period": COUNTER_PERIOD, "span": None} for name in self._handles
        }

    def read(self, pids: frozenset[int]) -> dict[str, dict[str, float]]:
        """Read each device; `pids` are the processes whose memory counts as the model's."""
        readings = {
            name: self._read_card(card, undivided=card is part)
            | self._read_memory(part, pids)
            | (self._read_foreign_use(name, card, pids) if card is part else {})
            for name, (card, part) in self._handles.items()
        }
        return {
            name: {key: value for key, value in reading.items() if value is not None}
            for name, reading in readings.items()
        }

    def close(self) -> None:
        """Shut NVML down."""
        query_nvml(self._nvml, "nvmlShutdown")

    def _handle(self, device: VisibleDevice) -> tuple[Any, Any]:
        card = query_nvml(self._nvml, "nvmlDeviceGetHandleByIndex", device.card.index)
        part = query_nvml(self._nvml, "nvmlDeviceGetHandleByUUID", device.part) if device.part else card
        return card, part

    def _read_card(self, card: Any, *, undivided: bool) -> dict[str, float | None]:
        """Read the values of a card; an instance's share of power and utilisation is unknown."""
        clock = query_nvml(self._nvml, "nvmlDeviceGetClockInfo", card, SM_CLOCK)
        memory_clock = query_nvml(self._nvml, "nvmlDeviceGetClockInfo", card, MEMORY_CLOCK)
        reasons = query_nvml(self._nvml, "nvmlDeviceGetCurrentClocksEventReasons", card)
        if reasons is None:  # its name before 2023
            reasons = query_nvml(self._nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", card)
        common = {
            "clock": scaled(clock, MEGA),
            "memory_clock": scaled(memory_clock, MEGA),
            "temperature": scaled(query_nvml(self._nvml, "nvmlDeviceGetTemperature", card, CORE_SENSOR), 1.0),
            "reasons": reasons,
        }
        if not undivided:
            return common
        rates = query_nvml(self._nvml, "nvmlDeviceGetUtilizationRates", card)
        return common | {
            "utilization": scaled(getattr(rates, "gpu", None), PERCENT),
            "energy": scaled(query_nvml(self._nvml, "nvmlDeviceGetTotalEnergyConsumption", card), MILLI),
            "power": scaled(query_nvml(self._nvml, "nvmlDeviceGetPowerUsage", card), MILLI),
        }

    def _read_memory(self, part: Any, pids: frozenset[int]) -> dict[str, float | None]:
        memory = read_memory(self._nvml, part)
        running = [
            process
            for query in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")
            for process in query_nvml(self._nvml, query, part) or ()
        ]
        memory_of_pid = {process.pid: process.usedGpuMemory for process in running if process.pid in pids}
        sizes = [size for size in memory_of_pid.values() if size is not None]
        return {
            "used": getattr(memory, "used", None),
            "total": getattr(memory, "total", None),
            "memory": sum(sizes) if sizes else None,
            "ours": len(memory_of_pid) or None,
        }

    def _read_foreign_use(self, name: str, card: Any, pids: frozenset[int]) -> dict[str, float | None]:
        """Read how busy processes that are not the model's kept a card since the last reading, and which."""
        shares: dict[int, list[float]] = {}
        for sample in self._new_shares(name, card):
            if sample.pid not in pids:
                shares.setdefault(sample.pid, []).append(sample.smUtil * PERCENT)
        if not shares:
            return {}
        means = {pid: sum(values) / len(values) for pid, values in shares.items()}
        return {"foreign": sum(means.values()), "foreign_pid": max(means, key=means.__getitem__)}

    def _new_shares(self, name: str, card: Any) -> Sequence[Any]:
        """Return the driver's samples of how busy each process kept a card, since the last ones."""
        since = self._read_up_to[name]
        samples = query_nvml(self._nvml, "nvmlDeviceGetProcessUtilization", card, since) or ()
        self._read_up_to[name] = max((sample.timeStamp for sample in samples), default=since)
        return samples


def open_nvidia_devices(environ: Mapping[str, str]) -> Nvml | nvidia_smi.Smi | None:
    """Open the devices that CUDA will use, with NVML or else nvidia-smi; None if there are none."""
    if hides_all_devices(environ):
        return None
    nvml = load_nvml()
    if nvml is not None:
        devices = visible_devices(list_nvml_cards(nvml), environ)
        return Nvml(nvml, devices) if devices else None
    devices = visible_devices(list_smi_cards(), environ)
    uuids = {name: device.card.uuid for name, device in devices.items() if not device.part}
    return nvidia_smi.Smi(uuids) if uuids else None

"""Readings of the NVIDIA devices that CUDA will use, from NVML or else nvidia-smi.

Runs in the side process. NVML needs the package nvidia-ml-py; without it, two looping `nvidia-smi` processes
are read. Unavailable values are left out, never reported as 0. Standard library otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.samplers import nvidia_smi

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COUNTER_PERIOD = 0.1
"""Maximum seconds between two updates of the energy counter, on devices that have one."""
_SM, _MEMORY, _CORE = 1, 2, 0
"""NVML's constants: SM clock, memory clock, temperature sensor."""
_MILLI, _MEGA, _PERCENT = 1e-3, 1e6, 1e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A device as the driver lists it, in PCI bus order."""

    index: int
    name: str
    uuid: str
    parts: tuple[str, ...] = ()
    """UUIDs of its MIG instances, if it is partitioned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleDevice:
    """A device that CUDA will or may use."""

    card: Card
    part: str = ""
    """UUID of the MIG instance; empty for a whole card."""


def hides_all_devices(environ: Mapping[str, str]) -> bool:
    """Check whether CUDA_VISIBLE_DEVICES hides all devices."""
    return environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in {"", "-1"}


def visible_devices(cards: Sequence[Card], environ: Mapping[str, str]) -> dict[str, VisibleDevice]:
    """Return the devices by CUDA's numbers: ``cuda:0``, ``cuda:1``.

    CUDA_VISIBLE_DEVICES may list indices and (prefixes of) UUIDs of cards and MIG instances; CUDA ignores
    it from the first invalid entry on. CUDA's default order is by speed, which is unknown here: if cards
    differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID, indices are meaningless. Then all cards are returned by
    the driver's numbers (``gpu:0``), and the processes on them show which are used.
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    tokens = list(map(str, range(len(cards)))) if listed is None else listed.replace(" ", "").split(",")
    by_bus = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    mixed = len({card.name for card in cards}) > 1
    if mixed and not by_bus and any(token.isdecimal() for token in tokens):
        return {f"gpu:{card.index}": _whole_card(card) for card in cards}
    devices: dict[str, VisibleDevice] = {}
    for token in tokens:
        device = _find_device(token, cards)
        if device is None:
            break
        devices[f"cuda:{len(devices)}"] = device
    return devices


def _find_device(token: str, cards: Sequence[Card]) -> VisibleDevice | None:
    if token.isdecimal():
        return _whole_card(cards[int(token)]) if int(token) < len(cards) else None
    if token.startswith("MIG-"):
        parts = [(card, part) for card in cards for part in card.parts if part.startswith(token)]
        return VisibleDevice(card=parts[0][0], part=parts[0][1]) if len(parts) == 1 else None
    alike = [card for card in cards if token.startswith("GPU-") and card.uuid.startswith(token)]
    return _whole_card(alike[0]) if len(alike) == 1 else None


def _whole_card(card: Card) -> VisibleDevice:
    """Return a card, or the first instance of a partitioned one: CUDA sees only that."""
    return VisibleDevice(card=card, part=card.parts[0] if card.parts else "")


class Nvml:
    """Reads devices with NVML."""

    def __init__(self, nvml: Any, seen: Mapping[str, VisibleDevice]) -> None:
        """Open the devices to watch; `nvml` is the initialised module."""
        self._nvml = nvml
        handles = {name: self._handle(device) for name, device in seen.items()}
        self._handles = {name: pair for name, pair in handles.items() if None not in pair}
        self.devices: dict[str, dict[str, Any]] = {
            name: {"kind": "gpu", "period": COUNTER_PERIOD, "span": None} for name in self._handles
        }

    def read(self, pids: frozenset[int]) -> dict[str, dict[str, float]]:
        """Read each device; `pids` are the processes whose memory counts as the model's."""
        readings = {
            name: self._read_card(card, whole=card is part) | self._read_memory(part, pids)
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

    def _read_card(self, card: Any, *, whole: bool) -> dict[str, float | None]:
        """Read the values of a card; an instance's share of power and utilisation is unknown."""
        clock = query_nvml(self._nvml, "nvmlDeviceGetClockInfo", card, _SM)
        memory_clock = query_nvml(self._nvml, "nvmlDeviceGetClockInfo", card, _MEMORY)
        reasons = query_nvml(self._nvml, "nvmlDeviceGetCurrentClocksEventReasons", card)
        if reasons is None:  # its name before 2023
            reasons = query_nvml(self._nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", card)
        common = {
            "clock": _scaled(clock, _MEGA),
            "memory_clock": _scaled(memory_clock, _MEGA),
            "temperature": _scaled(query_nvml(self._nvml, "nvmlDeviceGetTemperature", card, _CORE), 1.0),
            "reasons": reasons,
        }
        if not whole:
            return common
        rates = query_nvml(self._nvml, "nvmlDeviceGetUtilizationRates", card)
        return common | {
            "utilization": _scaled(getattr(rates, "gpu", None), _PERCENT),
            "energy": _scaled(query_nvml(self._nvml, "nvmlDeviceGetTotalEnergyConsumption", card), _MILLI),
            "power": _scaled(query_nvml(self._nvml, "nvmlDeviceGetPowerUsage", card), _MILLI),
        }

    def _read_memory(self, part: Any, pids: frozenset[int]) -> dict[str, float | None]:
        memory = query_nvml(self._nvml, "nvmlDeviceGetMemoryInfo", part)
        running = [
            process
            for query in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")
            for process in query_nvml(self._nvml, query, part) or ()
        ]
        memory_of_pid = {process.pid: process.usedGpuMemory for process in running if process.pid in pids}
        sizes = [size for size in memory_of_pid.values() if size is not None]
        return {
            "used": getattr(memory, "used", None),
            "memory": sum(sizes) if sizes else None,
            "ours": len(memory_of_pid) or None,
        }


def query_nvml(nvml: Any, function: str, *arguments: Any) -> Any:
    """Call an NVML function; None if the device, the driver or this version does not support it."""
    try:
        return getattr(nvml, function)(*arguments)
    except (AttributeError, nvml.NVMLError):
        return None


def list_nvml_cards(nvml: Any) -> list[Card]:
    """List the cards that NVML sees."""
    handles = [
        query_nvml(nvml, "nvmlDeviceGetHandleByIndex", i)
        for i in range(query_nvml(nvml, "nvmlDeviceGetCount") or 0)
    ]
    return [
        Card(
            index=index,
            name=_text(query_nvml(nvml, "nvmlDeviceGetName", handle)),
            uuid=_text(query_nvml(nvml, "nvmlDeviceGetUUID", handle)),
            parts=tuple(_mig_uuids(nvml, handle)),
        )
        for index, handle in enumerate(handles)
    ]


def _mig_uuids(nvml: Any, card: Any) -> list[str]:
    mode = query_nvml(nvml, "nvmlDeviceGetMigMode", card)
    if not mode or not mode[0]:
        return []
    most = query_nvml(nvml, "nvmlDeviceGetMaxMigDeviceCount", card) or 0
    handles = (query_nvml(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", card, index) for index in range(most))
    return [_text(query_nvml(nvml, "nvmlDeviceGetUUID", part)) for part in handles if part is not None]


def open_nvidia_devices(environ: Mapping[str, str]) -> Nvml | nvidia_smi.Smi | None:
    """Open the devices that CUDA will use, with NVML or else nvidia-smi; None if there are none."""
    if hides_all_devices(environ):
        return None
    nvml = _load_nvml()
    if nvml is not None:
        devices = visible_devices(list_nvml_cards(nvml), environ)
        return Nvml(nvml, devices) if devices else None
    devices = visible_devices([Card(**card) for card in nvidia_smi.list_smi_cards()], environ)
    whole = {name: device.card.uuid for name, device in devices.items() if not device.part}
    return nvidia_smi.Smi(whole) if whole else None


def _load_nvml() -> Any:
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _text(value: str | bytes | None) -> str:
    """Return text: older versions of the package return bytes."""
    return value.decode() if isinstance(value, bytes) else value or ""

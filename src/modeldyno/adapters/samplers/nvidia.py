"""NVIDIA devices: those that CUDA will use, and what NVML, or else nvidia-smi, tells of them.

Runs in the side process. NVML needs the package nvidia-ml-py; without it, two `nvidia-smi` that repeat
themselves are read. What cannot be told is left out, and is never 0. Standard library otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.samplers import nvidia_smi

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COUNTER_PERIOD = 0.1
"""Seconds between two updates of the counter of energy, at most, on the devices that have one."""
_SM, _MEMORY, _CORE = 1, 2, 0
"""NVML's numbers: clock of the multiprocessors, clock of the memory, sensor of temperature."""
_MILLI, _MEGA, _PERCENT = 1e-3, 1e6, 1e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A device as the driver lists it, in the order of its place on the bus."""

    index: int
    name: str
    uuid: str
    parts: tuple[str, ...] = ()
    """UUIDs of its MIG instances, if it is divided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """A device that CUDA will use, or may use."""

    card: Card
    part: str = ""
    """UUID of the MIG instance; empty for a whole card."""


def hidden(environ: Mapping[str, str]) -> bool:
    """Say whether CUDA is told to use no device at all."""
    return environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in {"", "-1"}


def visible(cards: Sequence[Card], environ: Mapping[str, str]) -> dict[str, Visible]:
    """Name the devices as CUDA will number them: ``cuda:0``, ``cuda:1``.

    CUDA_VISIBLE_DEVICES may list indices and (beginnings of) UUIDs, of cards and of MIG instances; from
    the first that is none on, it is not read. CUDA's own order is by speed, which nobody else knows: if
    cards differ, and it is not told to go by the bus, indices mean nothing here. Then all cards are given
    by the driver's numbers (``gpu:0``), and it is for the processes on them to tell which are used.
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    tokens = list(map(str, range(len(cards)))) if listed is None else listed.replace(" ", "").split(",")
    by_bus = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    unlike = len({card.name for card in cards}) > 1
    if unlike and not by_bus and any(token.isdecimal() for token in tokens):
        return {f"gpu:{card.index}": _whole(card) for card in cards}
    found: dict[str, Visible] = {}
    for token in tokens:
        seen = _named(token, cards)
        if seen is None:
            break
        found[f"cuda:{len(found)}"] = seen
    return found


def _named(token: str, cards: Sequence[Card]) -> Visible | None:
    if token.isdecimal():
        return _whole(cards[int(token)]) if int(token) < len(cards) else None
    if token.startswith("MIG-"):
        parts = [(card, part) for card in cards for part in card.parts if part.startswith(token)]
        return Visible(card=parts[0][0], part=parts[0][1]) if len(parts) == 1 else None
    alike = [card for card in cards if token.startswith("GPU-") and card.uuid.startswith(token)]
    return _whole(alike[0]) if len(alike) == 1 else None


def _whole(card: Card) -> Visible:
    """Give a card, or of a divided one the first instance: CUDA sees no more of it."""
    return Visible(card=card, part=card.parts[0] if card.parts else "")


class Nvml:
    """Devices by NVML."""

    def __init__(self, nvml: Any, seen: Mapping[str, Visible]) -> None:
        """Take the module (initialised) and the devices to watch."""
        self._nvml = nvml
        handles = {name: self._handle(one) for name, one in seen.items()}
        self._handles = {name: both for name, both in handles.items() if None not in both}
        self.devices: dict[str, dict[str, Any]] = {
            name: {"kind": "gpu", "period": COUNTER_PERIOD, "span": None} for name in self._handles
        }

    def read(self, pids: frozenset[int]) -> dict[str, dict[str, float]]:
        """Ask each device; `pids` are the processes whose memory counts as the model's."""
        found = {
            name: self._of_card(card, whole=card is part) | self._of_part(part, pids)
            for name, (card, part) in self._handles.items()
        }
        return {
            name: {key: value for key, value in told.items() if value is not None}
            for name, told in found.items()
        }

    def close(self) -> None:
        """Let go of NVML."""
        ask(self._nvml, "nvmlShutdown")

    def _handle(self, one: Visible) -> tuple[Any, Any]:
        card = ask(self._nvml, "nvmlDeviceGetHandleByIndex", one.card.index)
        part = ask(self._nvml, "nvmlDeviceGetHandleByUUID", one.part) if one.part else card
        return card, part

    def _of_card(self, card: Any, *, whole: bool) -> dict[str, float | None]:
        """Ask what holds for the whole card; what an instance takes of its power is not known."""
        clock = ask(self._nvml, "nvmlDeviceGetClockInfo", card, _SM)
        memory_clock = ask(self._nvml, "nvmlDeviceGetClockInfo", card, _MEMORY)
        reasons = ask(self._nvml, "nvmlDeviceGetCurrentClocksEventReasons", card)
        if reasons is None:  # its name before 2023
            reasons = ask(self._nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", card)
        common = {
            "clock": _scaled(clock, _MEGA),
            "memory_clock": _scaled(memory_clock, _MEGA),
            "temperature": _scaled(ask(self._nvml, "nvmlDeviceGetTemperature", card, _CORE), 1.0),
            "reasons": reasons,
        }
        if not whole:
            return common
        rates = ask(self._nvml, "nvmlDeviceGetUtilizationRates", card)
        return common | {
            "utilization": _scaled(getattr(rates, "gpu", None), _PERCENT),
            "energy": _scaled(ask(self._nvml, "nvmlDeviceGetTotalEnergyConsumption", card), _MILLI),
            "power": _scaled(ask(self._nvml, "nvmlDeviceGetPowerUsage", card), _MILLI),
        }

    def _of_part(self, part: Any, pids: frozenset[int]) -> dict[str, float | None]:
        memory = ask(self._nvml, "nvmlDeviceGetMemoryInfo", part)
        running = [
            process
            for query in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")
            for process in ask(self._nvml, query, part) or ()
        ]
        ours = {process.pid: process.usedGpuMemory for process in running if process.pid in pids}
        sizes = [size for size in ours.values() if size is not None]
        return {
            "used": getattr(memory, "used", None),
            "memory": sum(sizes) if sizes else None,
            "ours": len(ours) or None,
        }


def ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """Ask NVML; None where the device, the driver or this version of the package cannot tell."""
    try:
        return getattr(nvml, function)(*arguments)
    except (AttributeError, nvml.NVMLError):
        return None


def cards(nvml: Any) -> list[Card]:
    """List the cards that NVML sees."""
    handles = [
        ask(nvml, "nvmlDeviceGetHandleByIndex", i) for i in range(ask(nvml, "nvmlDeviceGetCount") or 0)
    ]
    return [
        Card(
            index=index,
            name=_text(ask(nvml, "nvmlDeviceGetName", handle)),
            uuid=_text(ask(nvml, "nvmlDeviceGetUUID", handle)),
            parts=tuple(_parts(nvml, handle)),
        )
        for index, handle in enumerate(handles)
    ]


def _parts(nvml: Any, card: Any) -> list[str]:
    mode = ask(nvml, "nvmlDeviceGetMigMode", card)
    if not mode or not mode[0]:
        return []
    most = ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", card) or 0
    found = (ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", card, index) for index in range(most))
    return [_text(ask(nvml, "nvmlDeviceGetUUID", part)) for part in found if part is not None]


def opened(environ: Mapping[str, str]) -> Nvml | nvidia_smi.Smi | None:
    """Give the devices that CUDA will use, by NVML or else by nvidia-smi; None where there are none."""
    if hidden(environ):
        return None
    nvml = _initialised()
    if nvml is not None:
        seen = visible(cards(nvml), environ)
        return Nvml(nvml, seen) if seen else None
    seen = visible([Card(**found) for found in nvidia_smi.cards()], environ)
    whole = {name: one.card.uuid for name, one in seen.items() if not one.part}
    return nvidia_smi.Smi(whole) if whole else None


def _initialised() -> Any:
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
    """Give text: older packages answer in bytes."""
    return value.decode() if isinstance(value, bytes) else value or ""

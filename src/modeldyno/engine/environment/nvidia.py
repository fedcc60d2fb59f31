"""NVIDIA devices as their driver lists them, and by the names that CUDA gives them.

NVML needs the package nvidia-ml-py. Side processes import this: standard library only.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SM_CLOCK, MEMORY_CLOCK, CORE_SENSOR = 1, 2, 0
"""NVML's constants."""
MILLI, MEGA, PERCENT = 1e-3, 1e6, 1e-2
"""NVML's units in base units."""


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


def has_nvml_library() -> bool:
    """Return whether the driver's library is there, which takes far less time than to import the package."""
    if not sys.platform.startswith("linux"):
        return True  # it may be anywhere; the package looks for it
    import ctypes  # not needed by whoever only wants names

    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def load_nvml() -> Any:
    """Return the initialised module; None without the package, a driver, or a device."""
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def query_nvml(nvml: Any, function: str, *arguments: Any) -> Any:
    """Call an NVML function; None if the device, the driver or this version does not support it."""
    try:
        return getattr(nvml, function)(*arguments)
    except (AttributeError, nvml.NVMLError):
        return None


def read_memory(nvml: Any, handle: Any) -> Any:
    """Return what NVML says of a device's memory; None if it is not supported.

    The first version of the call counts what the driver reserves for itself as used: 600 MiB of an idle H200.
    """
    version = getattr(nvml, "nvmlMemory_v2", None)
    memory = None if version is None else query_nvml(nvml, "nvmlDeviceGetMemoryInfo", handle, version)
    return query_nvml(nvml, "nvmlDeviceGetMemoryInfo", handle) if memory is None else memory


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


def scaled(value: float | None, scale: float) -> float | None:
    """Multiply a value; None stays None."""
    return None if value is None else value * scale


def _text(value: str | bytes | None) -> str:
    """Return text: older versions of the package return bytes."""
    return value.decode() if isinstance(value, bytes) else value or ""

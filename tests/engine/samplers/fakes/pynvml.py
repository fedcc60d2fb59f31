"""NVML as far as it is used; FAKE_NVML describes its cards as JSON, and their energy follows the clock."""

from __future__ import annotations

import json
import os
import time
from types import SimpleNamespace
from typing import Any

_ASKED: list[str] = []


class NVMLError(Exception):
    pass


def _cards() -> list[dict[str, Any]]:
    cards: list[dict[str, Any]] = json.loads(os.environ.get("FAKE_NVML", "[]"))
    return cards


def _known(handle: Any, name: str) -> Any:
    """Give a fact of a card or instance; one that is not described is not supported."""
    if handle is None or name not in handle:
        raise NVMLError(name)
    return handle[name]


def nvmlInit() -> None:
    if os.environ.get("FAKE_NVML_BROKEN"):
        raise NVMLError


def nvmlShutdown() -> None:
    _ASKED.append("shutdown")


def nvmlDeviceGetCount() -> int:
    return len(_cards())


def nvmlDeviceGetHandleByIndex(index: int) -> dict[str, Any]:
    return _cards()[index]


def nvmlDeviceGetHandleByUUID(uuid: str) -> dict[str, Any]:
    parts = [part for card in _cards() for part in card.get("parts", ())]
    return next(part for part in parts if part["uuid"] == uuid)


def nvmlDeviceGetName(handle: Any) -> bytes:
    return str(_known(handle, "name")).encode()


def nvmlDeviceGetUUID(handle: Any) -> str:
    return str(_known(handle, "uuid"))


def nvmlDeviceGetMigMode(handle: Any) -> tuple[int, int]:
    return (1, 1) if _known(handle, "parts") else (0, 0)


def nvmlDeviceGetMaxMigDeviceCount(handle: Any) -> int:
    assert handle
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(handle: Any, index: int) -> Any:
    parts = _known(handle, "parts")
    if index >= len(parts):
        raise NVMLError
    return parts[index]


nvmlMemory_v2 = 0x02000028  # noqa: N816


def nvmlDeviceGetMemoryInfo(handle: Any, version: int | None = None) -> SimpleNamespace:
    """The first version counts what is reserved as used."""
    reserved = 0 if version == nvmlMemory_v2 else handle.get("reserved", 0)
    return SimpleNamespace(
        used=_known(handle, "used") + reserved, **{k: handle[k] for k in ("free", "total") if k in handle}
    )


def nvmlDeviceGetUtilizationRates(handle: Any) -> SimpleNamespace:
    return SimpleNamespace(gpu=_known(handle, "utilization"), memory=1)


def nvmlDeviceGetPowerUsage(handle: Any) -> int:
    return int(1000 * _known(handle, "watts"))


def nvmlDeviceGetEnforcedPowerLimit(handle: Any) -> int:
    return int(1000 * _known(handle, "limit_watts"))


def nvmlDeviceGetTotalEnergyConsumption(handle: Any) -> int:
    return int(1000 * _known(handle, "counted_watts") * time.monotonic())


def nvmlDeviceGetClockInfo(handle: Any, kind: int) -> int:
    return int(_known(handle, "clocks")[str(kind)])


def nvmlDeviceGetTemperature(handle: Any, sensor: int) -> int:
    assert sensor == 0
    return int(_known(handle, "temperature"))


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: Any) -> int:
    return int(_known(handle, "reasons"))


def nvmlDeviceGetComputeRunningProcesses(handle: Any) -> list[SimpleNamespace]:
    """``parent`` stands for the process that started this one."""
    return [
        SimpleNamespace(pid=os.getppid() if pid == "parent" else pid, usedGpuMemory=memory)
        for pid, memory in _known(handle, "processes")
    ]


def nvmlDeviceGetGraphicsRunningProcesses(handle: Any) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in _known(handle, "drawing")]


def nvmlDeviceGetProcessUtilization(handle: Any, since: int) -> list[SimpleNamespace]:
    """Of this moment; ``parent`` as above."""
    now = int(1e6 * time.time())
    assert now >= since
    return [
        SimpleNamespace(pid=os.getppid() if pid == "parent" else pid, timeStamp=now, smUtil=share)
        for pid, share in _known(handle, "shares")
    ]

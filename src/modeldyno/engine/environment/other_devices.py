"""Accelerators of AMD, Intel and Apple, as their tools tell of them: amd-smi or rocm-smi; xpu-smi; ioreg.

The output is read as the tools' documentation describes it. A figure that is missing, or that is not a
number, such as ``N/A``, is None.
"""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from modeldyno.engine.environment.device_state import DeviceProcess, DeviceState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

AMD_SMI, ROCM_SMI, XPU_SMI, IOREG = "amd-smi", "rocm-smi", "xpu-smi", "ioreg"
_TIMEOUT = 5.0
_MIB = 2.0**20
_UNITS = {
    "%": 1e-2, "W": 1.0, "MHZ": 1e6, "C": 1.0, "B": 1.0, "KB": 2.0**10, "MB": _MIB, "GB": 2.0**30,
}  # fmt: skip
"""Unit of amd-smi, in capitals, to base units; its MB are 2^20 bytes."""
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_HIDING = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Variables that change how programs number the cards of AMD."""
_ROCM_WORDS = (
    "--showuse", "--showmeminfo", "vram", "--showpower", "--showmaxpower", "--showtemp", "--showclocks",
    "--showproductname", "--showuniqueid",
)  # fmt: skip
_XPU_GAUGES = {
    "XPUM_STATS_GPU_UTILIZATION": ("utilization", 1e-2),
    "XPUM_STATS_MEMORY_USED": ("memory_used", _MIB),
    "XPUM_STATS_POWER": ("power", 1.0),
    "XPUM_STATS_GPU_CORE_TEMPERATURE": ("temperature", 1.0),
    "XPUM_STATS_GPU_FREQUENCY": ("clock", 1e6),
}


def read_other_devices(environ: Mapping[str, str]) -> tuple[tuple[DeviceState, ...], tuple[str, ...]]:
    """Read the devices of AMD, Intel and Apple.

    Returns:
        The devices, and the tools that told of them.
    """
    devices: list[DeviceState] = []
    tools: list[str] = []
    amd = next((tool for tool in (AMD_SMI, ROCM_SMI) if shutil.which(tool)), None)
    if amd is not None:
        devices += _amd_devices(environ) if amd == AMD_SMI else _rocm_devices(environ)
        tools.append(amd)
    if shutil.which(XPU_SMI):
        devices += _intel_devices()
        tools.append(XPU_SMI)
    if shutil.which(IOREG):
        devices += _apple_devices()
        tools.append(IOREG)
    return tuple(devices), tuple(tools)


def _ask(*command: str) -> Any:
    """Run a tool and return the JSON that it prints; None if it fails, takes too long or prints none."""
    import json  # takes long to import, and most machines have none of the tools
    import subprocess  # as above

    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    begin = min((at for mark in "[{" if (at := done.stdout.find(mark)) >= 0), default=-1)
    with suppress(ValueError):
        return json.loads(done.stdout[begin:]) if begin >= 0 else None
    return None


def _ask_all(questions: Sequence[Sequence[str]]) -> list[Any]:
    from concurrent.futures import ThreadPoolExecutor  # only where there is a tool to ask

    with ThreadPoolExecutor(len(questions)) as pool:  # each takes a good part of a second
        return list(pool.map(lambda command: _ask(*command), questions))


def _number(value: Any, scale: float = 1.0) -> float | None:
    """Return a number in base units, of ``{"value": 5, "unit": "W"}``, ``"5.0"`` or ``"(800Mhz)"``."""
    if isinstance(value, dict):
        return _number(value.get("value"), _UNITS.get(str(value.get("unit", "")).upper(), scale))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value * scale
    match = _NUMBER.search(value) if isinstance(value, str) else None
    return None if match is None else float(match[0]) * scale


def _bytes(value: Any, scale: float = 1.0) -> int | None:
    number = _number(value, scale)
    return None if number is None else int(number)


def _at(document: Any, *keys: str) -> Any:
    """Return what lies below keys; None where a part is missing."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _free(total: int | None, used: int | None) -> int | None:
    return None if total is None or used is None else total - used


def _name_in_programs(index: int, environ: Mapping[str, str]) -> str | None:
    """Return what frameworks call a card of AMD; None if a variable changes their order."""
    return None if any(name in environ for name in _HIDING) else f"cuda:{index}"


# --- AMD -----------------------------------------------------------------------------------------


def _amd_devices(environ: Mapping[str, str]) -> Iterator[DeviceState]:
    listed, metrics, static, running = (
        dict(_by_gpu(answer))
        for answer in _ask_all(
            [(AMD_SMI, topic, "--json") for topic in ("list", "metric", "static", "process")]
        )
    )
    for index, card in sorted(listed.items()):
        metric, facts = metrics.get(index, {}), static.get(index, {})
        used, free, total = (
            _bytes(_at(metric, "mem_usage", f"{part}_vram")) for part in ("used", "free", "total")
        )
        temperature = _at(metric, "temperature")
        yield DeviceState(
            index=index,
            uuid=str(card.get("uuid") or card.get("bdf") or index),
            name=str(_at(facts, "asic", "market_name") or "AMD GPU"),
            cuda=_name_in_programs(index, environ),
            utilization=_number(_at(metric, "usage", "gfx_activity"), 1e-2),
            memory_used=used,
            memory_free=free,
            memory_total=total,
            power=_number(_at(metric, "power", "socket_power")),
            power_limit=_number(_at(facts, "limit", "max_power")),
            temperature=_first(_number(_at(temperature, "edge")), _number(_at(temperature, "hotspot"))),
            clock=_number(_at(metric, "clock", "gfx_0", "clk"), 1e6),
            memory_clock=_number(_at(metric, "clock", "mem_0", "clk"), 1e6),
            processes=tuple(_amd_processes(_at(running.get(index), "process_list"))),
        )


def _by_gpu(answer: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the entries of a list, which newer versions put below ``gpu_data``."""
    entries = answer.get("gpu_data", [answer]) if isinstance(answer, dict) else answer
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("gpu"), int):
            yield entry["gpu"], entry


def _amd_processes(entries: Any) -> Iterator[DeviceProcess]:
    for entry in entries if isinstance(entries, list) else ():
        process = _at(entry, "process_info") or entry
        pid = _at(process, "pid")
        if isinstance(pid, int):
            size = _bytes(_at(process, "memory_usage", "vram_mem"))
            name = str(_at(process, "name") or "") or None
            yield DeviceProcess(pid=pid, name=None if name == "N/A" else name, bytes=size)


def _rocm_devices(environ: Mapping[str, str]) -> Iterator[DeviceState]:
    answer = _ask(ROCM_SMI, *_ROCM_WORDS, "--json")
    cards = answer if isinstance(answer, dict) else {}
    for key, card in sorted(cards.items()):
        if not (key.startswith("card") and key[4:].isdecimal() and isinstance(card, dict)):
            continue
        index = int(key[4:])
        total = _bytes(card.get("VRAM Total Memory (B)"))
        used = _bytes(card.get("VRAM Total Used Memory (B)"))
        yield DeviceState(
            index=index,
            uuid=str(card.get("Unique ID") or index),
            name=str(card.get("Card Series") or card.get("Card series") or "AMD GPU"),
            cuda=_name_in_programs(index, environ),
            utilization=_number(card.get("GPU use (%)"), 1e-2),
            memory_used=used,
            memory_free=_free(total, used),
            memory_total=total,
            power=_first(
                _number(card.get("Current Socket Graphics Package Power (W)")),
                _number(card.get("Average Graphics Package Power (W)")),
            ),
            power_limit=_number(card.get("Max Graphics Package Power (W)")),
            temperature=_first(
                _number(card.get("Temperature (Sensor edge) (C)")),
                _number(card.get("Temperature (Sensor junction) (C)")),
            ),
            clock=_number(card.get("sclk clock speed:"), 1e6),
            memory_clock=_number(card.get("mclk clock speed:"), 1e6),
        )


# --- Intel ---------------------------------------------------------------------------------------


def _intel_devices() -> Iterator[DeviceState]:
    listed, running = _ask_all([(XPU_SMI, "discovery", "-j"), (XPU_SMI, "ps", "-j")])
    entries = _at(listed, "device_list")
    devices = [entry for entry in entries if isinstance(_at(entry, "device_id"), int)] if entries else []
    numbers = [str(entry["device_id"]) for entry in devices]
    answers = _ask_all(
        [(XPU_SMI, topic, "-d", number, "-j") for number in numbers for topic in ("stats", "discovery")]
    ) if numbers else []  # fmt: skip
    for place, entry in enumerate(devices):
        stats, facts = answers[2 * place : 2 * place + 2]
        gauges = _intel_gauges(_at(stats, "device_level") or ())
        total = _bytes(_at(facts, "memory_physical_size_byte"))
        used = gauges.pop("memory_used", None)
        used = None if used is None else int(used)
        index = entry["device_id"]
        yield DeviceState(
            index=index,
            uuid=str(entry.get("uuid") or index),
            name=str(entry.get("device_name") or "Intel GPU"),
            cuda=f"xpu:{index}",
            memory_used=used,
            memory_free=_free(total, used),
            memory_total=total,
            processes=tuple(_intel_processes(_at(running, "device_util_by_proc_list") or (), index)),
            **gauges,  # type: ignore[arg-type]  # numbers, by their names
        )


def _intel_gauges(entries: Iterable[Any]) -> dict[str, float]:
    gauges: dict[str, float] = {}
    for entry in entries:
        name, scale = _XPU_GAUGES.get(str(_at(entry, "metrics_type")), ("", 1.0))
        value = _number(_at(entry, "value"), scale)
        if name and value is not None:
            gauges[name] = value
    return gauges


def _intel_processes(entries: Iterable[Any], device: int) -> Iterator[DeviceProcess]:
    for entry in entries:
        pid = _at(entry, "process_id")
        if _at(entry, "device_id") == device and isinstance(pid, int):
            name = str(_at(entry, "process_name") or "") or None
            yield DeviceProcess(pid=pid, name=name, bytes=_bytes(_at(entry, "mem_size"), 2.0**10))


# --- Apple ---------------------------------------------------------------------------------------


def _apple_devices() -> Iterator[DeviceState]:
    """Read the GPUs of macOS: they have no memory of their own, so only what they use of it is known."""
    import plistlib  # only macOS has ioreg
    import subprocess

    command = (IOREG, "-a", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator")
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT, check=False)
        entries = plistlib.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired, plistlib.InvalidFileException):
        return
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        model = _at(entry, "model")
        name = model.decode(errors="replace").strip("\0") if isinstance(model, bytes) else str(model or "GPU")
        statistics = _at(entry, "PerformanceStatistics")
        yield DeviceState(
            index=index,
            uuid=str(_at(entry, "IORegistryEntryID") or index),
            name=name,
            cuda="mps" if name.startswith("Apple") else None,
            utilization=_number(_at(statistics, "Device Utilization %"), 1e-2),
            memory_used=_bytes(_at(statistics, "In use system memory")),
        )

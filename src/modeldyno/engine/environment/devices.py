"""What the accelerators of this machine do at this moment.

Those of NVIDIA are read from NVML or else nvidia-smi, those of AMD, Intel and Apple from their own tools.

A figure that cannot be read is None, never 0. Reading takes some milliseconds; nothing runs afterwards.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.engine.environment.device_state import DeviceProcess, DeviceState
from modeldyno.engine.environment.nvidia import (
    CORE_SENSOR,
    MEGA,
    MEMORY_CLOCK,
    MILLI,
    PERCENT,
    SM_CLOCK,
    Card,
    has_nvml_library,
    hides_all_devices,
    list_nvml_cards,
    load_nvml,
    query_nvml,
    read_memory,
    scaled,
    visible_devices,
)
from modeldyno.engine.environment.nvidia_smi import (
    COMMAND,
    FORMAT,
    parse_cards,
    parse_number,
    run_once,
    split_fields,
)
from modeldyno.engine.environment.other_devices import AMD_SMI, ROCM_SMI, XPU_SMI, read_other_devices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MIB = 2.0**20
_SMI_FIELDS: dict[str, tuple[str, float]] = {
    "utilization.gpu": ("utilization", PERCENT),
    "memory.used": ("memory_used", _MIB),
    "memory.free": ("memory_free", _MIB),
    "memory.total": ("memory_total", _MIB),
    "power.draw": ("power", 1.0),
    "power.limit": ("power_limit", 1.0),
    "temperature.gpu": ("temperature", 1.0),
    "clocks.sm": ("clock", MEGA),
    "clocks.mem": ("memory_clock", MEGA),
}
"""Field of nvidia-smi to that of a DeviceState and its unit."""
_BYTES = ("memory_used", "memory_free", "memory_total")
_PROCESS_LISTS = {
    "nvmlDeviceGetGraphicsRunningProcesses": False,
    "nvmlDeviceGetMPSComputeRunningProcesses": True,
    "nvmlDeviceGetComputeRunningProcesses": True,
}
"""Function to whether its processes compute; of a process in several of them, the last one counts."""
_OTHER_DRIVERS = {
    "dev/kfd": f"AMD's driver, whose devices are read by {AMD_SMI} or {ROCM_SMI}, which are not on the path",
    "dev/dri/renderD128": f"a driver of graphics; GPUs of Intel are read by {XPU_SMI}, which is not here",
}
"""Path to the driver that is there if it exists, and what is missing to read its devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """The devices at a moment, and where that is known from."""

    devices: tuple[DeviceState, ...]
    source: str
    """A sentence: what was read, or without devices what was looked for."""


def read_devices(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> DeviceReading:
    """Read each device of this machine, also those that a variable such as CUDA_VISIBLE_DEVICES hides."""
    devices, tool = _nvidia_devices(environ)
    others, tools = read_other_devices(environ)
    used = tuple(filter(None, (tool, *tools)))
    if not used:
        return DeviceReading(devices=(), source=_what_is_missing(root))
    if devices or others:
        return DeviceReading(devices=(*devices, *others), source=f"Read from {' and '.join(used)}.")
    lists = "is here, and lists none" if len(used) == 1 else "are here, and list none"
    maker = "NVIDIA " if used == (tool,) else ""
    return DeviceReading(devices=(), source=f"There is no {maker}device: {' and '.join(used)} {lists}.")


def _nvidia_devices(environ: Mapping[str, str]) -> tuple[tuple[DeviceState, ...], str]:
    """Return the devices, and what told of them; an empty text if there is neither."""
    nvml = load_nvml() if has_nvml_library() else None
    if nvml is not None:
        try:
            return tuple(_nvml_devices(nvml, environ)), "NVML"
        finally:
            query_nvml(nvml, "nvmlShutdown")
    if shutil.which(COMMAND) is None:
        return (), ""
    return tuple(_smi_devices(environ)), COMMAND


def _what_is_missing(root: Path) -> str:
    """Say what was looked for in vain."""
    package = (
        "NVML did not start" if is_nvml_installed() else "the package nvidia-ml-py (NVML) is not installed"
    )
    others = [description for path, description in _OTHER_DRIVERS.items() if (root / path).exists()]
    unread = f" There is {' and '.join(others)}." if others else ""
    return f"There is no NVIDIA device: {package}, and nvidia-smi is not on the path.{unread}"


def is_nvml_installed() -> bool:
    """Return whether the package of NVML is there."""
    return find_spec("pynvml") is not None


def _names_in_cuda(cards: Sequence[Card], environ: Mapping[str, str]) -> dict[str, str]:
    """Return what CUDA calls each device that it will use, by UUID."""
    if hides_all_devices(environ):
        return {}
    visible = visible_devices(cards, environ)
    return {
        device.part or device.card.uuid: name for name, device in visible.items() if name.startswith("cuda:")
    }


# --- NVML ----------------------------------------------------------------------------------------


def _nvml_devices(nvml: Any, environ: Mapping[str, str]) -> Iterable[DeviceState]:
    """Read each card, followed by its MIG instances."""
    cards = list_nvml_cards(nvml)
    names = _names_in_cuda(cards, environ)
    for card in cards:
        handle = query_nvml(nvml, "nvmlDeviceGetHandleByIndex", card.index)
        device = DeviceState(index=card.index, uuid=card.uuid, name=card.name, cuda=names.get(card.uuid))
        whole_card = replace(
            device,
            **_nvml_gauges(nvml, handle),
            **_nvml_memory(nvml, handle),
            processes=_nvml_processes(nvml, handle),
        )
        yield whole_card
        for instance, uuid in enumerate(card.parts):
            part = query_nvml(nvml, "nvmlDeviceGetHandleByUUID", uuid)
            yield replace(
                _instance_of(whole_card, instance, uuid, names.get(uuid)),
                **_nvml_memory(nvml, part),
                processes=_nvml_processes(nvml, part),
            )


def _instance_of(card: DeviceState, instance: int, uuid: str, cuda: str | None) -> DeviceState:
    """Return a MIG instance: clocks and temperature are its card's; its part of the rest is unknown."""
    return DeviceState(
        index=card.index,
        instance=instance,
        uuid=uuid,
        name=card.name,
        cuda=cuda,
        temperature=card.temperature,
        clock=card.clock,
        memory_clock=card.memory_clock,
    )


def _nvml_gauges(nvml: Any, handle: Any) -> dict[str, Any]:
    rates = query_nvml(nvml, "nvmlDeviceGetUtilizationRates", handle)
    return {
        "utilization": scaled(getattr(rates, "gpu", None), PERCENT),
        "power": scaled(query_nvml(nvml, "nvmlDeviceGetPowerUsage", handle), MILLI),
        "power_limit": scaled(query_nvml(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle), MILLI),
        "temperature": scaled(query_nvml(nvml, "nvmlDeviceGetTemperature", handle, CORE_SENSOR), 1.0),
        "clock": scaled(query_nvml(nvml, "nvmlDeviceGetClockInfo", handle, SM_CLOCK), MEGA),
        "memory_clock": scaled(query_nvml(nvml, "nvmlDeviceGetClockInfo", handle, MEMORY_CLOCK), MEGA),
    }


def _nvml_memory(nvml: Any, handle: Any) -> dict[str, Any]:
    memory = read_memory(nvml, handle)
    return {f"memory_{part}": getattr(memory, part, None) for part in ("used", "free", "total")}


def _nvml_processes(nvml: Any, handle: Any) -> tuple[DeviceProcess, ...]:
    """List the processes that compute or draw on a device."""
    running = {
        process.pid: (process.usedGpuMemory, computes)
        for function, computes in _PROCESS_LISTS.items()
        for process in query_nvml(nvml, function, handle) or ()
    }
    return tuple(
        DeviceProcess(pid=pid, name=_process_name(pid), bytes=size, computes=computes)
        for pid, (size, computes) in sorted(running.items())
    )


def _process_name(pid: int) -> str | None:
    import psutil  # takes longer to import than to read a device

    try:
        return psutil.Process(pid).name()
    except psutil.Error:  # gone, or of another container
        return None


# --- nvidia-smi ----------------------------------------------------------------------------------


def _smi_devices(environ: Mapping[str, str]) -> Iterable[DeviceState]:
    """Read each card, followed by its MIG instances, of which nvidia-smi says only the name."""
    from concurrent.futures import ThreadPoolExecutor  # as above

    queries = (
        ("-L",),
        (f"--query-gpu={','.join(('uuid', *_SMI_FIELDS))}", FORMAT),
        ("--query-compute-apps=gpu_uuid,pid,used_memory,process_name", FORMAT),
    )
    with ThreadPoolExecutor(len(queries)) as pool:  # each takes a good part of a second
        listed, figures, running = pool.map(lambda query: run_once(*query), queries)
    cards = parse_cards(listed)
    names = _names_in_cuda(cards, environ)
    figures_of = {uuid: values for uuid, *values in _rows(figures, 1 + len(_SMI_FIELDS))}
    processes = _smi_processes(running)
    for card in cards:
        device = DeviceState(index=card.index, uuid=card.uuid, name=card.name, cuda=names.get(card.uuid))
        whole_card = replace(
            device, **_smi_figures(figures_of.get(card.uuid, [])), processes=processes.get(card.uuid, ())
        )
        yield whole_card
        for instance, uuid in enumerate(card.parts):
            yield replace(
                _instance_of(whole_card, instance, uuid, names.get(uuid)), processes=processes.get(uuid, ())
            )


def _smi_figures(values: Sequence[str]) -> dict[str, Any]:
    figures = {
        name: parse_number(text, scale)
        for (name, scale), text in zip(_SMI_FIELDS.values(), values, strict=False)
    }
    return {
        name: int(value) if name in _BYTES and value is not None else value for name, value in figures.items()
    }


def _smi_processes(output: str) -> dict[str, tuple[DeviceProcess, ...]]:
    """Return the processes by the UUID of their device."""
    processes: dict[str, tuple[DeviceProcess, ...]] = {}
    for uuid, pid, memory, path in _rows(output, 4):
        if pid.isdecimal():
            size = parse_number(memory, _MIB)
            name = _process_name(int(pid)) or (None if path.startswith("[") else Path(path).name or None)
            process = DeviceProcess(pid=int(pid), name=name, bytes=None if size is None else int(size))
            processes[uuid] = (*processes.get(uuid, ()), process)
    return processes


def _rows(output: str, count: int) -> list[list[str]]:
    return [split_fields(line, count) for line in output.splitlines()]

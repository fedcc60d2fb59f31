"""This machine as targets of the registry: one for the processor, one for each GPU."""

from __future__ import annotations

import hashlib
import json
import re
import socket
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.engine.environment import machine
from modeldyno.engine.environment.devices import read_devices
from modeldyno.registry.records.records import HardwareTarget
from modeldyno.serving.servers import install

if TYPE_CHECKING:
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import Fact

CPU = "cpu"
_DRIVERS = ("nvidia_driver",)


def target_here(device: str = CPU, name: str | None = None) -> HardwareTarget:
    """Return the target of a device of this machine."""
    facts = machine.hardware()
    digest = hashlib.sha256(json.dumps([facts, device], sort_keys=True).encode()).hexdigest()[:12]
    host = socket.gethostname().partition(".")[0] or "here"
    return HardwareTarget(
        id=digest,
        name=name or (host if device == CPU else f"{host} {device}"),
        device=device,
        hardware=dict(facts),
    )


def known_target(here: HardwareTarget, registry: Registry) -> HardwareTarget:
    """Return the target of the registry that is this hardware, or `here` if there is none.

    An id digests the memory to the byte, and a kernel counts some megabytes more or less than the one before:
    the same machine keeps its target, and its figures.
    """
    targets = registry.targets()
    if any(each.id == here.id for each in targets):
        return here
    return next((each for each in targets if _is_same(each, here)), here)


def _is_same(one: HardwareTarget, other: HardwareTarget) -> bool:
    memory, other_memory = one.hardware.get("memory"), other.hardware.get("memory")
    if not isinstance(memory, int) or not isinstance(other_memory, int):
        return False
    alike = abs(memory - other_memory) <= _MEMORY_TOLERANCE * max(memory, other_memory)
    rest = {**one.hardware, "memory": other_memory} == other.hardware
    return one.device == other.device and alike and rest


_MEMORY_TOLERANCE = 0.02
"""Share of a machine's memory that kernels count differently."""


def devices_here() -> tuple[str, ...]:
    """Return the devices of this machine: ``cpu``, then ``cuda:0`` and so on, as ``modeldyno devices``."""
    seen = {device.cuda for device in read_devices().devices if device.cuda}
    if not seen:  # no tool reads them, or not in the order of CUDA: the driver's own list
        names = filter(None, machine.gpu_names().split(", "))
        counts = [int(m[1]) if (m := re.match(r"(\d+) x ", name)) else 1 for name in names]
        seen = {f"cuda:{index}" for index in range(sum(counts))}
    return (CPU, *sorted(seen, key=lambda name: (len(name), name)))


def named_device(text: str) -> str:
    """Return a device by the name that it has here: ``gpu:0`` is ``cuda:0``.

    Raises:
        RequestError: no device has such a name.
    """
    match = re.fullmatch(r"(?:gpu|cuda)(?::(\d+))?", text.strip().lower())
    if match is not None:
        return f"cuda:{int(match[1] or 0)}"
    if text.strip().lower() == CPU:
        return CPU
    raise RequestError(f"'{text}' is no name of a device; write cpu, or gpu:0.")


def software_here() -> dict[str, Fact]:
    """Return the versions of every package that an installed backend names, and in the installed engines."""
    packages: dict[str, None] = {}
    for _, backend in plugins.usable("backend"):
        packages |= dict.fromkeys(backend.requires)
    return machine.software(packages) | {
        name: version for engine in install.RECIPES for name, version in engine_versions(engine).items()
    }


def engine_versions(backend: str) -> dict[str, Fact]:
    """Return the versions in the engine that serves a backend, such as those of ``triton onnxruntime``.

    It is empty unless ``modeldyno engine install`` has installed the engine: what else serves can be asked
    for its version only while it runs.
    """
    engine = install.find_installed(backend) if backend in install.RECIPES else None
    return {} if engine is None else {f"{backend} {name}": text for name, text in engine.versions.items()}


def decisive(software: dict[str, Fact], backend: str) -> dict[str, Fact]:
    """Return the versions whose change makes a figure stale: what its backend names, and the driver."""
    deciding = {*plugins.backend(backend).requires, *_DRIVERS}
    return {name: version for name, version in software.items() if name in deciding}

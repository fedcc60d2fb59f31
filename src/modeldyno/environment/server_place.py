"""On which device of this machine a server computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.environment.devices import read_devices
from modeldyno.environment.machine import processor_name
from modeldyno.environment.process_tree import list_process_tree

if TYPE_CHECKING:
    from modeldyno.environment.devices import DeviceReading

UNKNOWN = "unknown"
CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlace:
    """A device, or several, by id and by the name that the machine gives them."""

    id: str = UNKNOWN
    """``cpu``, ``cuda:0``, ``gpu:1`` for a GPU that programs do not see, or ``unknown``."""
    name: str = UNKNOWN
    """Such as ``NVIDIA A100-SXM4-80GB``."""


def place_of_process(pid: int | None, reading: DeviceReading | None = None) -> ServerPlace:
    """Return where a process and those that it started compute.

    A process that is on no device computes on the processor, unless the driver does not show which processes
    are on a device, as in a container: then it is unknown.
    """
    if pid is None:
        return ServerPlace()
    reading = read_devices() if reading is None else reading
    family = set(list_process_tree(pid))
    used = [device for device in reading.devices if family & {process.pid for process in device.processes}]
    if used:
        ids = [device.cuda or f"gpu:{device.index}" for device in used]
        return ServerPlace(id=", ".join(ids), name=", ".join(dict.fromkeys(device.name for device in used)))
    if reading.devices and not any(device.processes for device in reading.devices):
        return ServerPlace()
    return ServerPlace(id=CPU, name=processor_name())

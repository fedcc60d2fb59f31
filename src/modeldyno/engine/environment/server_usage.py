"""What the processes of running servers use: cores, memory, threads, disk, network, and memory of devices."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.clock import monotonic
from modeldyno.base.system.process_tree import (
    cpu_seconds,
    disk_traffic,
    list_process_tree,
    network_traffic,
    stat_fields,
    tree_memory,
)
from modeldyno.engine.environment.devices import read_devices
from modeldyno.engine.environment.machine import processor_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.engine.environment.containers import Container
    from modeldyno.engine.environment.devices import DeviceReading
    from modeldyno.engine.environment.running_servers import ServerRecord

_PERIOD = 0.5
"""Seconds over which the use of cores is measured."""
_THREADS = 17
"""Field of ``stat`` after the name with the number of threads."""
UNKNOWN = "unknown"
CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUsage:
    """What a server's process tree uses. A figure that cannot be read is None."""

    cores: float | None
    """Cores used, over half a second: 1.0 is one of them all the time."""
    memory: int | None
    """Bytes now; what processes share counts once."""
    threads: int | None
    disk_read: int | None
    """Bytes since the start; of processes of other users it cannot be read."""
    disk_written: int | None
    network_received: int | None
    """Bytes since the start of its network namespace, which is the machine's unless it is in a container;
    without the loopback."""
    network_sent: int | None
    device_memory: int | None = None
    """Bytes on all devices; None if no device shows one of its processes."""


def read_usage(
    servers: Sequence[ServerRecord | Container], period: float = _PERIOD
) -> tuple[ServerUsage, ...]:
    """Measure the use of several servers at the same time, for `period` seconds."""
    if not servers:
        return ()
    began = monotonic()
    before = [_cpu_times(server.pid) for server in servers]
    time.sleep(period)
    after = [_cpu_times(server.pid) for server in servers]
    elapsed = monotonic() - began
    held = _device_memory()
    return tuple(
        _usage(server.pid, sum(now.get(pid, spent) - spent for pid, spent in then.items()) / elapsed, held)
        for server, then, now in zip(servers, before, after, strict=True)
    )


def _cpu_times(root: int | None) -> dict[int, float]:
    """Return the seconds of processor time of each process of a tree; none of one on another machine."""
    return {} if root is None else {pid: cpu_seconds(pid) for pid in list_process_tree(root)}


def _device_memory() -> dict[int, int]:
    """Return the bytes that each process holds on all devices together."""
    held: dict[int, int] = {}
    for device in read_devices().devices:
        for process in device.processes:
            held[process.pid] = held.get(process.pid, 0) + (process.bytes or 0)
    return held


def _usage(root: int | None, cores: float, held: Mapping[int, int]) -> ServerUsage:
    family = [] if root is None else [pid for pid in list_process_tree(root) if stat_fields(pid)]
    if not family:  # it has ended meanwhile, or the system does not tell
        return ServerUsage(
            cores=None, memory=None, threads=None, disk_read=None, disk_written=None,
            network_received=None, network_sent=None,
        )  # fmt: skip
    disk = [disk_traffic(pid) for pid in family]
    readable = [pair for pair in disk if pair is not None]
    complete = len(readable) == len(disk)
    network = network_traffic(family[-1])
    return ServerUsage(
        cores=max(0.0, cores),
        memory=tree_memory(family) or None,
        threads=sum(int(fields[_THREADS]) for pid in family if (fields := stat_fields(pid))),
        disk_read=sum(read for read, _ in readable) if complete else None,
        disk_written=sum(written for _, written in readable) if complete else None,
        network_received=None if network is None else network[0],
        network_sent=None if network is None else network[1],
        device_memory=sum(held.get(pid, 0) for pid in family) if held.keys() & set(family) else None,
    )


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

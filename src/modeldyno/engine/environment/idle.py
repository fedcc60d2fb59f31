"""Whether a device is idle: nobody else uses it, in several looks one after the other."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from modeldyno.base.clock import monotonic
from modeldyno.base.errors import DeviceInUse
from modeldyno.base.stats.units import BYTES, FRACTION, SECONDS, check_time_limit, parse_bound, parse_quantity
from modeldyno.base.system.process_tree import cores_time, cpu_seconds, describe_process, list_process_tree
from modeldyno.engine.environment.device_lock import device_lock
from modeldyno.engine.environment.devices import read_devices
from modeldyno.engine.environment.machine import allowed_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from modeldyno.engine.environment.device_state import DeviceState

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRule:
    """When a device counts as idle: each look must find it so."""

    cpu: float = 0.02
    """Largest share of the allowed cores that others use, and the hypervisor takes; 1 for any use."""
    utilization: float = 0.05
    """Largest utilization of a GPU, on which no process of others may compute at all."""
    memory: int = 500 * _MIB
    """Most bytes of a GPU's memory that others hold."""
    samples: int = 5
    period: float = 1.0
    """Seconds between two looks."""

    @classmethod
    def parse(cls, *, cpu: str, utilization: str, memory: str, period: str) -> IdleRule:
        """Read shares, bytes, and how long a device must be idle, which is looked at about once a second.

        Raises:
            RequestError: one of them cannot be read.
        """
        seconds = check_time_limit(parse_quantity(period, SECONDS), "`idle_for`", zero=True)
        samples = max(1, round(seconds))
        return cls(
            cpu=parse_bound(cpu, FRACTION),
            utilization=parse_bound(utilization, FRACTION),
            memory=int(parse_quantity(memory, BYTES)),
            samples=samples,
            period=seconds / samples,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CpuTimes:
    at: float
    busy: float
    """Seconds of the allowed cores that were used by anybody."""
    stolen: float
    """Seconds of them that the hypervisor gave to others."""
    own: float


def busy_reason(
    device: str,
    rule: IdleRule,
    *,
    sleep: Callable[[float], None] = time.sleep,
    sample: Callable[[str, float], str | None] | None = None,
) -> str | None:
    """Return who or what uses a device; None if each look found it idle.

    Args:
        device: ``cpu``, or a GPU such as ``cuda:0``.
        rule: the thresholds, and how often to look.
        sleep: waits for some seconds.
        sample: takes a look that begins now and lasts a period; by default at the real device.
    """
    take = sample or (lambda name, period: _check_device(name, rule, period, sleep))
    for _ in range(rule.samples):
        if (busy := take(device, rule.period)) is not None:
            return busy
    return None


def _check_device(device: str, rule: IdleRule, period: float, sleep: Callable[[float], None]) -> str | None:
    try:
        return _check_cpu(rule, period, sleep) if device == "cpu" else _check_gpu(device, rule, period, sleep)
    except (OSError, ValueError) as error:
        return f"{device} cannot be read: {error}"


def _check_cpu(rule: IdleRule, period: float, sleep: Callable[[float], None]) -> str | None:
    if rule.cpu >= 1:  # two clocks that are read one after the other may find 2.01 of 2 cores in use
        return None
    cores = allowed_cores()
    before, processes = _read_cpu(cores), _cpu_by_process()
    sleep(period)
    after = _read_cpu(cores)
    elapsed = max(after.at - before.at, 1e-3)
    stolen = max(0.0, after.stolen - before.stolen) / elapsed
    foreign = max(0.0, (after.busy - before.busy) - (after.own - before.own)) / elapsed
    if foreign + stolen <= rule.cpu * len(cores):
        return None
    if stolen > foreign:
        return f"the hypervisor takes {stolen:.2f} of {len(cores)} cores"
    name = _busiest(processes)
    return f"others use {foreign:.2f} of {len(cores)} cores" + (f", mostly {name}" if name else "")


def _read_cpu(cores: Container[int]) -> _CpuTimes:
    """Read the seconds for which these cores were busy or stolen, and those that this process tree used."""
    busy, stolen = cores_time(cores)
    own = sum(map(cpu_seconds, list_process_tree(os.getpid())))
    return _CpuTimes(at=monotonic(), busy=busy, stolen=stolen, own=own)


def _cpu_by_process() -> dict[int, tuple[float, str]]:
    """Return the CPU seconds and the name of each process but ours."""
    ours = set(list_process_tree(os.getpid()))
    seconds: dict[int, tuple[float, str]] = {}
    for process in psutil.process_iter(["pid", "name", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None and process.info["pid"] not in ours:
            seconds[process.info["pid"]] = (times.user + times.system, process.info["name"] or "")
    return seconds


def _busiest(before: dict[int, tuple[float, str]]) -> str:
    """Return the name and pid of the process that used most since."""
    used = [
        (seconds - before.get(pid, (0.0, ""))[0], name, pid)
        for pid, (seconds, name) in _cpu_by_process().items()
    ]
    most, name, pid = max(used, default=(0.0, "", 0))
    return f"{name} (pid {pid})" if most > 0 else ""


def _check_gpu(device: str, rule: IdleRule, period: float, sleep: Callable[[float], None]) -> str | None:
    """Look at a GPU; one that cannot be read is busy."""
    state = _state_of(device)
    ours = set(list_process_tree(os.getpid()))
    computing = [process for process in state.processes if process.computes]
    for process in computing:
        if process.pid not in ours:
            return f"{describe_process(process.pid, process.name)} uses {device}"
    if not computing:
        if state.utilization is None and state.instance is None:
            raise ValueError("its utilization is not known")
        if (state.utilization or 0.0) > rule.utilization:
            return f"others use {state.utilization:.0%} of {device}".replace("%", " %")
    if state.memory_used is None:
        raise ValueError("its used memory is not known")
    if all(process.bytes is not None for process in computing):
        others = state.memory_used - sum(process.bytes or 0 for process in computing)
        if others > rule.memory:
            return f"others hold {others / _MIB:.0f} MiB of {device}"
    sleep(period)
    return None


def _state_of(device: str) -> DeviceState:
    """Read the card that programs call ``cuda:0``, or ``xpu:0``.

    Raises:
        ValueError: there is none, or CUDA_VISIBLE_DEVICES hides it.
    """
    kind, _, index = device.partition(":")
    name = f"{kind}:{int(index or 0)}"
    reading = read_devices()
    for state in reading.devices:
        if state.cuda == name:
            return state
    if not reading.devices:
        raise ValueError(reading.source)
    if len({state.name for state in reading.devices}) > 1 and not any(s.cuda for s in reading.devices):
        raise ValueError("CUDA numbers unlike cards by speed; set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        raise ValueError(f"CUDA_VISIBLE_DEVICES '{visible}' hides it")
    raise ValueError("there is no such device")


@contextmanager
def idle_device(device: str, who: str, rule: IdleRule) -> Iterator[None]:
    """Look whether a device is idle, then hold its lock during the block.

    Args:
        device: ``cpu``, or a GPU such as ``cuda:0``.
        who: what others read who find it held.
        rule: when it counts as idle.

    Raises:
        DeviceInUse: somebody else uses it.
    """
    if busy := busy_reason(device, rule):
        raise DeviceInUse(busy)
    with device_lock(device, who) as holder:
        if holder is not None:
            raise DeviceInUse(f"{holder} measures on {device}")
        yield


def find_idle(devices: Sequence[str], rule: IdleRule) -> tuple[str, ...]:
    """Return the devices that are idle now, and not measured by ModelDyno; all are looked at at once."""

    def is_idle(device: str) -> bool:
        try:
            with idle_device(device, "modeldyno idle_devices", rule):
                return True
        except DeviceInUse:
            return False

    with ThreadPoolExecutor(max(1, len(devices))) as pool:
        return tuple(device for device, idle in zip(devices, pool.map(is_idle, devices), strict=True) if idle)

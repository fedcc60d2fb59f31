"""The sampler ``device``: activity, memory and power of GPUs and processor packages, from outside.

Without a device or a readable counter there is no side process and there are no metrics: what is unavailable
is left out, never reported as 0. Devices that the model does not use are left out, too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.system.process_tree import describe_process
from modeldyno.engine.environment.nvidia import hides_all_devices
from modeldyno.engine.samplers import nvidia, rapl, triton_metrics
from modeldyno.engine.samplers.sidecar import SideWatch, launch
from modeldyno.engine.trace import energy
from modeldyno.engine.trace.energy import EnergyMeter, MeterSample
from modeldyno.models.load_stages import WatchStage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.engine.interfaces.sampler import EnergyCounters
    from modeldyno.engine.trace.energy import PowerDraw

_SIDECAR = "modeldyno.engine.samplers.device_sidecar"
_BEFORE = frozenset({WatchStage.IDLE, WatchStage.BASELINE})
"""Stages before the model is loaded."""
_DRIVER_PATHS = ("proc/driver/nvidia/gpus/*", "dev/nvidiactl", "dev/dxg")
"""Paths that exist if there is a driver: on Linux and on WSL."""
_UTILIZATION_LAG = 1.0
"""Seconds over which the driver averages utilisation: earlier readings include the previous stage."""
_MIN_GROWTH = 64 << 20
"""Minimum growth of the used memory, in bytes, when a process begins to use a device."""
_THROTTLE_REASONS = {
    0x04: "its power limit",
    0x08: "a hardware slowdown",
    0x20: "its temperature",
    0x40: "its temperature (hardware)",
    0x80: "an external power brake",
}
"""NVML's bits for reasons of lower clocks, except for idleness and user settings."""
_FOREIGN_LIMIT = 0.05
"""Share of a device that others may use unmentioned."""
_GAUGES = {
    "utilization": "gpu_utilization",
    "clock": "clock",
    "memory_clock": "memory_clock",
    "temperature": "temperature",
}
"""Reading to the metric that it is a sample of, in the timed pass."""


def start(
    pids: Sequence[int],
    *,
    period: float | None = None,
    root: Path = Path("/"),
    environ: Mapping[str, str] = os.environ,
) -> SideWatch:
    """Watch the devices, and their use by the process tree of the first pid, every `period` seconds."""
    if not (sys.platform.startswith("linux") and is_anything_to_watch(root, environ)):
        return SideWatch(side=None, judge=lambda _: iter(()))
    return SideWatch(side=launch(_SIDECAR, (root, pids[0], period or 0)), judge=_judge)


def watch_metrics(url: str) -> SideWatch:
    """Watch the devices of a server on another machine, by its metrics; nothing if it reports none."""
    if not triton_metrics.read_triton_devices(url):
        return SideWatch(side=None, judge=lambda _: iter(()))
    return SideWatch(
        side=launch(_SIDECAR, (url, os.getpid(), triton_metrics.UPDATE_PERIOD / 2)), judge=_judge
    )


def _judge(recording: Any) -> Iterator[Measurement | Doubt]:
    if not isinstance(recording, dict):
        yield Doubt(
            code="unwatched",
            seen="the side process that watches devices failed",
            advice="there are no metrics of devices and energy; check whether `nvidia-smi` works here",
        )
        return
    yield from device_measurements(recording["devices"], recording["stages"])


def open_counters(
    root: Path = Path("/"), environ: Mapping[str, str] = os.environ
) -> tuple[EnergyCounters, ...]:
    """Open the counters of cards and processors in this process."""
    if not (sys.platform.startswith("linux") and is_anything_to_watch(root, environ)):
        return ()
    driver = not hides_all_devices(environ) and any(
        True for pattern in _DRIVER_PATHS for _ in root.glob(pattern)
    )
    opened = (nvidia.open_nvidia_devices(environ) if driver else None, rapl.open_rapl_zones(root))
    return tuple(counters for counters in opened if counters is not None)


def is_anything_to_watch(root: Path, environ: Mapping[str, str]) -> bool:
    """Check whether there is anything to watch: a visible device's driver, or a readable counter."""
    driver = any(True for pattern in _DRIVER_PATHS for _ in root.glob(pattern))
    return (driver and not hides_all_devices(environ)) or rapl.has_readable_zones(root)


def device_measurements(
    devices: dict[str, dict[str, Any]], stages: Sequence[dict[str, Any]]
) -> Iterator[Measurement | Doubt]:
    """Turn the side process's readings into measurements of each device that the model used."""
    for name in used_devices(devices, stages):
        if devices[name]["kind"] == "gpu":
            yield from memory(name, stages)
            yield from gauges(name, stages)
            yield from throttling(name, stages)
            yield from sharing(name, stages)
        yield from power(name, devices[name], stages)


def used_devices(devices: dict[str, dict[str, Any]], stages: Sequence[dict[str, Any]]) -> list[str]:
    """Return the devices that the model used; processor packages always are.

    If the driver lists the model's processes on any device, the others are unused. In a container it may list
    none; then the devices count whose used memory has grown since before loading.
    """
    cards = [name for name, facts in devices.items() if facts["kind"] == "gpu"]
    chosen = [name for name in cards if _values(name, "ours", stages)]
    if not chosen:
        chosen = [name for name in cards if _has_grown(name, stages)]
    return [name for name in devices if name in chosen or name not in cards]


def memory(name: str, stages: Sequence[dict[str, Any]]) -> Iterator[Measurement]:
    """Yield the device memory of the model's processes, and of all processes with its baseline, in bytes."""
    after = _stages_after(stages)
    for key, metric in (("memory", "device_memory"), ("used", "device_used")):
        if values := _values(name, key, after):
            yield _distribution(metric, name, values)
    free = [
        total - used
        for total, used in zip(_values(name, "total", after), _values(name, "used", after), strict=False)
    ]
    if free:
        yield _distribution("device_free", name, free)
    if before := _values(name, "used", _stages_before(stages)):
        yield observed_number("device_used", before[-1], scope=f"{name} baseline")
    if total := _values(name, "total", after):
        yield observed_number("device_total", total[-1], scope=name)


def gauges(name: str, stages: Sequence[dict[str, Any]]) -> Iterator[Measurement]:
    """Yield utilisation, clocks and temperature in the timed pass."""
    timed = _samples_in(WatchStage.TIMED, stages)
    for key, metric in _GAUGES.items():
        fresh = (
            [s for s in timed if s["time"] >= timed[0]["time"] + _UTILIZATION_LAG]
            if key == "utilization"
            else timed
        )
        if values := _readings(name, key, fresh or timed):
            yield _distribution(metric, name, values)


def throttling(name: str, stages: Sequence[dict[str, Any]]) -> Iterator[Doubt]:
    """Yield a doubt if the device lowered its clocks in the timed pass, with the reasons it gave."""
    reasons = [int(bits) for bits in _readings(name, "reasons", _samples_in(WatchStage.TIMED, stages))]
    shares = {
        text: sum(bool(bits & bit) for bits in reasons) / len(reasons)
        for bit, text in _THROTTLE_REASONS.items()
        if reasons
    }
    causes = [f"{text} ({share:.0%} of the samples)" for text, share in shares.items() if share]
    if causes:
        yield Doubt(
            code="throttled",
            seen=f"{name} was throttled by {', '.join(causes)}",
            advice="cool it or raise its limit, or lock its clock at a lower, steady value (nvidia-smi -lgc)",
        )


def sharing(name: str, stages: Sequence[dict[str, Any]]) -> Iterator[Doubt]:
    """Yield a doubt if processes that are not the model's kept the device busy in the timed pass.

    Only where the driver knows the model's own processes: in a container it may have other numbers for them.
    """
    timed = _samples_in(WatchStage.TIMED, stages)
    shares = _readings(name, "foreign", timed)
    if not _values(name, "ours", stages) or max(shares, default=0.0) < _FOREIGN_LIMIT:
        return
    pid = int(_readings(name, "foreign_pid", timed)[shares.index(max(shares))])
    yield Doubt(
        code="shared-device",
        seen=f"{name} was kept busy up to {max(shares):.0%} by others, mostly by {describe_process(pid)}",
        advice="stop them: the times, the power and the energy are not the model's alone",
    )


def power(
    name: str, facts: dict[str, Any], stages: Sequence[dict[str, Any]]
) -> Iterator[Measurement | Doubt]:
    """Yield the power of the device in the timed pass and when idle before loading, in watts."""
    meter = EnergyMeter(period=facts["period"], span=facts["span"])
    timed, idle = (
        energy.average_power_draw(_windows(name, stage, stages, gap=meter.period), meter)
        for stage in (WatchStage.TIMED, WatchStage.IDLE)
    )
    if timed is None:
        return
    if not timed.enough:
        yield energy.short_window_doubt(name, timed)
        return
    yield energy.power_measurement("power", name, timed)
    if idle is not None:
        yield from _idle_power(name, idle)


def _idle_power(name: str, idle: PowerDraw) -> Iterator[Measurement | Doubt]:
    yield energy.power_measurement("idle_power", name, idle)
    if not idle.counted:
        yield energy.sampled_power_doubt(name)


def _windows(
    name: str, stage: str, stages: Sequence[dict[str, Any]], *, gap: float
) -> list[list[MeterSample]]:
    """Return the power readings of each stage of that name; other processes had their turn in between.

    Stages at most `gap` seconds apart are one window: the meter is too slow to tell what was drawn between.
    """
    windows: list[list[MeterSample]] = []
    for recorded_stage in stages:
        if recorded_stage["name"] != stage:
            continue
        samples = [
            MeterSample(time=s["time"], energy=reading.get("energy"), power=reading.get("power"))
            for s in recorded_stage["samples"]
            if (reading := s["read"].get(name)) is not None
        ]
        if windows and windows[-1] and samples and samples[0].time - windows[-1][-1].time <= gap:
            windows[-1] += samples
        else:
            windows.append(samples)
    return windows


def _has_grown(name: str, stages: Sequence[dict[str, Any]]) -> bool:
    before, after = (_values(name, "used", part) for part in (_stages_before(stages), _stages_after(stages)))
    return bool(before and after) and max(after) - before[-1] >= _MIN_GROWTH


def _stages_before(stages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [stage for stage in stages if stage["name"] in _BEFORE]


def _stages_after(stages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [stage for stage in stages if stage["name"] not in {*_BEFORE, WatchStage.SECOND}]


def _samples_in(name: str, stages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [sample for stage in stages if stage["name"] == name for sample in stage["samples"]]


def _values(name: str, key: str, stages: Sequence[dict[str, Any]]) -> list[float]:
    return _readings(name, key, [sample for stage in stages for sample in stage["samples"]])


def _readings(name: str, key: str, samples: Sequence[dict[str, Any]]) -> list[float]:
    return [s["read"][name][key] for s in samples if key in s["read"].get(name, {})]


def _distribution(metric: str, name: str, values: list[float]) -> Measurement:
    value = Distribution.of(values, stop="run ended", clock="monotonic")
    return Measurement(metric=metric, value=value, scope=name)

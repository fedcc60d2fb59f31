"""The sampler ``device``: what graphics devices and processor packages did and drew, from outside.

Where there is neither a device nor a counter that can be read, there is no side process, and nothing is
said: what is unavailable is left out, and is never 0. A device that the model did not use is left out too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.samplers import nvidia, rapl
from modeldyno.adapters.samplers import sidecar as side
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Distribution, Measurement, observed
from modeldyno.core.trace import energy
from modeldyno.core.trace.energy import Meter, Sample
from modeldyno.interfaces import WatchStage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.core.trace.energy import Draw

_BEFORE = frozenset({WatchStage.IDLE, WatchStage.BASELINE})
"""Stages in which nothing is loaded."""
_DRIVER = ("proc/driver/nvidia/gpus/*", "dev/nvidiactl", "dev/dxg")
"""What is there where a driver is: on Linux, and on Linux within Windows."""
_LAG = 1.0
"""Seconds over which the driver averages utilisation: what it says sooner is of the stage before."""
_GROWN = 64 << 20
"""Bytes by which the memory in use grows at least when a process begins to use a device."""
_REASONS = {
    0x04: "its power limit",
    0x08: "a hardware slowdown",
    0x20: "its temperature",
    0x40: "its temperature (hardware)",
    0x80: "an external power brake",
}
"""NVML's bits for what lowers clocks, but for being idle and for what somebody has set."""
_GAUGES = {
    "utilization": "gpu_utilization",
    "clock": "clock",
    "memory_clock": "memory_clock",
    "temperature": "temperature",
}
"""Reading to the metric that it is a sample of, in the timed pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWatch:
    """A side process at work, or none where there is nothing to watch."""

    side: subprocess.Popen[bytes] | None

    def mark(self, stage: str) -> None:
        """Begin a stage, once each device was read; the stage ``idle`` ends by itself."""
        side.mark(self.side, stage)

    @property
    def pids(self) -> tuple[int, ...]:
        """The side process."""
        return side.pids(self.side)

    def stop(self) -> Iterator[Measurement | Doubt]:
        """End the side process and tell what it saw."""
        if self.side is None:
            return
        seen = side.ended(self.side)
        if not isinstance(seen, dict):
            yield Doubt(
                code="unwatched",
                seen="the side process that watches devices did not work",
                advice="nothing is known of devices and energy; see whether `nvidia-smi` works here",
            )
            return
        yield from told(seen["devices"], seen["stages"])


def start(
    pids: Sequence[int], *, root: Path = Path("/"), environ: Mapping[str, str] = os.environ
) -> DeviceWatch:
    """Watch the devices, and what the tree of the first process takes of them."""
    if not (sys.platform.startswith("linux") and there(root, environ)):
        return DeviceWatch(side=None)
    return DeviceWatch(side=side.launch("modeldyno.adapters.samplers.device_sidecar", (root, pids[0])))


def there(root: Path, environ: Mapping[str, str]) -> bool:
    """Say whether there is anything to watch: a driver that is not hidden, or a counter that can be read."""
    driver = any(True for pattern in _DRIVER for _ in root.glob(pattern))
    return (driver and not nvidia.hidden(environ)) or rapl.there(root)


def told(
    devices: dict[str, dict[str, Any]], stages: Sequence[dict[str, Any]]
) -> Iterator[Measurement | Doubt]:
    """Turn what the side process saw into measurements, of each device that the model used."""
    for name in used(devices, stages):
        if devices[name]["kind"] == "gpu":
            yield from memory(name, stages)
            yield from gauges(name, stages)
            yield from throttling(name, stages)
        yield from power(name, devices[name], stages)


def used(devices: dict[str, dict[str, Any]], stages: Sequence[dict[str, Any]]) -> list[str]:
    """Choose the devices that the model used; processor packages always are.

    Where the driver lists its processes on any device, the others are not used. Within a container it
    may list none; then those are taken whose memory in use has grown since before loading.
    """
    cards = [name for name, facts in devices.items() if facts["kind"] == "gpu"]
    chosen = [name for name in cards if _values(name, "ours", stages)]
    if not chosen:
        chosen = [name for name in cards if _grown(name, stages)]
    return [name for name in devices if name in chosen or name not in cards]


def memory(name: str, stages: Sequence[dict[str, Any]]) -> Iterator[Measurement]:
    """Memory of the model's processes, and of everybody with what it was before loading, bytes."""
    later = _later(stages)
    for key, metric in (("memory", "device_memory"), ("used", "device_used")):
        if values := _values(name, key, later):
            yield _distribution(metric, name, values)
    if before := _values(name, "used", _before(stages)):
        yield observed("device_used", before[-1], scope=f"{name} baseline")


def gauges(name: str, stages: Sequence[dict[str, Any]]) -> Iterator[Measurement]:
    """Utilisation, clocks and temperature in the timed pass."""
    timed = _of(WatchStage.TIMED, stages)
    for key, metric in _GAUGES.items():
        fresh = [s for s in timed if s["time"] >= timed[0]["time"] + _LAG] if key == "utilization" else timed
        if values := _told(name, key, fresh or timed):
            yield _distribution(metric, name, values)


def throttling(name: str, stages: Sequence[dict[str, Any]]) -> Iterator[Doubt]:
    """A doubt when the device lowered its clocks in the timed pass, with every reason that it gave."""
    found = [int(bits) for bits in _told(name, "reasons", _of(WatchStage.TIMED, stages))]
    shares = {
        text: sum(bool(bits & bit) for bits in found) / len(found) for bit, text in _REASONS.items() if found
    }
    seen = [f"{text} ({share:.0%} of the samples)" for text, share in shares.items() if share]
    if seen:
        yield Doubt(
            code="throttled",
            seen=f"{name} ran slower than it can, because of {', '.join(seen)}",
            advice="cool it or raise its limit; or fix its clock lower (nvidia-smi -lgc), which is steady",
        )


def power(
    name: str, facts: dict[str, Any], stages: Sequence[dict[str, Any]]
) -> Iterator[Measurement | Doubt]:
    """What the device drew in the timed pass, and before loading, watts."""
    meter = Meter(period=facts["period"], span=facts["span"])
    timed, idle = (
        energy.draw(_windows(name, stage, stages), meter) for stage in (WatchStage.TIMED, WatchStage.IDLE)
    )
    if timed is None:
        return
    if not timed.enough:
        yield energy.too_short(name, timed, meter)
        return
    yield energy.measured("power", name, timed)
    if idle is not None:
        yield from _floor(name, idle)


def _floor(name: str, idle: Draw) -> Iterator[Measurement | Doubt]:
    yield energy.measured("idle_power", name, idle)
    if not idle.counted:
        yield energy.by_samples(name)


def _windows(name: str, stage: str, stages: Sequence[dict[str, Any]]) -> list[list[Sample]]:
    """Give what was read of a device in each stage of that name: between them another had its turn."""
    return [
        [
            Sample(time=s["time"], energy=read.get("energy"), power=read.get("power"))
            for s in each["samples"]
            if (read := s["read"].get(name)) is not None
        ]
        for each in stages
        if each["name"] == stage
    ]


def _grown(name: str, stages: Sequence[dict[str, Any]]) -> bool:
    before, after = (_values(name, "used", part) for part in (_before(stages), _later(stages)))
    return bool(before and after) and max(after) - before[-1] >= _GROWN


def _before(stages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [stage for stage in stages if stage["name"] in _BEFORE]


def _later(stages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [stage for stage in stages if stage["name"] not in {*_BEFORE, WatchStage.SECOND}]


def _of(name: str, stages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [sample for stage in stages if stage["name"] == name for sample in stage["samples"]]


def _values(name: str, key: str, stages: Sequence[dict[str, Any]]) -> list[float]:
    return _told(name, key, [sample for stage in stages for sample in stage["samples"]])


def _told(name: str, key: str, samples: Sequence[dict[str, Any]]) -> list[float]:
    return [s["read"][name][key] for s in samples if key in s["read"].get(name, {})]


def _distribution(metric: str, name: str, values: list[float]) -> Measurement:
    value = Distribution.of(values, stop="run ended", clock="monotonic")
    return Measurement(metric=metric, value=value, scope=name)

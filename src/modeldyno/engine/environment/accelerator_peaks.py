"""Measure the peaks of an accelerator once, with torch, and cache them: operations and bytes per second.

As `peaks` does for the processor; a separate process measures them, so that neither its memory nor its
context on the device is the model's.
"""

from __future__ import annotations

import math
import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import perf_counter
from modeldyno.base.job.devices import DevicePeaks
from modeldyno.engine.environment.devices import read_devices
from modeldyno.engine.environment.idle import IdleRule, busy_reason
from modeldyno.engine.environment.machine import hardware
from modeldyno.engine.environment.peaks import (
    SECONDS,
    cache_directory,
    cache_file,
    measure_best_rate,
    recall_or_measure,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from modeldyno.engine.environment.peaks import Clock, Work

    Measure = Callable[[str, str], tuple[float, float] | None]
    """Returns operations per second in a dtype on a device, and bytes per second; None if it cannot."""

_DTYPES = ("float32", "float64", "bfloat16", "float16")
_MATRIX_SIDES = (1024, 2048, 4096, 8192, 16384)
_LONGEST = 60.0
"""Seconds after which a measurement is given up: a driver may hang, and importing torch takes some."""
_ARRAY_BYTES = (256 * 2**20, 2**31)


def accelerator_peaks(
    dtype: str, device: str, *, measure: Measure | None = None, directory: Path | None = None
) -> DevicePeaks | None:
    """Return the peaks of an accelerator of this machine: from the user's cache, or measured and cached.

    Args:
        dtype: of the products; one that cannot be measured has no peak of operations.
        device: such as ``cuda:0``, which is the name of the peaks.
        measure: function that measures them.
        directory: where to cache them.

    Returns:
        None if torch does not use it here.
    """
    measured_dtype = dtype if dtype in _DTYPES else "float32"
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None
    path = cache_file(directory or cache_directory(), [hardware(), version, measured_dtype, device])
    peaks = recall_or_measure(
        path,
        lambda: busy_reason(device, IdleRule(samples=1, period=0.0)) is not None,
        lambda: (measure or measure_in_subprocess)(measured_dtype, device),
    )
    if peaks is None:
        return None
    states = (state for state in read_devices().devices if state.cuda == device)
    return DevicePeaks(
        name=device,
        flops={measured_dtype: peaks.flops} if measured_dtype == dtype else {},
        bandwidth=peaks.bandwidth,
        memory=next((state.memory_total or 0 for state in states), 0),
        source="measured here with torch" + (", while it was in use" if peaks.busy else ""),
        busy=peaks.busy,
    )


def measure_in_subprocess(dtype: str, device: str) -> tuple[float, float] | None:
    """Measure in a separate process; None if torch cannot use the device there."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "modeldyno.engine.environment.accelerator_peaks",
        dtype,
        device,
    ]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LONGEST)
        flops, bandwidth = map(float, process.stdout.split())
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return (flops, bandwidth) if flops > 0 and bandwidth > 0 else None


def measure_peaks(
    dtype: str, device: str, *, seconds: float = SECONDS, clock: Clock = perf_counter
) -> tuple[float, float]:
    """Measure operations and bytes per second, in about the given seconds; 0 for what has no room.

    Products of float32 are computed in TF32 where the device has it, as those of convolutions are by default.
    """
    import torch  # optional, and heavy

    torch.set_float32_matmul_precision("high")
    place = torch.device(device)
    memory = getattr(getattr(torch, place.type), "mem_get_info", None)
    room = memory(place)[0] / 2 if memory else math.inf
    finish: Callable[[], None] = getattr(getattr(torch, place.type), "synchronize", lambda: None)

    def finished(work: Callable[[], Any]) -> Work:
        def run() -> None:
            work()
            finish()

        return run

    def products() -> Iterator[tuple[float, Work]]:
        for side in _MATRIX_SIDES:
            if 2 * 8 * side**2 > room:
                return
            square = torch.ones(side, side, dtype=getattr(torch, dtype), device=place)
            yield 2.0 * side**3, finished(lambda a=square: a @ a)  # type: ignore[misc]

    def transfers() -> Iterator[tuple[float, Work]]:
        for size in _ARRAY_BYTES:
            if 2 * size > room:
                return
            source = torch.ones(size // 4, device=place)
            target = torch.empty_like(source)
            yield 2.0 * size, finished(lambda a=source, b=target: b.copy_(a))  # type: ignore[misc]
            yield 1.0 * size, finished(source.max)

    with torch.inference_mode():
        flops = measure_best_rate(products(), seconds / 2, clock)
        return flops, measure_best_rate(transfers(), seconds / 2, clock)


if __name__ == "__main__":
    sys.stdout.write("{} {}\n".format(*measure_peaks(*sys.argv[1:])))

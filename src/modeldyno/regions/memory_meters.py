"""Measure the memory of a region of code: allocated, freed, and its peak.

Each place has a reader: ``python`` is tracemalloc, which slows code down while it traces; ``process`` is
the resident size, which has a peak where the kernel lets it be reset (Linux); ``cuda:0`` and so on are
torch's allocator, which has all three.
All of them include what other threads do meanwhile.
"""

from __future__ import annotations

import os
import sys
import tracemalloc
from dataclasses import dataclass
from functools import cache
from threading import RLock
from typing import Any, Literal

from modeldyno.base.clock import perf_counter_ns
from modeldyno.base.system import process_tree
from modeldyno.engine.trace.regions import RegionMemory

Memory = Literal["python", "process"]
"""How host memory is measured."""
MEMORY: tuple[Memory, ...] = ("python", "process")


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Memory of a place at a moment, in bytes."""

    held: int
    peak: int | None = None
    """Since it was last reset; None where it is not recorded."""
    allocated: int | None = None
    """Total ever allocated; None where it is not counted."""


@dataclass(slots=True)
class MemoryLevel:
    """Memory of a place at the start of a call, and the highest since."""

    start: MemoryReading
    high: int


class Meters:
    """The open calls whose memory is watched; reading a peak resets it, so all of them get each reading."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._open: list[dict[str, MemoryLevel]] = []
        self._tracing = False
        self.slowed: float | None = None
        """Slowdown of small allocations while they were traced; None if nothing was traced."""

    def begin(self, memory: Memory) -> dict[str, MemoryLevel]:
        """Start watching a call."""
        with self._lock:
            if memory == "python":
                self._start_tracing()
            readings = _read_all(memory)
            self._update_peaks(readings)
            _reset_peaks(readings)
            levels = {place: MemoryLevel(reading, reading.held) for place, reading in readings.items()}
            self._open.append(levels)
        return levels

    def end(self, memory: Memory, levels: dict[str, MemoryLevel], sizes: dict[str, RegionMemory]) -> None:
        """Add what has changed since the call began, by place."""
        with self._lock:
            readings = _read_all(memory)
            self._update_peaks(readings)
            self._open = [other for other in self._open if other is not levels]
            for place, reading in readings.items():
                if place in levels:
                    sizes.setdefault(place, RegionMemory()).add(*_changes_since(levels[place], reading))

    def close(self) -> None:
        """Stop tracing, if it was started here."""
        with self._lock:
            if self._tracing:
                tracemalloc.stop()
            self._tracing = False

    def _update_peaks(self, readings: dict[str, MemoryReading]) -> None:
        for levels in self._open:
            for place, level in levels.items():
                if place in readings:
                    level.high = max(level.high, readings[place].peak or 0)

    def _start_tracing(self) -> None:
        if tracemalloc.is_tracing():
            self.slowed = self.slowed or 1.0
            return
        before = _time_allocations()
        tracemalloc.start()
        self._tracing = True
        self.slowed = max(1.0, _time_allocations() / before)


def _changes_since(level: MemoryLevel, now: MemoryReading) -> tuple[int, int, int | None]:
    """Return the bytes allocated, freed, and held at most above the start.

    Where allocations are not counted, it is the minimum that explains the levels: the peak was allocated.
    """
    net = now.held - level.start.held
    peak = None if now.peak is None else max(level.high - level.start.held, net, 0)
    if now.allocated is not None and level.start.allocated is not None:
        allocated = now.allocated - level.start.allocated
    else:
        allocated = max(net, 0) if peak is None else peak
    return allocated, allocated - net, peak


def _read_all(memory: Memory) -> dict[str, MemoryReading]:
    readings = _read_devices()
    if memory == "process":
        readings["process"] = _read_process()
    elif tracemalloc.is_tracing():
        held, peak = tracemalloc.get_traced_memory()
        readings["python"] = MemoryReading(held, peak)
    return readings


def _read_process() -> MemoryReading:
    """Read the resident size, and its peak if that can be reset: otherwise it is of the whole process."""
    held, peak = process_tree.resident_size(os.getpid()), process_tree.peak_size(os.getpid())
    return MemoryReading(held, max(held, peak) if peak and _can_forget_peak() else None)


@cache
def _can_forget_peak() -> bool:
    return os.access(f"/proc/{os.getpid()}/clear_refs", os.W_OK)


def _reset_peaks(readings: dict[str, MemoryReading]) -> None:
    """Reset the peaks."""
    for place in readings:
        if place == "python":
            tracemalloc.reset_peak()
        elif place == "process":
            process_tree.forget_peak(os.getpid())
        elif place.startswith("cuda"):
            sys.modules["torch"].cuda.reset_peak_memory_stats(int(place.partition(":")[2]))


def _read_devices() -> dict[str, MemoryReading]:
    """Read torch's allocator, if torch is loaded and uses CUDA."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return {}
    readings = {}
    for index in range(cuda.device_count()):
        stats = cuda.memory_stats_as_nested_dict(index).get("allocated_bytes")
        if stats:
            totals = stats["all"]
            readings[f"cuda:{index}"] = MemoryReading(totals["current"], totals["peak"], totals["allocated"])
    return readings


def _time_allocations(times: int = 3, count: int = 5000) -> float:
    """Time small allocations, the best of several rounds, in nanoseconds."""
    best = sys.maxsize
    for _ in range(times):
        begin = perf_counter_ns()
        blocks = [bytearray(64) for _ in range(count)]
        best = min(best, perf_counter_ns() - begin)
        del blocks
    return max(best, 1)


def synchronise() -> None:
    """Wait for the devices that torch uses in this process, if any."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized() and not cuda.is_current_stream_capturing():
        cuda.synchronize()  # not allowed while a graph is being captured
    xpu = getattr(torch, "xpu", None)
    if xpu is not None and xpu.is_initialized():
        xpu.synchronize()
    backends = getattr(torch, "backends", None)
    if backends is not None and backends.mps.is_available():
        torch.mps.synchronize()

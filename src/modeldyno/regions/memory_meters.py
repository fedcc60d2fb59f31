"""Memory of a region of code: what it took, gave back and held at most, by those who keep the books.

Each place has a reader: ``python`` is tracemalloc, which slows code down while it traces; ``process`` is
the resident size, which knows no peak; ``cuda:0`` and so on are torch's allocator, which knows all three.
All of them count what other threads do meanwhile, too.
"""

from __future__ import annotations

import os
import sys
import tracemalloc
from dataclasses import dataclass
from threading import RLock
from time import perf_counter_ns
from typing import Any, Literal

from modeldyno.core.trace.regions import Sizes
from modeldyno.environment import process_tree

Memory = Literal["python", "process"]
"""Who is asked of memory on the host."""
MEMORY: tuple[Memory, ...] = ("python", "process")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a place held at a moment, bytes."""

    held: int
    peak: int | None = None
    """Since it was last forgotten; None where nobody keeps it."""
    allocated: int | None = None
    """Ever taken; None where nobody counts."""


@dataclass(slots=True)
class Level:
    """What lies between the beginning of a call and now, at one place."""

    start: Reading
    high: int


class Meters:
    """The open calls whose memory is watched; asking for a peak resets it, so all of them are told."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._open: list[dict[str, Level]] = []
        self._tracing = False
        self.slowed: float | None = None
        """How many times longer small allocations took while they were traced; None: nothing was traced."""

    def begin(self, memory: Memory) -> dict[str, Level]:
        """Begin to watch a call."""
        with self._lock:
            if memory == "python":
                self._trace()
            readings = _read(memory)
            self._tell(readings)
            _forget(readings)
            levels = {place: Level(reading, reading.held) for place, reading in readings.items()}
            self._open.append(levels)
        return levels

    def end(self, memory: Memory, levels: dict[str, Level], sizes: dict[str, Sizes]) -> None:
        """Add what was done since it began, by place."""
        with self._lock:
            readings = _read(memory)
            self._tell(readings)
            self._open = [each for each in self._open if each is not levels]
            for place, reading in readings.items():
                if place in levels:
                    sizes.setdefault(place, Sizes()).add(*_done(levels[place], reading))

    def close(self) -> None:
        """Stop tracing, if it was begun here."""
        with self._lock:
            if self._tracing:
                tracemalloc.stop()
            self._tracing = False

    def _tell(self, readings: dict[str, Reading]) -> None:
        for levels in self._open:
            for place, level in levels.items():
                if place in readings:
                    level.high = max(level.high, readings[place].peak or 0)

    def _trace(self) -> None:
        if tracemalloc.is_tracing():
            self.slowed = self.slowed or 1.0
            return
        before = _allocating()
        tracemalloc.start()
        self._tracing = True
        self.slowed = max(1.0, _allocating() / before)


def _done(level: Level, now: Reading) -> tuple[int, int, int | None]:
    """Give the bytes that were allocated, freed, and held at most above the beginning.

    Where nobody counts, it is the least that explains the levels: what was held at the peak was allocated.
    """
    net = now.held - level.start.held
    peak = None if now.peak is None else max(level.high - level.start.held, net, 0)
    if now.allocated is not None and level.start.allocated is not None:
        allocated = now.allocated - level.start.allocated
    else:
        allocated = max(net, 0) if peak is None else peak
    return allocated, allocated - net, peak


def _read(memory: Memory) -> dict[str, Reading]:
    readings = _devices()
    if memory == "process":
        readings["process"] = Reading(process_tree.resident_size(os.getpid()))
    elif tracemalloc.is_tracing():
        held, peak = tracemalloc.get_traced_memory()
        readings["python"] = Reading(held, peak)
    return readings


def _forget(readings: dict[str, Reading]) -> None:
    """Let the peaks begin anew from here."""
    for place in readings:
        if place == "python":
            tracemalloc.reset_peak()
        elif place.startswith("cuda"):
            sys.modules["torch"].cuda.reset_peak_memory_stats(int(place.partition(":")[2]))


def _devices() -> dict[str, Reading]:
    """Ask torch's allocator, where torch is loaded and has begun to use CUDA."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return {}
    found = {}
    for index in range(cuda.device_count()):
        stats = cuda.memory_stats_as_nested_dict(index).get("allocated_bytes")
        if stats:
            whole = stats["all"]
            found[f"cuda:{index}"] = Reading(whole["current"], whole["peak"], whole["allocated"])
    return found


def _allocating(times: int = 3, count: int = 5000) -> float:
    """Time small allocations, in the best of some rounds; nanoseconds."""
    best = sys.maxsize
    for _ in range(times):
        begin = perf_counter_ns()
        made = [bytearray(64) for _ in range(count)]
        best = min(best, perf_counter_ns() - begin)
        del made
    return max(best, 1)


def synchronise() -> None:
    """Wait for the devices that torch has begun to use here; nothing where there are none."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized() and not cuda.is_current_stream_capturing():
        cuda.synchronize()  # a graph that is being captured cannot be waited for
    xpu = getattr(torch, "xpu", None)
    if xpu is not None and xpu.is_initialized():
        xpu.synchronize()
    backends = getattr(torch, "backends", None)
    if backends is not None and backends.mps.is_available():
        torch.mps.synchronize()

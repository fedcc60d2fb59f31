"""The sampler ``process``: memory, processor time, I/O and noise, measured by a side process from outside.

`start` starts the side process; `mark` names the stages of `WatchStage`. Memory is that of
loading, the first call and the timed pass above the baseline; growth during the profiler's own work is
subtracted.
"""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from modeldyno.base.metrics import doubt
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import (
    FEWEST_WINDOWS,
    Distribution,
    Measurement,
    observed_number,
    ratio_number,
)
from modeldyno.base.system.process_tree import stat_fields
from modeldyno.engine.samplers.sidecar import SideWatch, launch
from modeldyno.models.load_stages import WatchStage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_EXCLUDED = frozenset({WatchStage.IDLE, WatchStage.BASELINE, WatchStage.SECOND})
"""Stages whose memory is not the model's: nothing is loaded yet, or a second pass instruments the calls."""
_NOT_CALLED = frozenset({WatchStage.PROFILER, WatchStage.WAITING})
"""Stages in which the model is loaded, and not called."""
_MAX_FAULT_RATE = 1.0
"""Major faults per second above which there is a doubt."""


def start(pids: Sequence[int], *, period: float | None = None) -> SideWatch:
    """Watch the process tree of the first pid every `period` seconds; the other pids belong to us."""
    if not sys.platform.startswith("linux") or not stat_fields(os.getpid()):
        return SideWatch(side=None, judge=judge)
    arguments = (period or 0, *pids)
    return SideWatch(side=launch("modeldyno.engine.samplers.process_sidecar", arguments), judge=judge)


def judge(stages: Any) -> Iterator[Measurement | Doubt]:
    """Yield what the readings of the stages say: memory, noise and traffic."""
    if not isinstance(stages, list):
        yield Doubt(
            code="unwatched",
            seen="memory, processor time and noise are not known: the side process that watches them failed, "
            "or there is no /proc for it to read",
            advice="measure on Linux, and mount /proc where the run has its own file system",
        )
        return
    yield from memory(stages)
    yield from available(stages)
    yield from noise(stages)
    yield from traffic(stages)


def memory(stages: Sequence[dict[str, Any]]) -> Iterator[Measurement]:
    """Yield the memory of the process tree: the baseline and the model's memory above it, in bytes.

    Growth in stages in which the model is not called, those of the profiler's own work and of waiting while
    another process has its turn, is subtracted from all later sizes. Sizes below the baseline count as 0, but
    a run that ended before its timed pass and never grew shows nothing of its model. A server, loaded before
    it was watched, has no baseline, but a size at idle.
    """
    baseline = next((size for s in stages if s["name"] == WatchStage.BASELINE for size in s["memory"]), 0)
    other_growth, above = 0, []
    for stage in stages:
        growth = stage["held"][1] - stage["held"][0] if stage["held"] else 0
        if stage["name"] in _NOT_CALLED:
            other_growth += growth
        elif stage["name"] == WatchStage.IMPORT:
            baseline += growth
        elif stage["name"] not in _EXCLUDED:
            above += [float(max(0, size - baseline - other_growth)) for size in stage["memory"]]
    if baseline:
        yield observed_number("process_memory", baseline, scope=WatchStage.BASELINE)
    elif idle := [size for s in stages if s["name"] == WatchStage.IDLE for size in s["memory"]]:
        yield observed_number("process_memory", idle[0], scope=WatchStage.IDLE)
    if any(above) or (above and any(stage["name"] == WatchStage.TIMED for stage in stages)):
        distribution = Distribution.of(above, stop="run ended", clock="monotonic")
        yield Measurement(metric="process_memory", value=distribution)


def available(stages: Sequence[dict[str, Any]]) -> Iterator[Measurement]:
    """Yield the memory that the machine had left from loading on, in bytes."""
    left = [
        float(size)
        for stage in stages
        if stage["name"] not in _NOT_CALLED | _EXCLUDED
        for size in stage.get("available", ())
    ]
    if left:
        value = Distribution.of(left, stop="run ended", clock="monotonic")
        yield Measurement(metric="memory_available", value=value)


def noise(stages: Sequence[dict[str, Any]]) -> Iterator[Measurement | Doubt]:
    """Yield processor time, context switches and foreign load during the timed pass."""
    timed, spent = _timed_counters(stages)
    elapsed = spent.get("time", 0.0)
    if elapsed <= 0:
        return
    used = max(0.0, spent["processor"])
    foreign = max(0.0, spent["busy"] - used - spent["ours"]) / elapsed
    steal = spent["stolen"] / elapsed
    windows = _processor_windows(timed)
    if spent["processor"] < 0:  # it falls if a process ends without being waited for
        pass
    elif len(windows) < FEWEST_WINDOWS:
        yield observed_number("cpu_utilization", used / elapsed)
    else:
        seconds, cores = zip(*windows, strict=True)
        yield ratio_number("cpu_utilization", cores, seconds)
    yield observed_number("foreign_cpu", foreign)
    yield observed_number("steal", steal)
    for metric, counter in (("context_switches", "voluntary"), ("preemptions", "involuntary")):
        if spent[counter] >= 0:  # a thread may get the number of one that ended
            yield observed_number(metric, spent[counter])
    yield from doubt.noise_doubts(foreign, steal)
    yield from doubt.pinning_doubts(used / elapsed, timed[0]["cores"])


_WINDOW = 0.2
"""Least seconds of a window of the processor time, which the kernel counts in ticks of 0.01 s."""


def _processor_windows(timed: Iterable[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return the seconds of each window of the timed pass, and the processor time used in them.

    Windows add up to the whole pass; one may span several stages. A processor time that falls, as a process
    ended meanwhile, leaves none.
    """
    windows, seconds, used = [], 0.0, 0.0
    for stage in timed:
        begin, end = ((stage[key]["time"], stage[key]["processor"]) for key in ("begin", "end"))
        inside = [(when, spent) for when, spent in stage.get("processor", ()) if begin[0] < when < end[0]]
        for before, after in pairwise((begin, *inside, end)):
            seconds, used = seconds + after[0] - before[0], used + after[1] - before[1]
            if after[1] < before[1]:
                return []
            if seconds >= _WINDOW:
                windows.append((seconds, used))
                seconds, used = 0.0, 0.0
    if seconds and windows:
        windows[-1] = windows[-1][0] + seconds, windows[-1][1] + used
    return windows


_TRAFFIC = {
    "faults": "major_faults",
    "read": "disk_read",
    "written": "disk_written",
    "received": "network_received",
    "sent": "network_sent",
}
"""Counter to its metric; counters that may not be read are missing."""


def traffic(stages: Sequence[dict[str, Any]]) -> Iterator[Measurement | Doubt]:
    """Yield the disk and network traffic of the timed pass; the network's is that of its namespace."""
    _, spent = _timed_counters(stages)
    elapsed = spent.get("time", 0.0)
    if elapsed <= 0:
        return
    for counter, metric in _TRAFFIC.items():
        if spent.get(counter, -1) >= 0:  # a counter falls if a process ends without being waited for
            yield observed_number(metric, spent[counter])
    faults = spent.get("faults", 0)
    if faults > _MAX_FAULT_RATE * elapsed:
        yield Doubt(
            code="paging",
            seen=f"the timed pass waited {faults:,.0f} times for a memory page from disk (major faults)",
            advice="free some memory, or warm up longer so that all of the model is in memory",
        )


def _timed_counters(stages: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Return the stages of the timed pass, and the increase of each counter in them."""
    timed = [s for s in stages if s["name"] == WatchStage.TIMED]
    counters = [name for name in timed[0]["begin"] if all(name in s["end"] for s in timed)] if timed else []
    return timed, {name: sum(s["end"][name] - s["begin"][name] for s in timed) for name in counters}

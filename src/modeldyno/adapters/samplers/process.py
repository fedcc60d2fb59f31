"""The sampler ``process``: memory, processor time, traffic and noise, seen by a side process from outside.

`start` begins watching; `mark` names the stages of `ports.WatchStage`. Memory is that of loading, of the
first call and of the timed pass, above the baseline; what the process grew by while it did work of ours is
taken off.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.samplers import sidecar as side
from modeldyno.core.metrics import doubt
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Distribution, Measurement, observed
from modeldyno.interfaces import WatchStage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NOT_THE_MODEL = frozenset({WatchStage.IDLE, WatchStage.BASELINE, WatchStage.SECOND})
"""Stages whose memory is not told: nothing is loaded yet, or a second pass watches the calls."""
_FAULTS = 1.0
"""Major faults in a second; more than this is a doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessWatch:
    """A side process at work."""

    side: subprocess.Popen[bytes] | None

    def mark(self, stage: str) -> None:
        """Begin a stage, once the side process has taken its first sample of it."""
        side.mark(self.side, stage)

    @property
    def pids(self) -> tuple[int, ...]:
        """The side process."""
        return side.pids(self.side)

    def stop(self) -> Iterator[Measurement | Doubt]:
        """End the side process and tell what it saw."""
        stages = side.ended(self.side)
        if not isinstance(stages, list):
            yield Doubt(
                code="unwatched",
                seen="the side process that watches memory and noise did not work",
                advice="memory and noise are watched on Linux only",
            )
            return
        yield from memory(stages)
        yield from noise(stages)
        yield from traffic(stages)


def start(pids: Sequence[int]) -> ProcessWatch:
    """Watch the tree of the first process; the others belong to this program."""
    if not sys.platform.startswith("linux"):
        return ProcessWatch(side=None)
    return ProcessWatch(side=side.launch("modeldyno.adapters.samplers.process_sidecar", pids))


def memory(stages: Sequence[dict[str, Any]]) -> Iterator[Measurement]:
    """Memory of the process tree: the baseline, and what the model took above it, bytes.

    What the tree grew by in stages of ours is taken off all later sizes. A tree that gave back memory that it
    held before the baseline took nothing, not less than nothing.
    """
    baseline = next((size for s in stages if s["name"] == WatchStage.BASELINE for size in s["memory"]), 0)
    ours, above = 0, []
    for stage in stages:
        growth = stage["held"][1] - stage["held"][0] if stage["held"] else 0
        if stage["name"] == WatchStage.OURS:
            ours += growth
        elif stage["name"] == WatchStage.IMPORT:
            baseline += growth
        elif stage["name"] not in _NOT_THE_MODEL:
            above += [float(max(0, size - baseline - ours)) for size in stage["memory"]]
    if baseline:
        yield observed("process_memory", baseline, scope=WatchStage.BASELINE)
    if above:
        found = Distribution.of(above, stop="run ended", clock="monotonic")
        yield Measurement(metric="process_memory", value=found)


def noise(stages: Sequence[dict[str, Any]]) -> Iterator[Measurement | Doubt]:
    """Processor time and switches during the timed pass, and what others did meanwhile."""
    timed, spent = _timed(stages)
    elapsed = spent.get("time", 0.0)
    if elapsed <= 0:
        return
    foreign = max(0.0, spent["busy"] - spent["processor"] - spent["ours"]) / elapsed
    steal = spent["stolen"] / elapsed
    yield observed("cpu_utilization", spent["processor"] / elapsed)
    yield observed("foreign_cpu", foreign)
    yield observed("steal", steal)
    yield observed("context_switches", spent["voluntary"])
    yield observed("preemptions", spent["involuntary"])
    yield from doubt.of_noise(foreign, steal)
    yield from doubt.of_pin(spent["processor"] / elapsed, timed[0]["cores"])


_TRAFFIC = {
    "faults": "major_faults",
    "read": "disk_read",
    "written": "disk_written",
    "received": "network_received",
    "sent": "network_sent",
}
"""Counter to the metric that it gives; one that was not allowed to be read is missing."""


def traffic(stages: Sequence[dict[str, Any]]) -> Iterator[Measurement | Doubt]:
    """What the timed pass fetched and sent: from and to disks, and through the network namespace."""
    _, spent = _timed(stages)
    elapsed = spent.get("time", 0.0)
    if elapsed <= 0:
        return
    for counter, metric in _TRAFFIC.items():
        if spent.get(counter, -1) >= 0:  # a counter falls when a process ends that nobody waited for
            yield observed(metric, spent[counter])
    faults = spent.get("faults", 0)
    if faults > _FAULTS * elapsed:
        yield Doubt(
            code="paging",
            seen=f"the timed pass waited {faults:,.0f} times for a page of memory that lay on a disk",
            advice="free some memory, or let a longer warm-up touch all of the model first",
        )


def _timed(stages: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Give the stages of the timed pass, and what each counter went up by in them."""
    timed = [s for s in stages if s["name"] == WatchStage.TIMED]
    known = [name for name in timed[0]["begin"] if all(name in s["end"] for s in timed)] if timed else []
    return timed, {name: sum(s["end"][name] - s["begin"][name] for s in timed) for name in known}

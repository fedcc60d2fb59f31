"""The sampler ``process``: memory, processor time and noise, seen by a side process from outside.

`start` begins watching; `mark` names the stages, of which three mean something here: ``baseline``
(frameworks imported, nothing loaded), ``timed`` (the timed pass) and all that lies between.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.core import doubt
from modeldyno.core.doubt import Doubt
from modeldyno.core.measurement import Distribution, Measurement, observed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BASELINE, TIMED = "baseline", "timed"
_PATIENCE = 10.0
"""Seconds to wait for the side process to answer or to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessWatch:
    """A side process at work."""

    side: subprocess.Popen[bytes] | None

    def mark(self, stage: str) -> None:
        """Begin a stage, once the side process has taken its first sample of it."""
        if self.side is None:
            return
        assert self.side.stdin is not None
        assert self.side.stdout is not None
        with suppress(OSError):
            self.side.stdin.write(f"mark {stage}\n".encode())
            ready, _, _ = select.select([self.side.stdout], [], [], _PATIENCE)
            if ready:
                self.side.stdout.readline()

    def stop(self) -> Iterator[Measurement | Doubt]:
        """End the side process and tell what it saw."""
        stages = _ended(self.side)
        if stages is None:
            yield Doubt(
                code="unwatched",
                seen="the side process that watches memory and noise did not work",
                advice="memory and noise are watched on Linux only",
            )
            return
        yield from memory(stages)
        yield from noise(stages)


def start(pids: Sequence[int]) -> ProcessWatch:
    """Watch the tree of the first process; the others belong to this program."""
    if not sys.platform.startswith("linux"):
        return ProcessWatch(side=None)
    command = [sys.executable, "-m", "modeldyno.samplers.watcher", *map(str, pids)]
    try:
        side = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    except OSError:
        return ProcessWatch(side=None)
    return ProcessWatch(side=side)


def memory(stages: Sequence[dict[str, Any]]) -> Iterator[Measurement]:
    """Memory of the process tree: the baseline, and what came above it, bytes."""
    baseline = next((size for s in stages if s["name"] == BASELINE for size in s["memory"]), 0)
    above = [float(size - baseline) for s in stages if s["name"] != BASELINE for size in s["memory"]]
    if baseline:
        yield observed("process_memory", baseline, scope=BASELINE)
    if above:
        found = Distribution.of(above, stop="run ended", clock="monotonic")
        yield Measurement(metric="process_memory", value=found)


def noise(stages: Sequence[dict[str, Any]]) -> Iterator[Measurement | Doubt]:
    """Processor time and switches during the timed pass, and what others did meanwhile."""
    timed = [s for s in stages if s["name"] == TIMED]
    spent = {name: sum(s["end"][name] - s["begin"][name] for s in timed) for name in _counters(timed)}
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


def _counters(stages: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(stages[0]["begin"]) if stages else ()


def _ended(side: subprocess.Popen[bytes] | None) -> list[dict[str, Any]] | None:
    if side is None:
        return None
    try:
        output, _ = side.communicate(b"stop\n", timeout=_PATIENCE)
        stages = json.loads(output)
    except (subprocess.TimeoutExpired, ValueError, OSError):
        side.kill()
        side.communicate()
        return None
    return stages if isinstance(stages, list) else None

"""The side process: reads the memory, processor time, disk and network of a process tree, from outside.

Standard library only, so that it starts in a few milliseconds and takes little memory. It obeys
lines on standard input: ``mark STAGE`` samples at once, begins a stage and answers ``ok``; ``stop``, or
the end of the input, stops it, and it writes what it saw as a line of JSON.

Linux only. Sizes are read from ``smaps_rollup``, which takes a lock of the watched process; so they are read
so seldom that it takes at most about 1 % of the time.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.environment.process_tree import (
    end_with_parent,
    family_size,
    peak_size,
    processor_time,
    resident_size,
    status,
    tree,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SHARE = 0.01
"""Share of the time that reading may take."""
SHORTEST = 0.02
"""Seconds between two samples at least."""
LONGEST = 1.0

_TICK = os.sysconf("SC_CLK_TCK")


def forget_peak(pid: int) -> None:
    """Let the highest resident size begin anew."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def major_faults(pid: int) -> int:
    """Pages that a process and its ended children had to wait for until a disk gave them."""
    return sum(map(int, status(pid)[9:11]))


def disk_traffic(pid: int) -> tuple[int, int] | None:
    """Bytes read from and written to disks by a process and its ended children; None if not allowed."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return None if Path(f"/proc/{pid}").exists() else (0, 0)
    counts = dict(line.split(": ") for line in lines)
    return int(counts["read_bytes"]), int(counts["write_bytes"])


def network_traffic(pid: int) -> tuple[int, int] | None:
    """Bytes received and sent in the network namespace of a process, but for those to itself."""
    try:
        lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    except OSError:
        return None
    devices = dict(line.split(":", 1) for line in lines)
    counts = [fields.split() for name, fields in devices.items() if name.strip() != "lo"]
    return sum(int(fields[0]) for fields in counts), sum(int(fields[8]) for fields in counts)


def switches(pid: int) -> tuple[int, int]:
    """Voluntary and involuntary context switches of all threads of a process."""
    counts = {"voluntary_ctxt_switches": 0, "nonvoluntary_ctxt_switches": 0}
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                for line in (task / "status").read_text().splitlines():
                    name, _, value = line.partition(":")
                    if name in counts:
                        counts[name] += int(value)
    return counts["voluntary_ctxt_switches"], counts["nonvoluntary_ctxt_switches"]


def cores_time(cores: frozenset[int]) -> tuple[float, float]:
    """Seconds that these cores were busy, and that were stolen from them, since the machine started."""
    busy = stolen = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if name.startswith("cpu") and name != "cpu" and int(name[3:]) in cores:
            user, nice, system, _idle, _wait, irq, soft, steal, *_ = map(int, rest.split())
            busy += user + nice + system + irq + soft
            stolen += steal
    return busy / _TICK, stolen / _TICK


class Witness:
    """What was seen of one process tree, stage by stage."""

    def __init__(self, root: int, ours: list[int]) -> None:
        """Watch `root`; `ours` are processes of this program, which are no foreign load."""
        self.root = root
        self.ours = [*ours, os.getpid()]
        self.stages: list[dict[str, object]] = []

    def mark(self, stage: str) -> None:
        """Begin a stage."""
        now = self.close()
        forget_peak(self.root)
        cores = len(_cores(self.root))
        self.stages.append(
            {"name": stage, "begin": now, "end": now, "memory": [], "held": [], "cores": cores}
        )
        self.sample()

    def sample(self) -> float:
        """Read the memory once; give the seconds that it took."""
        begin = time.perf_counter()
        size = family_size(self._watched())
        if size and self.stages:
            memory = self.stages[-1]["memory"]
            assert isinstance(memory, list)
            memory.append(size)
        return time.perf_counter() - begin

    def close(self) -> dict[str, float]:
        """End the last stage: its peak between two samples is known from the kernel; give the counters."""
        if self.stages:
            self.sample()  # the peak is above what is held now, not above what was held at the last sample
            memory = self.stages[-1]["memory"]
            assert isinstance(memory, list)
            self.stages[-1]["held"] = [memory[0], memory[-1]] if memory else []
            above = peak_size(self.root) - resident_size(self.root)
            memory += [size + above for size in memory[-1:] if above > 0]
        now = self._counters()
        if self.stages:
            self.stages[-1]["end"] = now
        return now

    def _watched(self) -> list[int]:
        family = tree(self.root)
        aside = self._aside(family)
        return [pid for pid in family if pid not in aside]

    def _aside(self, family: list[int]) -> set[int]:
        """Give the side processes in a tree, and what they have started."""
        return {pid for side in self.ours if side in family for pid in tree(side)}

    def _counters(self) -> dict[str, float]:
        family = tree(self.root)
        aside = self._aside(family)
        watched = [pid for pid in family if pid not in aside]
        switched = [switches(pid) for pid in watched]
        busy, stolen = cores_time(frozenset(_cores(self.root)))
        return {
            "time": time.monotonic(),
            "processor": sum(map(processor_time, watched)),
            "ours": sum(map(processor_time, aside.union(self.ours))),
            "voluntary": sum(voluntary for voluntary, _ in switched),
            "involuntary": sum(involuntary for _, involuntary in switched),
            "busy": busy,
            "stolen": stolen,
            "faults": sum(map(major_faults, watched)),
            **_traffic(("read", "written"), map(disk_traffic, watched)),
            **_traffic(("received", "sent"), [network_traffic(self.root)]),
        }


def _traffic(names: tuple[str, str], found: Iterable[tuple[int, int] | None]) -> dict[str, float]:
    """Sum both directions up; nothing where any of it cannot be known."""
    known = list(found)
    if any(both is None for both in known):
        return {}
    return {name: sum(both[way] for both in known if both) for way, name in enumerate(names)}


def _cores(pid: int) -> set[int]:
    try:
        return os.sched_getaffinity(pid)
    except OSError:
        return set()


def settle(root: int) -> None:
    """Become a side process: end with the parent, be deaf to Ctrl-C, leave the root's cores to it."""
    end_with_parent()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # nobody listens any more: no word of ours in a model's log
    for number in (signal.SIGINT, signal.SIGTERM):  # they are for those who started us
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError):
        everywhere = set(range(os.cpu_count() or 1))
        os.sched_setaffinity(0, everywhere - _cores(root) or everywhere)


def obey(mark: Callable[[str], None], sample: Callable[[], float], shortest: float = SHORTEST) -> None:
    """Sample until the lines on standard input say ``stop``, or end; mark the stages that they name.

    `sample` gives the seconds that it took. The pause between two is at least `shortest`.
    """
    pause = shortest
    while True:
        ready, _, _ = select.select([0], [], [], pause)
        if not ready:
            pause = min(LONGEST, max(shortest, sample() / SHARE))
            continue
        line = os.read(0, 4096)
        if not line or line.startswith(b"stop"):
            return
        mark(line.decode().removeprefix("mark ").strip())
        os.write(1, b"ok\n")


def main(arguments: list[str]) -> None:
    """Watch the process whose number comes first; those that follow are ours too."""
    root, *ours = map(int, arguments)
    settle(root)
    witness = Witness(root, ours)
    obey(witness.mark, witness.sample)
    witness.close()
    sys.stdout.write(json.dumps(witness.stages))


if __name__ == "__main__":
    main(sys.argv[1:])

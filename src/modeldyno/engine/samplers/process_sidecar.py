"""The side process of the sampler ``process``: reads memory, processor time and I/O of a process tree.

Standard library only, so that it starts in a few milliseconds and takes little memory. It reads commands from
standard input: ``mark STAGE`` takes a sample, begins a stage and answers ``ok``; ``stop``, or the end of the
input, ends the process, which writes its readings as a line of JSON.

Linux only. Sizes are read from ``smaps_rollup``, which takes a lock of the watched process; so they are read
so rarely that it takes at most about 1 % of the time. The processor time takes no lock, and is read more
often.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.clock import monotonic, perf_counter
from modeldyno.base.system.process_tree import (
    available_memory,
    cores_time,
    cpu_seconds,
    disk_traffic,
    end_with_parent,
    forget_peak,
    list_process_tree,
    network_traffic,
    peak_size,
    resident_size,
    stat_fields,
    tree_memory,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SHARE = 0.01
"""Maximum share of the time for reading."""
SHORTEST = 0.02
"""Minimum seconds between two samples."""
LONGEST = 1.0


def major_faults(pid: int) -> int:
    """Return the major page faults of a process and its ended children."""
    return sum(map(int, stat_fields(pid)[9:11]))


def switches(pid: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the voluntary and involuntary context switches of each thread of a process so far."""
    counts = {}
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                lines = (line.partition(":") for line in (task / "status").read_text().splitlines())
                fields = {name: value for name, _, value in lines if name.endswith("_ctxt_switches")}
                counts[pid, int(task.name)] = (
                    int(fields["voluntary_ctxt_switches"]),
                    int(fields["nonvoluntary_ctxt_switches"]),
                )
    return counts


class ProcessRecorder:
    """Records the readings of a process tree, stage by stage."""

    def __init__(self, root: int, ours: list[int]) -> None:
        """Watch `root`; `ours` are processes of this program, which are not foreign load."""
        self.root = root
        self.ours = [*ours, os.getpid()]
        self.stages: list[dict[str, object]] = []
        self.watched: list[int] = []
        """The processes of the last sample."""
        self.switches: dict[tuple[int, int], tuple[int, int]] = {}
        """Context switches of each thread that was ever read: nobody else keeps those of one that ended."""
        self.due = 0.0
        """When the memory is to be read again."""

    def mark(self, stage: str) -> None:
        """Begin a stage, with the size at which the one before it ended."""
        now = self.close()
        forget_peak(self.root)
        cores = len(_cores(self.root))
        held = self.stages[-1]["held"] if self.stages else []
        assert isinstance(held, list)
        self.stages.append(
            {
                "name": stage,
                "begin": now,
                "end": now,
                "memory": held[-1:],
                "available": [],
                "processor": [],
                "held": [],
                "cores": cores,
            }
        )
        if not held:
            self.sample()

    def sample(self) -> float:
        """Read the memory once; return the seconds that it took."""
        begin = perf_counter()
        self.watched = self._watched()
        size = tree_memory(self.watched)
        if size and self.stages:
            memory = self.stages[-1]["memory"]
            assert isinstance(memory, list)
            memory.append(size)
            available = self.stages[-1]["available"]
            assert isinstance(available, list)
            available += [left for left in (available_memory(),) if left is not None]
        return perf_counter() - begin

    def sample_often(self) -> float:
        """Read the processor time, and the memory if it is due; return the seconds that the former took."""
        begin = perf_counter()
        if self.stages:
            processor = self.stages[-1]["processor"]
            assert isinstance(processor, list)
            processor.append((monotonic(), sum(map(cpu_seconds, self.watched))))
        seconds = perf_counter() - begin
        if begin >= self.due:
            self.due = begin + min(LONGEST, self.sample() / SHARE)
        return seconds

    def close(self) -> dict[str, float]:
        """End the last stage, with its peak between two samples from the kernel; return the counters."""
        if self.stages:
            self.sample()  # the peak is relative to the size now, not at the last sample
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
        family = list_process_tree(self.root)
        own = self._own_pids(family)
        return [pid for pid in family if pid not in own]

    def _own_pids(self, family: list[int]) -> set[int]:
        """Return the pids of our side processes in a tree, with their children."""
        return {descendant for pid in self.ours if pid in family for descendant in list_process_tree(pid)}

    def _counters(self) -> dict[str, float]:
        family = list_process_tree(self.root)
        own = self._own_pids(family)
        watched = [pid for pid in family if pid not in own]
        busy, stolen = cores_time(_cores(self.root))
        for pid in watched:
            self.switches |= switches(pid)
        return {
            "time": monotonic(),
            "processor": sum(map(cpu_seconds, watched)),
            "ours": sum(map(cpu_seconds, own.union(self.ours))),
            "voluntary": sum(voluntary for voluntary, _ in self.switches.values()),
            "involuntary": sum(involuntary for _, involuntary in self.switches.values()),
            "busy": busy,
            "stolen": stolen,
            "faults": sum(map(major_faults, watched)),
            **_traffic(("read", "written"), map(disk_traffic, watched)),
            **_traffic(("received", "sent"), [network_traffic(self.root)]),
        }


def _traffic(names: tuple[str, str], readings: Iterable[tuple[int, int] | None]) -> dict[str, float]:
    """Sum both directions over processes; nothing if any of them is unknown."""
    totals = list(readings)
    if any(pair is None for pair in totals):
        return {}
    return {name: sum(pair[direction] for pair in totals if pair) for direction, name in enumerate(names)}


def _cores(pid: int) -> set[int]:
    try:
        return os.sched_getaffinity(pid)
    except OSError:
        return set()


def become_sidecar(root: int) -> None:
    """Become a side process: end with the parent, ignore Ctrl-C, keep off the root's cores if possible."""
    end_with_parent()
    # If the reader is gone, end without a traceback in the model's log.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for signal_number in (signal.SIGINT, signal.SIGTERM):  # they are meant for the parent
        signal.signal(signal_number, signal.SIG_IGN)
    with suppress(OSError):
        all_cores = set(range(os.cpu_count() or 1))
        os.sched_setaffinity(0, all_cores - _cores(root) or all_cores)


def serve_commands(
    mark: Callable[[str], None], sample: Callable[[], float], shortest: float = SHORTEST
) -> None:
    """Sample and mark stages as commanded on standard input, until ``stop`` or its end.

    `sample` returns the seconds that it took. The pause between two samples is at least `shortest`.
    """
    pause = shortest
    while True:
        ready, _, _ = select.select([0], [], [], pause)
        if not ready:
            pause = max(shortest, min(LONGEST, sample() / SHARE))
            continue
        line = os.read(0, 4096)
        if not line or line.startswith(b"stop"):
            return
        mark(line.decode().removeprefix("mark ").strip())
        os.write(1, b"ok\n")


def main(arguments: list[str]) -> None:
    """Run the side process; the arguments are the period, the pid to watch and those that belong to us."""
    period, *pids = arguments
    root, *ours = map(int, pids)
    become_sidecar(root)
    witness = ProcessRecorder(root, ours)
    serve_commands(witness.mark, witness.sample_often, max(SHORTEST, float(period)))
    witness.close()
    sys.stdout.write(json.dumps(witness.stages))


if __name__ == "__main__":
    main(sys.argv[1:])

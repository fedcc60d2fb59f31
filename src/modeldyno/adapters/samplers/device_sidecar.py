"""The side process of the sampler ``device``: reads counters and gauges of devices, stage by stage.

It obeys lines as `process_sidecar` does. On the mark ``idle`` it answers only after a second, if any
device tells what it draws: nothing runs meanwhile, and that is the idle floor. Readings come at most ten
times a second (no device knows anything new more often), and so seldom that they take about 1 % of the time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from modeldyno.adapters.samplers import nvidia, rapl
from modeldyno.adapters.samplers.process_sidecar import obey, settle
from modeldyno.environment.process_tree import tree

if TYPE_CHECKING:
    from collections.abc import Sequence

IDLE = "idle"
FLOOR = 1.0
"""Seconds for which the idle floor is watched."""
SHORTEST = 0.1
"""Seconds between two readings at least."""


class Source(Protocol):
    """Devices of one kind."""

    devices: dict[str, dict[str, Any]]
    """What is known of each by its name, such as the period of its counter."""

    def read(self, pids: frozenset[int], /) -> dict[str, dict[str, float]]:
        """Ask all of them; `pids` are the processes of the model."""

    def close(self) -> None:
        """Leave nothing behind."""


class Witness:
    """What was seen of all devices, stage by stage."""

    def __init__(self, sources: Sequence[Source], root: int) -> None:
        """Watch these devices, and what the processes below `root` take of them."""
        self.sources = sources
        self.root = root
        self.stages: list[dict[str, Any]] = []

    def mark(self, stage: str) -> None:
        """Begin a stage; the reading at its beginning belongs to the stage before as well."""
        edge = self._read()
        for last in self.stages[-1:]:
            last["samples"].append(edge)
        self.stages.append({"name": stage, "samples": [edge]})
        if stage == IDLE and any({"energy", "power"} & told.keys() for told in edge["read"].values()):
            until = time.monotonic() + FLOOR
            while time.monotonic() < until:
                time.sleep(SHORTEST)
                self.sample()

    def sample(self) -> float:
        """Read all devices once; give the seconds that it took."""
        begin = time.perf_counter()
        for last in self.stages[-1:]:
            last["samples"].append(self._read())
        return time.perf_counter() - begin

    def seen(self) -> dict[str, Any]:
        """Give the devices and all that was read."""
        devices = {name: facts for source in self.sources for name, facts in source.devices.items()}
        return {"devices": devices, "stages": self.stages}

    def _read(self) -> dict[str, Any]:
        pids = frozenset(tree(self.root))
        told = {name: found for source in self.sources for name, found in source.read(pids).items()}
        return {"time": time.monotonic(), "read": told}


def main(arguments: list[str]) -> None:
    """Watch for the process whose number comes second; first comes the root of the file system."""
    place, pid, *_ = arguments
    settle(int(pid))
    opened = (nvidia.opened(os.environ), rapl.opened(Path(place)))
    sources = [source for source in opened if source is not None]
    witness = Witness(sources, int(pid))
    try:
        obey(witness.mark, witness.sample, SHORTEST)
        witness.sample()
    finally:
        for source in sources:
            source.close()
    sys.stdout.write(json.dumps(witness.seen()))


if __name__ == "__main__":
    main(sys.argv[1:])

"""The side process of the sampler ``device``: reads counters and gauges of devices, stage by stage.

It takes commands as `process_sidecar` does. If any device reports its power, it answers the mark ``idle``
only after a second, to measure the idle power while nothing runs. It reads at most ten times a second (no
device updates more often), and so rarely that reading takes about 1 % of the time.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from modeldyno.base.clock import monotonic, perf_counter, sleep
from modeldyno.base.system.process_tree import list_process_tree
from modeldyno.engine.samplers import nvidia, rapl, triton_metrics
from modeldyno.engine.samplers.process_sidecar import become_sidecar, serve_commands

if TYPE_CHECKING:
    from collections.abc import Sequence

IDLE = "idle"
FLOOR = 1.0
"""Seconds for which the idle power is measured."""
SHORTEST = 0.1
"""Minimum seconds between two readings."""


class Source(Protocol):
    """Devices of one kind."""

    devices: dict[str, dict[str, Any]]
    """Name to static facts, such as the period of its counter."""

    def read(self, pids: frozenset[int], /) -> dict[str, dict[str, float]]:
        """Read all devices; `pids` are the processes of the model."""

    def close(self) -> None:
        """Release the source's resources."""


class DeviceRecorder:
    """Records the readings of all devices, stage by stage."""

    def __init__(self, sources: Sequence[Source], root: int) -> None:
        """Watch these devices, and their use by the processes below `root`."""
        self.sources = sources
        self.root = root
        self.stages: list[dict[str, Any]] = []

    def mark(self, stage: str) -> None:
        """Begin a stage; the reading at its beginning also belongs to the previous stage."""
        edge = self._read()
        for last in self.stages[-1:]:
            last["samples"].append(edge)
        self.stages.append({"name": stage, "samples": [edge]})
        if stage == IDLE and any({"energy", "power"} & reading.keys() for reading in edge["read"].values()):
            deadline = monotonic() + FLOOR
            while monotonic() < deadline:
                sleep(SHORTEST)
                self.sample()

    def sample(self) -> float:
        """Read all devices once; return the seconds that it took."""
        begin = perf_counter()
        for last in self.stages[-1:]:
            last["samples"].append(self._read())
        return perf_counter() - begin

    def report(self) -> dict[str, Any]:
        """Return the devices and all readings."""
        devices = {name: facts for source in self.sources for name, facts in source.devices.items()}
        return {"devices": devices, "stages": self.stages}

    def _read(self) -> dict[str, Any]:
        pids = frozenset(list_process_tree(self.root))
        readings = {name: reading for source in self.sources for name, reading in source.read(pids).items()}
        return {"time": monotonic(), "read": readings}


def main(arguments: list[str]) -> None:
    """Run the side process.

    The arguments are the root of the file system, the pid to watch and the period; or in place of the root,
    the URL of a Triton's metrics, whose devices are read instead of those of this machine.
    """
    place, pid, period = arguments
    become_sidecar(int(pid))
    candidates: tuple[Source | None, ...] = (
        (triton_metrics.TritonDevices(place),)
        if "://" in place
        else (nvidia.open_nvidia_devices(os.environ), rapl.open_rapl_zones(Path(place)))
    )
    sources = [source for source in candidates if source is not None]
    witness = DeviceRecorder(sources, int(pid))
    try:
        serve_commands(witness.mark, witness.sample, max(SHORTEST, float(period)))
        witness.sample()
    finally:
        for source in sources:
            source.close()
    sys.stdout.write(json.dumps(witness.report()))


if __name__ == "__main__":
    main(sys.argv[1:])

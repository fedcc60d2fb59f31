"""Watches the load average of the machine, which it reads once at the end of the timed pass."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from modeldyno.plugin import Better, Measurement, MetricRow, Sampler, Watch, WatchStage, observed_number

METRICS = {
    "load_average": MetricRow(
        name="load_average",
        unit="cores",
        better=Better.NEITHER,
        environmental=True,
        sentence="Processes that wanted a core, in the mean of the last minute.",
    )
}
"""What an entry point of modeldyno.metrics names."""


@dataclass
class LoadAverage:
    """The load average, as it was when the timed pass was over."""

    pids: tuple[int, ...] = ()
    """None: it has no process of its own, which would be left out of the model's."""
    stage: str = WatchStage.IDLE
    read: list[float] = field(default_factory=list)

    def mark(self, stage: str) -> None:
        """Read it when the timed pass ends."""
        if self.stage == WatchStage.TIMED != stage:
            self.read.append(os.getloadavg()[0])
        self.stage = stage

    def stop(self) -> Iterator[Measurement]:
        """Yield what was read; nothing where there was no timed pass."""
        self.mark(WatchStage.PROFILER)
        if self.read:
            yield observed_number("load_average", max(self.read))


class LoadAverageSampler(Sampler):
    """Starts a `LoadAverage`."""

    def start(self, pids: Sequence[int], *, period: float | None = None) -> Watch:
        """Start to watch; the first of the processes is the one that runs the model."""
        return LoadAverage()

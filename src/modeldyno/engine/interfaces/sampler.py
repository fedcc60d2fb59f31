"""What a sampler offers: it watches while others measure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.base.metrics.measurement import Measurement


class Watch(Protocol):
    """A running sampler process."""

    @property
    def pids(self) -> Sequence[int]:
        """The sampler processes, which are excluded from the model's load."""

    def mark(self, stage: str) -> None:
        """Start a stage of `WatchStage`; further samples belong to it.

        It may block: while ``idle`` is marked, the run waits and does nothing else.
        """

    def stop(self) -> Iterable[Measurement | Doubt]:
        """Stop the sampler process and return its measurements."""


class Sampler(Protocol):
    """Samples processes and devices from a separate process."""

    def start(self, pids: Sequence[int], *, period: float | None = None) -> Watch:
        """Start sampling the process tree of the first pid; the others belong to ModelDyno.

        Two samples are at least `period` seconds apart; by default as few as the sampler finds good.
        """


@runtime_checkable
class ReadsServerMetrics(Protocol):
    """A sampler that can read the devices of a server on another machine."""

    def watch_metrics(self, url: str) -> Watch:
        """Start to sample what the server reports at a URL, if it reports any device."""


class EnergyCounters(Protocol):
    """Devices of one kind, and the counters of their energy."""

    devices: dict[str, dict[str, Any]]
    """Name to facts: ``period``, the most seconds between two updates, and ``span``, where it begins anew."""

    def read(self, pids: frozenset[int], /) -> dict[str, dict[str, float]]:
        """Return the readings of each device, ``energy`` among them where it is counted, in joules."""


@runtime_checkable
class HasEnergyCounters(Protocol):
    """A sampler whose counters can be read from this process."""

    def open_counters(self) -> Sequence[EnergyCounters]:
        """Open the counters that can be read; they stay open."""

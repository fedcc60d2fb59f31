"""What a sampler offers: it watches while others measure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

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


class Sampler(ABC):
    """Samples processes and devices from a separate process."""

    @abstractmethod
    def start(self, pids: Sequence[int], *, period: float | None = None) -> Watch:
        """Start sampling the process tree of the first pid; the others belong to ModelDyno.

        Two samples are at least `period` seconds apart; by default as few as the sampler finds good.
        """

    def watch_metrics(self, url: str) -> Watch | None:
        """Start to sample what a server on another machine reports of its devices at a URL.

        None if it cannot.
        """
        return None

    def open_counters(self) -> Sequence[EnergyCounters]:
        """Open the counters of energy that can be read in this process; they stay open."""
        return ()


class EnergyCounters(Protocol):
    """Devices of one kind, and the counters of their energy."""

    devices: dict[str, dict[str, Any]]
    """Name to facts: ``period``, the most seconds between two updates, and ``span``, where it begins anew."""

    def read(self, pids: frozenset[int], /) -> dict[str, dict[str, float]]:
        """Return the readings of each device, ``energy`` among them where it is counted, in joules."""

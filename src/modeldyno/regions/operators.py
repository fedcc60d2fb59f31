"""Operators of the calls of regions, by the profiler of the framework that is loaded."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING

from modeldyno.core.trace.op_events import Occurrence, WatchedCalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.trace.regions import Schedule

MOST_EVENTS = 100_000
"""Events of a region from which on no further call is recorded."""


@dataclass(slots=True)
class RegionOperators:
    """The operators of the kept calls of a region."""

    calls: int = 0
    """All calls so far, recorded or not."""
    kept: int = 0
    occurrences: list[Occurrence] = field(default_factory=list)

    def add(self, occurrences: tuple[Occurrence, ...]) -> None:
        """Add a call."""
        offset = len(self.occurrences)
        self.occurrences += (
            replace(one, call=self.kept, parent=None if one.parent is None else one.parent + offset)
            for one in occurrences
        )
        self.kept += 1

    def watched(self) -> WatchedCalls:
        """Return the kept calls; their times are those of the region."""
        return WatchedCalls(times=(0.0,) * self.kept, occurrences=tuple(self.occurrences))


class OperatorRecorder:
    """Records one call at a time: a call within a recorded one is a range of it."""

    def __init__(self) -> None:
        self.regions: dict[str, RegionOperators] = {}
        self._lock = Lock()
        self._busy = False

    def begin(self, name: str, schedule: Schedule) -> Callable[[], None] | None:
        """Begin to record a call if it is its turn; return what ends it."""
        if "torch" not in sys.modules:
            return None
        with self._lock:
            region = self.regions.setdefault(name, RegionOperators())
            call, inner = region.calls, self._busy
            region.calls += 1
            if not inner and (not schedule.records(call) or len(region.occurrences) >= MOST_EVENTS):
                return None
            self._busy = True
        end = _start(name)

        def stop() -> None:
            occurrences = end()
            if inner:
                return
            with self._lock:
                self._busy = False
                if schedule.keeps(call):
                    region.add(occurrences)

        return stop


def _start(name: str) -> Callable[[], tuple[Occurrence, ...]]:
    from modeldyno import plugins  # noqa: PLC0415 - not needed while no operators are recorded
    from modeldyno.interfaces.backend import RecordsOperators  # noqa: PLC0415

    backend: object = plugins.backend("torch")
    assert isinstance(backend, RecordsOperators)
    return backend.record_operators(name)

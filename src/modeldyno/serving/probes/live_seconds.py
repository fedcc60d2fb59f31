"""Sums up the seconds of a load while it goes on, from the records that the stop rule reads anyway."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from modeldyno.base.result.trace_data import LiveSecond
from modeldyno.serving.load.steady_window import NANO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.stats.statistics import Samples
    from modeldyno.serving.load.request_log import Records
    from modeldyno.serving.loadgen.running_load import LoadProgress

_LATE = 250_000_000
"""Nanoseconds for which records of a second that has passed may still arrive; drivers report ten times a
second."""


class LiveSeconds:
    """The second of a load that goes on, and when the first one began."""

    def __init__(self) -> None:
        self._begin: int | None = None
        self._place = 0
        """Number of the second that is summed up."""
        self._latencies: dict[int, list[Samples]] = {}
        self._failed: dict[int, int] = {}

    def add(self, taken: LoadProgress, now: int) -> Iterator[LiveSecond]:
        """Add what has arrived by `now`, and yield each second that is over.

        `now` is in nanoseconds of the monotonic clock. A record that arrives when its second is over counts
        in the next one.
        """
        records = taken.records
        if self._begin is None:
            self._begin = int(records.due.min()) if len(records) else now
        if len(records):
            self._count(records, self._begin)
        while now >= self._begin + (self._place + 1) / NANO + _LATE:
            yield self._sum_up(taken.in_flight, taken.backlog)
            self._place += 1

    def _count(self, records: Records, begin: int) -> None:
        places = ((records.end - begin) * NANO).astype("int64").clip(min=self._place)
        for place in range(int(places.min()), int(places.max()) + 1):
            here = places == place
            fine = here & records.fine
            self._latencies.setdefault(place, []).append((records.end - records.due)[fine] * NANO)
            self._failed[place] = self._failed.get(place, 0) + int((here & records.failed).sum())

    def _sum_up(self, in_flight: int, waiting: int) -> LiveSecond:
        import numpy as np  # slow to import

        parts = self._latencies.pop(self._place, [])
        times = np.sort(np.concatenate(parts)) if parts else np.empty(0)
        median, late = (max(0, math.ceil(times.size * share) - 1) for share in (0.5, 0.99))
        some = bool(times.size)
        return LiveSecond(
            at=float(self._place),
            answered=int(times.size),
            failed=self._failed.pop(self._place, 0),
            p50=float(times[median]) if some else None,
            p99=float(times[late]) if some else None,
            worst=float(times[-1]) if some else None,
            in_flight=in_flight,
            waiting=waiting,
        )

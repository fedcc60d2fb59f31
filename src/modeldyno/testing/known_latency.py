"""A callable that records how long its calls took: ``call:modeldyno.testing.known_latency:steady``.

Tests compare the profiler's measurements with its record.
"""

from __future__ import annotations

from array import array
from time import sleep

from modeldyno.base.clock import perf_counter_ns


class KnownLatency:
    """Sleeps for a while, or keeps a core busy as long, and records every call."""

    def __init__(self, *durations: float, busy: bool = False) -> None:
        """Cycle through `durations`, in seconds: asleep, as many tests run at once, unless `busy`."""
        self.durations = durations
        self.busy = busy
        self.record = array("q")
        """Nanoseconds of each call, measured from inside."""

    def __call__(self) -> float:
        """Return when the time is over."""
        begin = perf_counter_ns()
        duration = self.durations[len(self.record) % len(self.durations)]
        if not self.busy:
            sleep(duration)
        while (spent := perf_counter_ns() - begin) < 1e9 * duration:
            pass
        self.record.append(spent)
        return 0.0


steady = KnownLatency(0.002)
"""Takes 2 ms."""
busy = KnownLatency(0.002, busy=True)
"""Takes 2 ms of a core."""

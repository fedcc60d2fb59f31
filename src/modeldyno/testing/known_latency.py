"""A callable that records how long its calls took: ``call:modeldyno.testing.known_latency:steady``.

Tests compare the profiler's measurements with its record.
"""

from __future__ import annotations

from array import array
from time import perf_counter_ns


class Spinner:
    """Keeps a core busy for a while, and records every call."""

    def __init__(self, *durations: float) -> None:
        """Cycle through `durations`, in seconds."""
        self.durations = tuple(round(seconds * 1e9) for seconds in durations)
        self.record = array("q")
        """Nanoseconds of each call, measured from inside."""

    def __call__(self) -> float:
        """Spin until the time is over."""
        begin = perf_counter_ns()
        duration = self.durations[len(self.record) % len(self.durations)]
        while (spent := perf_counter_ns() - begin) < duration:
            pass
        self.record.append(spent)
        return 0.0


steady = Spinner(0.002)
"""Takes 2 ms."""
alternating = Spinner(0.001, 0.003)
"""Takes 1 ms and 3 ms alternately."""

"""The clocks that measure: ModelDyno's own, which no test and no model replaces.

A test that freezes time, or a model that sets ``time.perf_counter``, replaces what the module ``time`` holds,
and some libraries replace every reference to it in any module. The functions here are those of another
instance of that module: equally fast, and unknown to them. `system_seconds` is a second clock, of another
system call, that the first is checked against.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from importlib.machinery import BuiltinImporter
from importlib.util import module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import time as _time
else:
    _time = module_from_spec(BuiltinImporter.find_spec("time"))
    BuiltinImporter.exec_module(_time)

monotonic, monotonic_ns = _time.monotonic, _time.monotonic_ns
perf_counter, perf_counter_ns = _time.perf_counter, _time.perf_counter_ns
process_time, process_time_ns = _time.process_time, _time.process_time_ns

sleep = _time.sleep

TICK = 0.01
"""Seconds between two steps of `system_seconds`."""
_times = os.times


def system_seconds() -> float:
    """Return seconds by the system's count of ticks, which stand still while it is suspended, as ours do.

    Always 0 where the system keeps none.
    """
    return _times().elapsed


def thread_seconds() -> dict[int, float]:
    """Return the processor seconds of each thread of Python but this one, by its identity.

    Empty where the system does not tell them.
    """
    seconds: dict[int, float] = {}
    clock_of = getattr(_time, "pthread_getcpuclockid", None)
    if clock_of is None:
        return seconds
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.ident is not None and thread.is_alive():
            with suppress(OSError, OverflowError):
                seconds[thread.ident] = _time.clock_gettime(clock_of(thread.ident))
    return seconds


class WrongClock(Exception):
    """Our own clock does not keep time: it was replaced, or stands still, or jumps."""


_TOLERANCE = 0.05
_SLACK = 0.2
"""Share of the time, and seconds, by which two clocks of a healthy machine may differ."""


class ClockCheck:
    """Compares our clock with the system's from its making on."""

    def __init__(self) -> None:
        """Begin to compare."""
        self._own, self._system, self._before = perf_counter(), system_seconds(), system_seconds()

    def __call__(self, least: float, total: float) -> None:
        """Compare the clocks, and the seconds of the samples that were taken since the last comparison.

        Args:
            least: the smallest of them.
            total: their sum.

        Raises:
            WrongClock: a sample is negative, they are longer than what passed, or they are nothing although
                time passed; or our clock moved otherwise than the system's.
        """
        own, now = perf_counter() - self._own, system_seconds()
        system, since, self._before = now - self._system, now - self._before, now
        if least < 0:
            raise WrongClock(f"a call took {least:.3g} s by the clock that measures")
        if not self._system:
            return
        if total > _SLACK + (1 + _TOLERANCE) * since or (total == 0 and since > _SLACK):
            raise WrongClock(
                f"calls took {total:.3g} s by the clock that measures while {since:.3g} s passed"
            )
        if abs(own - system) > _SLACK + _TOLERANCE * abs(system):
            raise WrongClock(
                f"the clock that measures moved by {own:.3g} s while the system counted {system:.3g} s; "
                "something in this process has replaced it, so that no time can be measured"
            )

"""Find the lines of the user's code in which calls wait that are mostly off the processor.

That a call sleeps, or waits for a lock or an answer, follows from processor time and context switches
(`profiling/findings/bottleneck.py`), but not where it does. So after the timed pass such a call is repeated
for a moment while another thread looks every 2 ms at the line that it is in.
"""

from __future__ import annotations

import resource
import sys
from collections import Counter
from threading import Event, Thread, get_ident
from typing import TYPE_CHECKING

from modeldyno.base.clock import perf_counter, process_time
from modeldyno.base.metrics.measurement import observed_number
from modeldyno.models.static.source_line import is_user_file, short_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from modeldyno.base.metrics.measurement import Measurement

SHORTEST = 0.002
"""Seconds of a call below which its lines are not looked for."""
BUSY = 0.5
"""Share of its time on a processor from which on a call does not wait."""
_PERIOD = 0.002
_LONGEST, _SHARE = 1.0, 0.1
"""Seconds in which calls are repeated at most, and their share of those of a probe; one call always is."""
_LEAST_SHARE = 0.05
"""Share of the time from which on a line is named."""


def wait_times(call: Callable[[], object], max_time: float = 10.0) -> Iterator[Measurement]:
    """Yield the time of a call in each line of the user's code, if calls wait; the longest first.

    Args:
        call: is made once, and if it waits again for a moment.
        max_time: seconds that a probe may measure, of which this takes a tenth.
    """
    if not _waits(call):
        return
    seconds = min(_LONGEST, _SHARE * max_time)
    thread, lines, stop = get_ident(), Counter[str](), Event()

    def look() -> None:
        while not stop.wait(_PERIOD):
            lines[_line(sys._current_frames().get(thread))] += 1

    watcher = Thread(target=look, name="modeldyno-waiting", daemon=True)
    begin, calls = perf_counter(), 0
    watcher.start()
    try:
        while not calls or perf_counter() - begin < seconds:
            call()
            calls += 1
    finally:
        stop.set()
        watcher.join()
    each = (perf_counter() - begin) / calls
    if each < SHORTEST:  # the first call was kept from its core
        return
    for line, samples in lines.most_common():
        share = samples / lines.total()
        if line and share >= _LEAST_SHARE:
            yield observed_number("wait_time", share * each, scope=line)


def _waits(call: Callable[[], object]) -> bool:
    """Return whether a call takes a while and is mostly on no processor, which it gave up by itself."""
    begin, busy, switches = perf_counter(), process_time(), _switches()
    call()
    wall, used = perf_counter() - begin, process_time() - busy
    by_itself, preempted = (after - before for after, before in zip(_switches(), switches, strict=True))
    return wall >= SHORTEST and used < BUSY * wall and by_itself >= max(1, preempted)


def _switches() -> tuple[int, int]:
    """Return the voluntary and involuntary context switches of this thread so far."""
    usage = resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))
    return usage.ru_nvcsw, usage.ru_nivcsw


def _line(frame: FrameType | None) -> str:
    """Return the innermost line of the user's code, such as ``wait.py:13``; empty without one."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    return (
        "" if frame is None else f"{short_path(frame.f_code.co_filename).rpartition('/')[2]}:{frame.f_lineno}"
    )

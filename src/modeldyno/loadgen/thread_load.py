"""Python callables put under a load: each call runs in a thread, as many as may be on their way at once.

For callables that wait for something else, such as a client of a server; the interpreter's lock is theirs.
"""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from threading import Condition, Thread
from typing import TYPE_CHECKING

from modeldyno.core.load.request_log import Outcome, joined
from modeldyno.core.spec.load_spec import pause_after
from modeldyno.loadgen import Ending, Taken, Usage
from modeldyno.loadgen.arrivals import due_times
from modeldyno.loadgen.record_frames import ROW, records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.core.load.request_log import Records
    from modeldyno.core.spec.load_spec import Load

MOST = 64
"""Threads of an open loop that sets no limit."""
_WORDS = (
    (TimeoutError, Outcome.TIMEOUT),
    (ConnectionRefusedError, Outcome.REFUSED),
    (ConnectionError, Outcome.RESET),
)
"""What a call raises, to its outcome, the first that fits; anything else is an error of the caller."""


@contextmanager
def threads(calls: Sequence[Callable[[], object]], load: Load, *, seed: int = 0) -> Iterator[Threads]:
    """Call these, one after the other and again, until the block is left.

    A call cannot be interrupted: one that took longer than the timeout is recorded as such when it ends.
    Nothing is sent again. The threads are daemons: those that never come back keep nobody.
    """
    crowd = Threads(calls, load, seed=seed)
    try:
        crowd.start()
        yield crowd
    finally:
        crowd.leave()


class Threads:
    """Callables under a load, see `loadgen.Driving`."""

    def __init__(self, calls: Sequence[Callable[[], object]], load: Load, *, seed: int = 0) -> None:
        self._calls = calls
        self._closed = load.closed
        self._timeout = int(load.timeout * 1e9)
        self._left = math.inf if load.requests is None else load.requests
        self._times = due_times(load, seed=seed)
        self._schedule = iter(()) if load.closed else due_times(load, seed=seed)
        """The same times, to know which have passed."""
        self._passed = 0
        self._passing: int | None = next(self._schedule, None)
        self._change = Condition()
        self._flying: dict[int, tuple[int, int, int]] = {}
        """Of each thread at work: due, sent, message."""
        self._failures: dict[int, int] = {}
        """Of each thread: calls that failed in a row."""
        self._answered = False
        """Whether any call succeeded yet."""
        self._rows = bytearray()
        self._stopping = False
        self._cpu: dict[int, float] = {}
        self._sent = 0
        self._start = 0
        self._working = load.slots or MOST
        self._requests = self._left
        self._failure = ""

    def start(self) -> None:
        """Begin."""
        self._start = time.monotonic_ns()
        for index in range(self._working):
            Thread(target=self._work, args=(index,), daemon=True).start()

    @property
    def pids(self) -> Sequence[int]:
        """No process of its own."""
        return ()

    def take(self, wait: float) -> Taken:
        """Give what happened in so many seconds, or until all has ended."""
        with self._change:
            self._change.wait_for(lambda: not self._working, wait)
            return Taken(
                records=self._taken(),
                in_flight=len(self._flying),
                backlog=self._backlog(),
                ended=not self._working,
            )

    def usage(self) -> Sequence[Usage]:
        """Give what the threads have cost so far, as one driver."""
        with self._change:
            wall = (time.monotonic_ns() - self._start) / 1e9
            return [Usage(cpu=sum(self._cpu.values()), wall=wall, sent=self._sent, opened=0)]

    def stop(self, grace: float) -> Ending:
        """Call no more, wait for what is on its way, and leave the rest to itself."""
        with self._change:
            unsent = self._backlog()
        self.leave()
        with self._change:
            self._change.wait_for(lambda: not self._flying, grace)
            now = time.monotonic_ns()
            for due, sent, message in self._flying.values():
                self._record(due, sent, now, message, Outcome.CANCELLED)
            self._flying.clear()
            found = self._taken()
        return Ending(
            records=found, replies=(), usages=tuple(self.usage()), unsent=unsent, failure=self._failure
        )

    def leave(self) -> None:
        """Call no more."""
        with self._change:
            self._stopping = True
            self._change.notify_all()

    def _work(self, index: int) -> None:
        """Call what is due, again and again; pause where it fails again and again."""
        end: int | None = None
        while (end := self._one(index, end)) is not None:
            pause = self._pause_of(index) if self._closed else 0.0
            if pause:
                with self._change:
                    self._change.wait_for(lambda: self._stopping, pause)
                end = time.monotonic_ns()
        with self._change:
            self._working -= 1
            self._change.notify_all()

    def _pause_of(self, index: int) -> float:
        return pause_after(self._failures.get(index, 0), answered=self._answered)

    def _one(self, index: int, end: int | None) -> int | None:
        """Wait until a call is due, and make it; give when it ended, or None if there is none to make."""
        with self._change:
            due = self._next(end)
            if due is None or self._change.wait_for(
                lambda: self._stopping, max(0.0, (due - time.monotonic_ns()) / 1e9)
            ):
                return None
            message = self._sent % len(self._calls)
            sent = time.monotonic_ns()
            self._flying[index] = due, sent, message
            self._sent += 1
        outcome = self._outcome(self._calls[message])
        ended = time.monotonic_ns()
        if outcome is Outcome.OK and ended - sent > self._timeout:
            outcome = Outcome.TIMEOUT
        with self._change:
            self._cpu[index] = time.thread_time()
            if self._flying.pop(index, None) is None:  # cancelled meanwhile
                return None
            self._record(due, sent, ended, message, outcome)
            self._answered |= outcome is Outcome.OK
            self._failures[index] = 0 if outcome is Outcome.OK else self._failures.get(index, 0) + 1
            if self._stopping:
                self._change.notify_all()
        return ended

    def _next(self, end: int | None) -> int | None:
        """Give when a thread's next request is due."""
        if self._stopping or self._left <= 0:
            return None
        self._left -= 1
        if self._closed and end is not None:
            return end
        offset = next(self._times, None)
        return None if offset is None else self._start + offset

    def _outcome(self, call: Callable[[], object]) -> Outcome:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever a user's callable raises
            self._failure = self._failure or f"{type(error).__name__}: {error}".rstrip(": ")
            fits = (outcome for kind, outcome in _WORDS if isinstance(error, kind))
            return next(fits, Outcome.CLIENT_ERROR)
        return Outcome.OK

    def _backlog(self) -> int:
        """Count what is due and was not called yet."""
        if self._stopping:
            return 0
        now = time.monotonic_ns() - self._start
        while self._passing is not None and self._passing <= now and self._passed < self._requests:
            self._passed += 1
            self._passing = next(self._schedule, None)
        return max(0, self._passed - self._sent)

    def _record(self, due: int, sent: int, end: int, message: int, outcome: Outcome) -> None:
        self._rows += ROW.pack(due, sent, end, end, 0, message, 0, -1, 0, outcome)

    def _taken(self) -> Records:
        taken, self._rows = bytes(self._rows), bytearray()
        return joined([records(taken, b"", 0)])

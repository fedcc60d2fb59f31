"""Puts Python callables under load: each call runs in a thread, up to the limit of concurrent calls.

For callables that wait for something else, such as a client of a server; they share the interpreter's lock.
"""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from threading import Condition, Thread
from typing import TYPE_CHECKING

from modeldyno.base.clock import monotonic_ns
from modeldyno.base.job.load_spec import pause_after
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.serving.load.request_log import join_records
from modeldyno.serving.loadgen.arrivals import due_times
from modeldyno.serving.loadgen.record_frames import ROW, decode_rows
from modeldyno.serving.loadgen.running_load import DriverUsage, LoadEnd, LoadProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.base.job.load_spec import Load
    from modeldyno.serving.load.request_log import Records

MOST = 64
"""Number of threads of an open loop without a limit."""
_OUTCOMES = (
    (TimeoutError, RequestOutcome.TIMEOUT),
    (ConnectionRefusedError, RequestOutcome.REFUSED),
    (ConnectionError, RequestOutcome.RESET),
)
"""Exception to outcome, the first match; any other exception is a client error."""


@contextmanager
def run_threads(calls: Sequence[Callable[[], object]], load: Load, *, seed: int = 0) -> Iterator[ThreadLoad]:
    """Call these in turn, again and again, until the block is left.

    A call cannot be interrupted: one that exceeds the timeout is recorded as a timeout when it ends. There
    are no retries. The threads are daemons, so a call that never returns does not keep the process alive.
    """
    load_threads = ThreadLoad(calls, load, seed=seed)
    try:
        load_threads.start()
        yield load_threads
    finally:
        load_threads.leave()


class ThreadLoad:
    """Callables under load, see `loadgen.RunningLoad`."""

    def __init__(self, calls: Sequence[Callable[[], object]], load: Load, *, seed: int = 0) -> None:
        self._calls = calls
        self._closed = load.closed
        self._timeout = int(load.timeout * 1e9)
        self._left = math.inf if load.requests is None else load.requests
        self._times = due_times(load, seed=seed)
        self._schedule = iter(()) if load.closed else due_times(load, seed=seed)
        """The same times, to count those that have passed."""
        self._passed = 0
        self._passing: int | None = next(self._schedule, None)
        self._condition = Condition()
        self._in_flight: dict[int, tuple[int, int, int]] = {}
        """Thread to due, sent and message of its current call."""
        self._failures: dict[int, int] = {}
        """Thread to its number of consecutive failures."""
        self._answered = False
        """Whether any call has succeeded yet."""
        self._rows = bytearray()
        self._stopping = False
        self._cpu: dict[int, float] = {}
        self._sent = 0
        self._start = 0
        self._working = load.slots or MOST
        self._requests = self._left
        self._failure = ""

    def start(self) -> None:
        """Start the threads."""
        self._start = monotonic_ns()
        for index in range(self._working):
            Thread(target=self._work, args=(index,), daemon=True).start()

    @property
    def pids(self) -> Sequence[int]:
        """Empty: there are no driver processes."""
        return ()

    def take(self, wait: float) -> LoadProgress:
        """Return what happened within `wait` seconds, or until all calls have ended."""
        with self._condition:
            self._condition.wait_for(lambda: not self._working, wait)
            return LoadProgress(
                records=self._take_records(),
                in_flight=len(self._in_flight),
                backlog=self._backlog(),
                ended=not self._working,
            )

    def usage(self) -> Sequence[DriverUsage]:
        """Return the cost of the threads so far, as one driver."""
        with self._condition:
            wall = (monotonic_ns() - self._start) / 1e9
            return [DriverUsage(cpu=sum(self._cpu.values()), wall=wall, sent=self._sent, opened=0)]

    def stop(self, grace: float) -> LoadEnd:
        """Stop calling, wait for the calls in flight, and abandon the rest."""
        with self._condition:
            unsent = self._backlog()
        self.leave()
        with self._condition:
            self._condition.wait_for(lambda: not self._in_flight, grace)
            now = monotonic_ns()
            for due, sent, message in self._in_flight.values():
                self._record(due, sent, now, message, RequestOutcome.CANCELLED)
            self._in_flight.clear()
            final_records = self._take_records()
        return LoadEnd(
            records=final_records,
            replies=(),
            usages=tuple(self.usage()),
            unsent=unsent,
            failure=self._failure,
        )

    def leave(self) -> None:
        """Stop calling."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()

    def _work(self, index: int) -> None:
        """Make calls when they are due; pause after repeated failures."""
        end: int | None = None
        while (end := self._call_next(index, end)) is not None:
            pause = self._pause_time(index) if self._closed else 0.0
            if pause:
                with self._condition:
                    self._condition.wait_for(lambda: self._stopping, pause)
                end = monotonic_ns()
        with self._condition:
            self._working -= 1
            self._condition.notify_all()

    def _pause_time(self, index: int) -> float:
        return pause_after(self._failures.get(index, 0), answered=self._answered)

    def _call_next(self, index: int, end: int | None) -> int | None:
        """Wait until a call is due, and make it; return when it ended, or None if there are no more."""
        with self._condition:
            due = self._next_due(end)
            if due is None or self._condition.wait_for(
                lambda: self._stopping, max(0.0, (due - monotonic_ns()) / 1e9)
            ):
                return None
            message = self._sent % len(self._calls)
            sent = monotonic_ns()
            self._in_flight[index] = due, sent, message
            self._sent += 1
        outcome = self._outcome(self._calls[message])
        ended = monotonic_ns()
        if outcome is RequestOutcome.OK and ended - sent > self._timeout:
            outcome = RequestOutcome.TIMEOUT
        with self._condition:
            self._cpu[index] = time.thread_time()
            if self._in_flight.pop(index, None) is None:  # cancelled in the meantime
                return None
            self._record(due, sent, ended, message, outcome)
            self._answered |= outcome is RequestOutcome.OK
            self._failures[index] = 0 if outcome is RequestOutcome.OK else self._failures.get(index, 0) + 1
            if self._stopping:
                self._condition.notify_all()
        return ended

    def _next_due(self, end: int | None) -> int | None:
        """Return when a thread's next call is due; None if there are no more."""
        if self._stopping or self._left <= 0:
            return None
        self._left -= 1
        if self._closed and end is not None:
            return end
        offset = next(self._times, None)
        return None if offset is None else self._start + offset

    def _outcome(self, call: Callable[[], object]) -> RequestOutcome:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a user's callable may raise anything
            self._failure = self._failure or f"{type(error).__name__}: {error}".rstrip(": ")
            matches = (outcome for kind, outcome in _OUTCOMES if isinstance(error, kind))
            return next(matches, RequestOutcome.CLIENT_ERROR)
        return RequestOutcome.OK

    def _backlog(self) -> int:
        """Return the number of calls that are due but not made."""
        if self._stopping:
            return 0
        now = monotonic_ns() - self._start
        while self._passing is not None and self._passing <= now and self._passed < self._requests:
            self._passed += 1
            self._passing = next(self._schedule, None)
        return max(0, self._passed - self._sent)

    def _record(self, due: int, sent: int, end: int, message: int, outcome: RequestOutcome) -> None:
        self._rows += ROW.pack(due, sent, end, end, 0, message, 0, -1, 0, 0, 0, outcome)

    def _take_records(self) -> Records:
        rows, self._rows = bytes(self._rows), bytearray()
        return join_records([decode_rows(rows, b"", 0)])

"""The turn token: decides which of several compared processes may measure now.

Each child is connected by two pipes. All start at the same time; once all are ready, each works only while
it holds the token: it loads, makes its first call, and then measures slice by slice, passing the token on
after each, so that what disturbs one side disturbs the other a moment later. The phases of all
passes are numbered: the warm-up and the steady phase of the first pass are 1 and 2. A message of the child is
one byte, the last phase it has finished (0 when it has just started); a grant is one byte, the last phase
that all have finished. The end of the pipe means that the child has gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import sleep
from typing import TYPE_CHECKING, Self

from modeldyno.base.clock import monotonic, perf_counter, process_time
from modeldyno.models.load_stages import WatchStage

if TYPE_CHECKING:
    from modeldyno.base.metrics.stop_rule import Phase
    from modeldyno.base.stats.statistics import Samples

SLICE = 0.3
"""Seconds that a process measures before it passes the token on: short compared with disturbances of the
machine, long compared with the cost of a change."""
_REWARM_TIME = 0.003
"""Seconds of calls, at least one, that are discarded after a change: caches held the other side's data."""
_IDLE_TIMEOUT, _IDLE_POLL = 0.2, 0.002
"""Seconds that threads get to become idle, and seconds between two checks: those of ONNX Runtime spin for
0.05 s after a call, ready for the next one."""
_IDLE_LOAD = 0.1
"""CPU use, in cores, below which the process counts as idle."""
_LAST_PHASE = 255
"""Largest phase number; later phases count as this one."""


@dataclass(slots=True, kw_only=True)
class TurnGranter:
    """The parent's end of the token pipes of one child."""

    grants: int
    asks: int
    child_ends: tuple[int, ...]
    """The child's ends, until it has inherited them."""
    finished_phase: int = 0
    """The last phase that the child has finished."""
    waited: float = 0.0
    """Seconds spent waiting for the child, before the current wait."""
    since: float | None = None
    """When the current wait for the child began; None while another child works."""

    @classmethod
    def create(cls) -> Self:
        """Open both pipes."""
        granted, grants = os.pipe()
        asks, request_end = os.pipe()
        return cls(grants=grants, asks=asks, child_ends=(granted, request_end))

    def close_child_ends(self) -> None:
        """Close the child's ends in the parent."""
        for end in self.child_ends:
            os.close(end)
        self.child_ends = ()

    def clock(self) -> float:
        """Return the seconds spent waiting for the child; the clock stops while another one works."""
        since = self.since
        return self.waited + (0.0 if since is None else monotonic() - since)

    def wait(self) -> None:
        """Wait until the child is ready or has gone."""
        self._await_request()

    def grant(self, finished_phase: int) -> bool:
        """Grant the token and wait until it comes back; return whether the child wants it again."""
        with suppress(BrokenPipeError):
            os.write(self.grants, bytes([finished_phase]))
        message = self._await_request()
        self.finished_phase = message[0] if message else _LAST_PHASE
        return bool(message)

    def close(self) -> None:
        """Close both pipes."""
        self.close_child_ends()  # if the child could not be started
        os.close(self.grants)
        os.close(self.asks)

    def _await_request(self) -> bytes:
        self.since = monotonic()
        message = os.read(self.asks, 1)
        if message:  # otherwise the child is ending, and the wait goes on until it has ended
            waited, self.since = self.clock(), None
            self.waited = waited
        return message


@dataclass(slots=True, kw_only=True)
class TurnWaiter:
    """The child's end of the token pipes: a `modeldyno.engine.interfaces.probe.TurnToken`."""

    granted: int
    request_end: int
    mark: Callable[[WatchStage], None] = field(default=lambda _stage: None)
    """Marks the beginning of a stage for the samplers."""
    number: int = -1
    """Number of the warm-up phase of this pass."""
    done: int = 0
    """The last phase that this child has finished."""
    finished_phase: int = 0
    """The last phase that all have finished."""
    since: float = 0.0
    waited: float = 0.0

    def begin(self) -> None:
        """Report that this child is ready, and wait for its first turn."""
        for end in (self.granted, self.request_end):
            os.set_inheritable(end, False)
        os.write(self.request_end, bytes([self.done]))
        self._await_grant()

    def tells(self, mark: Callable[[WatchStage], None]) -> None:
        """Mark a stage ``waiting`` between those of the timed pass, by `mark`."""
        self.mark = mark

    def in_turns(
        self, draw: Callable[[int], Samples], warming: Callable[[], object] | None = None
    ) -> Callable[[int], Samples]:
        """Begin a pass; return a `draw` that passes the token on between two chunks once a slice is over."""
        self.number = min(_LAST_PHASE - 1, self.number + 2)
        self.done = self.number - 1

        def draw_in_turn(n: int) -> Samples:
            if perf_counter() - self.since >= SLICE:
                self._pass_on(warming)
            return draw(n)

        return draw_in_turn

    def clock(self) -> float:
        """Return monotonic seconds that stop while another process has its turn."""
        return perf_counter() - self.waited

    def agreed(self, phase: Phase) -> bool:
        """Report that this child has finished a phase; return whether all others have, too."""
        self.done = self.number + (phase == "steady")
        return self.finished_phase >= self.done

    def _pass_on(self, warming: Callable[[], object] | None) -> None:
        begin = perf_counter()
        self.mark(WatchStage.WAITING)  # threads that still spin are not part of the timed work
        _wait_until_idle()
        os.write(self.request_end, bytes([self.done]))
        self._await_grant()
        self.mark(WatchStage.TIMED)
        if warming is not None:
            end = perf_counter() + _REWARM_TIME
            warming()
            while perf_counter() < end:
                warming()
        self.since = perf_counter()
        self.waited += self.since - begin

    def _await_grant(self) -> None:
        message = os.read(self.granted, 1)
        # At the end of the pipe no other process is left that could want more.
        self.finished_phase = message[0] if message else _LAST_PHASE
        self.since = perf_counter()


def _wait_until_idle() -> None:
    """Wait until the threads of this process are idle: spinning ones would take a core from the others."""
    now, spent = perf_counter(), process_time()
    end = now + _IDLE_TIMEOUT
    while now < end:
        sleep(_IDLE_POLL)
        before, now, spent_before, spent = now, perf_counter(), spent, process_time()
        if spent - spent_before < _IDLE_LOAD * (now - before):
            return

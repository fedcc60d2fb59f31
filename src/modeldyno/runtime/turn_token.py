"""The baton: who of several processes that are compared may measure now.

Each child has a seat of two pipes. All start at the same time; once every one is there, each works only while
it holds the baton: it loads, makes its first call, and then measures slice by slice, handing the baton on
after each, so that what the machine does to one side it does, a moment later, to the other. The phases of all
passes are numbered: the warm-up and the steady phase of the first pass are 1 and 2. A message of the child is
one byte, the last phase of which it has enough, none when it has just come; a grant is one byte, the last of
which all have. The end of the pipe means that the child has gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, perf_counter, process_time, sleep
from typing import TYPE_CHECKING, Self

from modeldyno.interfaces import WatchStage

if TYPE_CHECKING:
    from modeldyno.core.metrics.stop_rule import Phase
    from modeldyno.core.stats.statistics import Samples

SLICE = 0.3
"""Seconds that a process measures before it hands the baton on: short beside what disturbs a machine, long
beside what the change costs."""
_WARMING = 0.003
"""Seconds of calls that are thrown away after a change, and one call at least: caches were another's."""
_PATIENCE, _GLANCE = 0.2, 0.002
"""Seconds that threads are given to come to rest, and between two looks at them: those of ONNX Runtime spin
for 0.05 s after a call, ready for the next one."""
_RESTING = 0.1
"""Of a core: less is rest."""
_LAST = 255
"""Of the numbers of phases; further ones count as this."""


@dataclass(slots=True, kw_only=True)
class Seat:
    """The parent's end."""

    grants: int
    asks: int
    theirs: tuple[int, ...]
    """The child's ends, until it has them."""
    enough: int = 0
    """The last phase of which the child has enough."""
    held: float = 0.0
    """Seconds for which the child was waited for, before the present time."""
    since: float | None = None
    """When it began to be waited for; None while another is."""

    @classmethod
    def made(cls) -> Self:
        """Open both pipes."""
        granted, grants = os.pipe()
        asks, asked = os.pipe()
        return cls(grants=grants, asks=asks, theirs=(granted, asked))

    def taken(self) -> None:
        """Leave the child's ends to the child."""
        for end in self.theirs:
            os.close(end)
        self.theirs = ()

    def clock(self) -> float:
        """Give the seconds for which the child was waited for: they stand still while another works."""
        since = self.since
        return self.held + (0.0 if since is None else monotonic() - since)

    def wait(self) -> None:
        """Wait until the child is there, or has gone."""
        self._told()

    def grant(self, enough: int) -> bool:
        """Give the baton, and wait until it comes back; say whether the child wants it again."""
        with suppress(BrokenPipeError):
            os.write(self.grants, bytes([enough]))
        told = self._told()
        self.enough = told[0] if told else _LAST
        return bool(told)

    def close(self) -> None:
        """Let go of both pipes."""
        self.taken()  # of a child that could not be started
        os.close(self.grants)
        os.close(self.asks)

    def _told(self) -> bytes:
        self.since = monotonic()
        told = os.read(self.asks, 1)
        if told:  # else it ends, and is waited for until it has
            held, self.since = self.clock(), None
            self.held = held
        return told


@dataclass(slots=True, kw_only=True)
class Held:
    """The child's end: a `modeldyno.interfaces.Baton`."""

    granted: int
    asked: int
    mark: Callable[[WatchStage], None] = field(default=lambda _stage: None)
    """Tells who watches from outside that a stage begins."""
    number: int = -1
    """Of the warm-up of this pass."""
    done: int = 0
    """The last phase of which this child has enough."""
    enough: int = 0
    """The last phase of which all have."""
    since: float = 0.0
    waited: float = 0.0

    def begin(self) -> None:
        """Say that this child is there, and wait for its first turn."""
        for end in (self.granted, self.asked):
            os.set_inheritable(end, False)
        os.write(self.asked, bytes([self.done]))
        self._receive()

    def tells(self, mark: Callable[[WatchStage], None]) -> None:
        """Have a stage ``waiting`` between those of the timed pass."""
        self.mark = mark

    def in_turns(
        self, draw: Callable[[int], Samples], warming: Callable[[], object] | None = None
    ) -> Callable[[int], Samples]:
        """Begin a pass; give a `draw` that hands the baton on between two chunks once a slice is over."""
        self.number = min(_LAST - 1, self.number + 2)
        self.done = self.number - 1

        def drawn(n: int) -> Samples:
            if perf_counter() - self.since >= SLICE:
                self._hand_on(warming)
            return draw(n)

        return drawn

    def clock(self) -> float:
        """Give monotonic seconds that stand still while another has its turn."""
        return perf_counter() - self.waited

    def agreed(self, phase: Phase) -> bool:
        """Say that there is enough of a phase; tell whether the others have enough of it, too."""
        self.done = self.number + (phase == "steady")
        return self.enough >= self.done

    def _hand_on(self, warming: Callable[[], object] | None) -> None:
        begin = perf_counter()
        self.mark(WatchStage.WAITING)  # what still spins is no part of what is timed
        _rest()
        os.write(self.asked, bytes([self.done]))
        self._receive()
        self.mark(WatchStage.TIMED)
        if warming is not None:
            end = perf_counter() + _WARMING
            warming()
            while perf_counter() < end:
                warming()
        self.since = perf_counter()
        self.waited += self.since - begin

    def _receive(self) -> None:
        told = os.read(self.granted, 1)
        self.enough = told[0] if told else _LAST  # nobody is there any more who could want more
        self.since = perf_counter()


def _rest() -> None:
    """Wait until the threads of this process rest: those that still spin would take a core from the other."""
    now, spent = perf_counter(), process_time()
    end = now + _PATIENCE
    while now < end:
        sleep(_GLANCE)
        before, now, spent_before, spent = now, perf_counter(), spent, process_time()
        if spent - spent_before < _RESTING * (now - before):
            return

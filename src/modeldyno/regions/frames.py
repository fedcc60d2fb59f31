"""Calls of named regions while they run: whose clock runs, and which lies within which.

A frame's clock runs only while its code does: a generator or a coroutine is stopped where it hands over and
goes on where it is resumed. What lies within what is kept in a context variable, so each task of asyncio
has its own nesting, and each thread too. A frame that another task or thread began is nobody's parent here,
though the context was copied from there: the two run side by side.
"""

from __future__ import annotations

import sys
from threading import get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextvars import ContextVar

    from modeldyno.core.trace.regions import Sizes
    from modeldyno.regions.memory_meters import Level


class Frame:
    """One call of a region."""

    # Defaults of the class, as most calls change few of them: making a frame is part of what a call costs.
    began: int | None = None
    """Nanoseconds; None while the clock does not run."""
    spent = 0
    outermost = 0
    """Nanoseconds while no other call of the same region was around it."""
    nested = 0
    """Nanoseconds in frames directly within."""
    nested_calls = 0
    parent: Frame | None = None
    owner: object = None
    path: tuple[str, ...] = ()
    """The distinct regions around this one, and itself."""
    inner: tuple[Frame, ...] = ()
    """Frames that were open within this one when it was suspended, the outermost first."""
    levels: dict[str, Level] | None = None
    """Memory when the clock was started last, by place, where it is watched."""
    sizes: dict[str, Sizes] | None = None
    """What was done to memory before."""

    def __init__(self, name: str) -> None:
        self.name = name

    def enter(self, current: ContextVar[Frame | None]) -> None:
        """Take a place in the nesting: that of the call, or of a resumption, which may lie elsewhere."""
        owner = running()
        parent = current.get()
        if parent is None or parent.began is None or parent.owner != owner:
            self.parent = None
            self.path = (self.name,)
        else:
            self.parent = parent
            self.path = parent.path if self.name in parent.path else (*parent.path, self.name)
        self.owner = owner
        current.set(self.inner[-1] if self.inner else self)

    def start(self, now: int) -> None:
        """Let the clock run, and those of the frames that were open within."""
        self.began = now
        if self.inner:
            for frame in self.inner:
                frame.began, frame.owner = now, self.owner
            self.inner = ()

    def stop(self, now: int) -> None:
        """Stop the clock, and tell the time to the frame around this one."""
        if self.began is None:
            return
        taken = now - self.began
        self.began = None
        self.spent += taken
        parent = self.parent
        if parent is not None:
            parent.nested += taken
        if parent is None or self.name not in parent.path:
            self.outermost += taken

    def leave_out(self, time: int) -> None:
        """Let the clocks of the frames around this one stand still for a while that is none of theirs."""
        frame = self.parent
        while frame is not None and frame.began is not None:
            frame.began += time
            frame = frame.parent

    def suspend(self, now: int, current: ContextVar[Frame | None]) -> None:
        """Stop the clock, and those of the frames that are open within; give up the place."""
        within: list[Frame] = []
        frame = current.get()
        while frame is not None and frame is not self:
            within.append(frame)
            frame = frame.parent
        if frame is self:
            for each in within:
                each.stop(now)
            self.inner = tuple(reversed(within))
        self.stop(now)
        current.set(self.parent)


def running() -> object:
    """Tell who runs here: the task of asyncio, or else the thread."""
    asyncio = sys.modules.get("asyncio.events")
    if asyncio is not None and (loop := asyncio._get_running_loop()) is not None:  # noqa: SLF001 - exported there
        task: object = sys.modules["asyncio.tasks"].current_task(loop)
        if task is not None:
            return task
    return get_ident()

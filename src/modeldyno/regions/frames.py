"""Open calls of named regions: which clocks run, and which call is nested in which.

A frame's clock runs only while its code does: a generator or a coroutine stops where it yields and continues
where it is resumed. The nesting is kept in a context variable, so each asyncio task and each thread has its
own. A frame that another task or thread began is no parent here, even if the context was copied from there:
the two run concurrently.
"""

from __future__ import annotations

import sys
from threading import get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import ContextVar

    from modeldyno.core.trace.regions import RegionMemory
    from modeldyno.regions.memory_meters import MemoryLevel


class Frame:
    """One call of a region."""

    # Defaults of the class, as most calls change few of them: creating a frame is part of a call's cost.
    began: int | None = None
    """Nanoseconds; None while the clock does not run."""
    spent = 0
    outermost = 0
    """Nanoseconds during which no other call of the same region was around it."""
    nested = 0
    """Nanoseconds in frames directly nested."""
    nested_calls = 0
    parent: Frame | None = None
    owner: object = None
    path: tuple[str, ...] = ()
    """The distinct regions around this one, followed by itself."""
    inner: tuple[Frame, ...] = ()
    """Frames that were open within this one when it was suspended, outermost first."""
    levels: dict[str, MemoryLevel] | None = None
    """Memory when the clock was last started, by place, if memory is watched."""
    end_operators: Callable[[], None] | None = None
    """Ends the recording of operators, if they are recorded."""
    joules: dict[str, float] | None = None
    """Counters of energy when the clock was last started, if energy is watched."""
    drawn: dict[str, float] | None = None
    """Joules so far, by device."""
    sizes: dict[str, RegionMemory] | None = None
    """Memory changes so far, by place."""

    def __init__(self, name: str) -> None:
        self.name = name

    def enter(self, current: ContextVar[Frame | None]) -> None:
        """Enter the nesting of the caller, or of a resumption, which may be elsewhere."""
        self.owner = owner = current_task()
        parent = current.get()
        if parent is None or parent.began is None or parent.owner != owner:
            self.parent = None
            self.path = (self.name,)
        else:
            self.parent = parent
            self.path = parent.path if self.name in parent.path else (*parent.path, self.name)
        current.set(self.inner[-1] if self.inner else self)

    def start(self, now: int) -> None:
        """Start the clock, and those of the frames that were open within."""
        self.began = now
        if self.inner:
            for frame in self.inner:
                frame.began, frame.owner = now, self.owner
            self.inner = ()

    def stop(self, now: int) -> None:
        """Stop the clock, and add its time to the frame around this one."""
        began = self.began
        if began is None:
            return
        elapsed = now - began
        self.began = None
        self.spent += elapsed
        parent = self.parent
        if parent is not None:
            parent.nested += elapsed
        if parent is None or self.name not in parent.path:
            self.outermost += elapsed

    def exclude(self, time: int) -> None:
        """Exclude a time span from the clocks of the frames around this one."""
        frame = self.parent
        while frame is not None and frame.began is not None:
            frame.began += time
            frame = frame.parent

    def suspend(self, now: int, current: ContextVar[Frame | None]) -> None:
        """Stop the clock, and those of the frames open within, and leave the nesting."""
        within: list[Frame] = []
        frame = current.get()
        while frame is not None and frame is not self:
            within.append(frame)
            frame = frame.parent
        if frame is self:
            for inner in within:
                inner.stop(now)
            self.inner = tuple(reversed(within))
        self.stop(now)
        current.set(self.parent)


def current_task() -> object:
    """Return the current asyncio task, or else the thread id."""
    asyncio = sys.modules.get("asyncio.events")
    if asyncio is not None and (loop := asyncio._get_running_loop()) is not None:  # noqa: SLF001 - exported there
        task: object = sys.modules["asyncio.tasks"].current_task(loop)
        if task is not None:
            return task
    return get_ident()

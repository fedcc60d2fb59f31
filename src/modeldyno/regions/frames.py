"""Open calls of named regions: which clocks run, and which call is nested in which.

A frame's clock runs only while its code does: a generator or a coroutine stops where it yields and continues
where it is resumed. The innermost open call is kept in a context variable, by thread or asyncio task: what
inherited the context of another one runs beside it, and is not within its calls.
"""

from __future__ import annotations

import sys
from threading import get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import ContextVar

    from modeldyno.engine.trace.regions import RegionMemory
    from modeldyno.regions.memory_meters import MemoryLevel


_MODULES = sys.modules


class Nesting:
    """The open calls of a thread or of an asyncio task."""

    __slots__ = ("owner", "top")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.top: Frame | None = None
        """The innermost one; those around it are its parents, of which some may have ended."""


class FrameWatch:
    """What is recorded of a call beside its time."""

    __slots__ = ("drawn", "end_operators", "joules", "levels", "sizes")

    def __init__(self) -> None:
        self.levels: dict[str, MemoryLevel] | None = None
        """Memory when the clock was last started, by place, if memory is watched."""
        self.sizes: dict[str, RegionMemory] = {}
        """Memory changes so far, by place."""
        self.end_operators: Callable[[], None] | None = None
        """Ends the recording of operators, if they are recorded."""
        self.joules: dict[str, float] | None = None
        """Counters of energy when the clock was last started, if energy is watched."""
        self.drawn: dict[str, float] | None = None
        """Joules so far, by device."""


class Frame:
    """One call of a region; `new_frame` makes it, as calling `__init__` would take longer than that."""

    __slots__ = (
        "began", "inner", "mark", "name", "nested", "nested_calls", "nesting", "outermost", "parent", "path",
        "spent", "watched",
    )  # fmt: skip
    name: str
    mark: Any
    """What the region was marked with."""
    began: int | None
    """Nanoseconds; None while the clock does not run."""
    spent: int
    outermost: int
    """Nanoseconds during which no other call of the same region was around it."""
    nested: int
    """Nanoseconds in frames directly nested."""
    nested_calls: int
    nesting: Nesting
    """That of the thread or task in which the clock was last started."""
    parent: Frame | None
    path: tuple[str, ...]
    """The distinct regions around this one, followed by itself."""
    inner: tuple[Frame, ...]
    """Frames that were open within this one when it was suspended, outermost first."""
    watched: FrameWatch | None

    def enter(self, current: ContextVar[Nesting | None]) -> None:
        """Enter the nesting of the caller, or of a resumption, which may be elsewhere."""
        events = _MODULES.get("asyncio.events")
        loop = None if events is None else events._get_running_loop()
        owner = get_ident() if loop is None else _current_task(loop)
        nesting = current.get()
        if nesting is None or nesting.owner != owner:
            nesting = Nesting(owner)
            current.set(nesting)
        name, parent = self.name, nesting.top
        while parent is not None and parent.began is None:
            parent = parent.parent
        if parent is None:
            self.path = (name,)
        else:
            self.path = parent.path if name in parent.path else (*parent.path, name)
        self.parent = parent
        self.nesting = nesting
        nesting.top = self.inner[-1] if self.inner else self

    def start(self, now: int) -> None:
        """Start the clock, and those of the frames that were open within."""
        self.began = now
        if self.inner:
            for frame in self.inner:
                frame.began, frame.nesting = now, self.nesting
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

    def suspend(self, now: int) -> None:
        """Stop the clock, and those of the frames open within, and leave the nesting."""
        within: list[Frame] = []
        frame = self.nesting.top
        while frame is not None and frame is not self:
            within.append(frame)
            frame = frame.parent
        if frame is self:
            for inner in within:
                inner.stop(now)
            self.inner = tuple(reversed(within))
        self.stop(now)
        self.nesting.top = self.parent


def new_frame(name: str, mark: Any) -> Frame:
    """Return a frame whose clock has never run."""
    frame = Frame()
    frame.name = name
    frame.mark = mark
    frame.began = frame.watched = None
    frame.spent = frame.outermost = frame.nested = frame.nested_calls = 0
    frame.inner = ()
    return frame


def _current_task(loop: Any) -> object:
    """Return the task that a loop runs, or else the thread."""
    task: object = _MODULES["asyncio.tasks"].current_task(loop)
    return get_ident() if task is None else task

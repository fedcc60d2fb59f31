"""The measured region of a run: only here is the device measured, so that only here it need be held.

The child loads, compiles, and makes its first call beside whatever else uses the device. Before the timed
pass it says on its event stream that measuring begins, and waits for one byte; the parent sends it once its
guard is entered, which for a worker is: the device is idle, and its lock is held. After the pass the child
says that measuring has ended, and the guard is left. A guard that raises ends the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass

from modeldyno.base.result.result import Event, MeasuringBegan, MeasuringEnded

Region = Callable[[], AbstractContextManager[object]]
"""Gives the block within which the device is measured."""
_GO = b"\x01"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRegion:
    """The child's side: a `Region` that asks the parent."""

    tell: Callable[[Event], None]
    granted: int
    """Where the parent's byte is read."""

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Wait until the parent lets this process measure; say at the end of the block that it has."""
        self.tell(MeasuringBegan())
        os.read(self.granted, 1)  # if the parent is gone, the reaper ends this process
        try:
            yield
        finally:
            self.tell(MeasuringEnded())


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionGate:
    """The parent's side: it holds a guard while the child measures."""

    guard: Region
    theirs: int
    """The child's end of the pipe."""
    grants: int
    held: ExitStack
    """The guard, while the child measures."""

    @classmethod
    @contextmanager
    def opened(cls, guard: Region) -> Iterator[RegionGate]:
        """Open the pipe during the block; whatever is held at its end is left."""
        theirs, grants = os.pipe()
        with ExitStack() as held:  # the guard is left first: what comes later is on top
            held.callback(os.close, theirs)
            held.callback(os.close, grants)
            guarded = held.enter_context(ExitStack())
            yield cls(guard=guard, theirs=theirs, grants=grants, held=guarded)

    def follow(self, event: Event) -> None:
        """Enter the guard when the child begins to measure, and leave it when it has ended.

        Raises:
            ModelDynoError: what the guard raises; the child must not measure.
        """
        if isinstance(event, MeasuringBegan):
            self.held.enter_context(self.guard())
            with suppress(BrokenPipeError):
                os.write(self.grants, _GO)
        elif isinstance(event, MeasuringEnded):
            self.held.close()

"""Count Ctrl-C, and on the command line SIGTERM, instead of raising KeyboardInterrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived while nothing was being measured."""


@dataclass(slots=True)
class _Termination:
    """How this process treats SIGTERM; global state, as signal handlers are."""

    taken: bool = False
    """Whether it counts as an interruption."""
    received: bool = False


_TERMINATION = _Termination()


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM as an interruption until the end of the block, so that measurements are saved.

    For our own command line only; a library leaves signals to the program that uses it. Outside the main
    thread this does nothing, as handlers cannot be set there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _raise_terminated)
    _TERMINATION.taken, _TERMINATION.received = True, False
    try:
        yield
    finally:
        _TERMINATION.taken = _TERMINATION.received = False
        signal.signal(signal.SIGTERM, before)


def sigterm_received() -> bool:
    """Return whether SIGTERM arrived while it counts as an interruption: its sender will not wait long."""
    return _TERMINATION.received


def _raise_terminated(_number: int, _frame: FrameType | None) -> None:
    _TERMINATION.received = True
    raise Terminated


@contextmanager
def counted_interrupts(patience: int | None = None) -> Iterator[list[int]]:
    """Yield a list that grows with each Ctrl-C; outside the main thread it stays empty.

    Args:
        patience: number after which KeyboardInterrupt is raised as usual; None for never.
    """
    interrupts: list[int] = []

    def count(number: int, _frame: FrameType | None) -> None:
        interrupts.append(number)
        _TERMINATION.received |= number == signal.SIGTERM
        if patience is not None and len(interrupts) > patience:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    numbers = (signal.SIGINT, signal.SIGTERM) if _TERMINATION.taken else (signal.SIGINT,)
    before = {number: signal.signal(number, count) for number in numbers}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class ForcedInterrupts:
    """Interruptions as one of several measurements counts them: it ignores the first, but not SIGTERM."""

    interrupted: Callable[[], int]
    """How often the user has interrupted so far."""

    def __len__(self) -> int:
        """Return 0 until the second interruption or SIGTERM, then the count."""
        count = int(self.interrupted())
        return count if count > 1 or sigterm_received() else 0

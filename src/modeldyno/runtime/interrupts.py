"""Ctrl-C, and for the command line SIGTERM, counted instead of raised."""

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
    """SIGTERM came where nothing is being measured."""


@dataclass(slots=True)
class _Termination:
    """What this process does about SIGTERM: one fact of the whole process, as signals are."""

    taken: bool = False
    """Whether it is taken for an interruption."""
    received: bool = False


_TERMINATION = _Termination()


@contextmanager
def terminable() -> Iterator[None]:
    """Take SIGTERM for an interruption until the end of the block: what was measured is saved.

    It is for a program of our own to decide; a library leaves the signal to the program that uses it. Outside
    the main thread signals are not ours to take.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _raise)
    _TERMINATION.taken, _TERMINATION.received = True, False
    try:
        yield
    finally:
        _TERMINATION.taken = _TERMINATION.received = False
        signal.signal(signal.SIGTERM, before)


def told_to_end() -> bool:
    """Say whether SIGTERM came while it is taken for an interruption: who sent it does not wait for long."""
    return _TERMINATION.received


def _raise(_number: int, _frame: FrameType | None) -> None:
    _TERMINATION.received = True
    raise Terminated


@contextmanager
def counted_interrupts(patience: int | None = None) -> Iterator[list[int]]:
    """Give a list that grows with each Ctrl-C; outside the main thread signals are not ours to take.

    Args:
        patience: after so many, raise KeyboardInterrupt as usual; None never does.
    """
    seen: list[int] = []

    def count(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        _TERMINATION.received |= number == signal.SIGTERM
        if patience is not None and len(seen) > patience:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    numbers = (signal.SIGINT, signal.SIGTERM) if _TERMINATION.taken else (signal.SIGINT,)
    before = {number: signal.signal(number, count) for number in numbers}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class Insisted:
    """The interruptions as one of several measurements sees them: the first lets it come to its own end.

    SIGTERM does not.
    """

    interrupted: Callable[[], int]
    """How often the user has interrupted so far."""

    def __len__(self) -> int:
        """Give none, or from the second on all."""
        count = int(self.interrupted())
        return count if count > 1 or told_to_end() else 0

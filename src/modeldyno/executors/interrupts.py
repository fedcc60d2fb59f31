"""Ctrl-C, counted instead of raised."""

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


@contextmanager
def counted_interrupts(patience: int | None = None) -> Iterator[list[int]]:
    """Give a list that grows with each Ctrl-C; outside the main thread signals are not ours to take.

    Args:
        patience: after so many, raise KeyboardInterrupt as usual; None never does.
    """
    seen: list[int] = []

    def count(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        if patience is not None and len(seen) > patience:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    before = signal.signal(signal.SIGINT, count)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(frozen=True, slots=True)
class Insisted:
    """The interruptions as one of several measurements sees them: the first lets it come to its own end."""

    interrupted: Callable[[], int]
    """How often the user has interrupted so far."""

    def __len__(self) -> int:
        """Give none, or from the second on all."""
        count = int(self.interrupted())
        return count if count > 1 else 0

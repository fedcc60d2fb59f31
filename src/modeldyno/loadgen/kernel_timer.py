"""A timer that is finer than the event loop's, whose timers are rounded to milliseconds.

On Linux the kernel's own timer wakes the loop by a file descriptor; elsewhere the loop's timer is used up to
the last millisecond, which is then spent waiting.
"""

from __future__ import annotations

import ctypes
import os
import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_SECOND = 1_000_000_000
_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1


class Timer(Protocol):
    """Rings once at the time that was set last."""

    def set(self, when: int) -> None:
        """Ring at this time of the monotonic clock, nanoseconds; one that has passed rings at once."""

    def close(self) -> None:
        """Ring no more."""


def timer(loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> Timer:
    """Make the finest timer that there is here."""
    kernel = sys.platform.startswith("linux")
    return KernelTimer(loop, ring) if kernel else LoopTimer(loop, ring)


class _Spec(ctypes.Structure):
    """``struct itimerspec``: the period, which is none, and the time."""

    _fields_ = (
        ("period_seconds", ctypes.c_long), ("period_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long),
    )  # fmt: skip


class KernelTimer:
    """A timerfd."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self._set = library.timerfd_settime
        self._loop = loop
        self._ring = ring
        self._armed = False
        self._spec = _Spec()
        self._reference = ctypes.byref(self._spec)
        self._fd: int = library.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "the kernel has no timer for us")
        loop.add_reader(self._fd, self._expired)

    def set(self, when: int) -> None:
        """Ring at this time."""
        # Zero would switch it off.
        self._spec.seconds, self._spec.nanoseconds = divmod(max(when, 1), _SECOND)
        self._armed = True
        self._set(self._fd, _ABSOLUTE, self._reference, None)

    def _expired(self) -> None:
        self._armed = False
        self._ring()
        if not self._armed and self._fd >= 0:  # the descriptor stays loud until the timer is set, or off
            self._spec.seconds = self._spec.nanoseconds = 0
            self._set(self._fd, _ABSOLUTE, self._reference, None)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


_COARSE = 0.0015
"""Seconds before the time at which the loop's timer is no longer trusted."""


class LoopTimer:
    """The loop's timer, and turning in a circle at the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._when = 0
        self._handle: asyncio.Handle | None = None

    def set(self, when: int) -> None:
        """Ring at this time."""
        self.close()
        self._when = when
        self._handle = self._loop.call_later(
            max(0.0, (when - monotonic_ns()) / _SECOND - _COARSE), self._turn
        )

    def _turn(self) -> None:
        if monotonic_ns() < self._when:
            self._handle = self._loop.call_soon(self._turn)
        else:
            self._handle = None
            self._ring()

    def close(self) -> None:
        """Ring no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

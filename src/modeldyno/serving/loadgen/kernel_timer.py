"""A timer that is finer than the event loop's, which rounds to milliseconds.

On Linux a kernel timer wakes the loop through a file descriptor; on other systems the loop's timer is used up
to the last millisecond, which is spent polling.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING, Protocol

from modeldyno.base.clock import monotonic_ns

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_SECOND = 1_000_000_000
_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1


class Timer(Protocol):
    """Calls back once, at the time that was set last."""

    def set(self, when: int) -> None:
        """Call back at this time of the monotonic clock, nanoseconds; immediately if it has passed."""

    def close(self) -> None:
        """Cancel the timer."""


def make_timer(loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> Timer:
    """Return the finest timer of this system."""
    kernel = sys.platform.startswith("linux")
    return KernelTimer(loop, ring) if kernel else LoopTimer(loop, ring)


class _Spec(ctypes.Structure):
    """``struct itimerspec``: the period, which is zero, and the time."""

    _fields_ = (
        ("period_seconds", ctypes.c_long), ("period_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long),
    )  # fmt: skip


class KernelTimer:
    """A timer on Linux's timerfd."""

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
            raise OSError(ctypes.get_errno(), "the kernel cannot create a timer")
        loop.add_reader(self._fd, self._expired)

    def set(self, when: int) -> None:
        """Call back at this time."""
        # Zero would disarm it.
        self._spec.seconds, self._spec.nanoseconds = divmod(max(when, 1), _SECOND)
        self._armed = True
        self._set(self._fd, _ABSOLUTE, self._reference, None)

    def _expired(self) -> None:
        self._armed = False
        self._ring()
        if (
            not self._armed and self._fd >= 0
        ):  # the descriptor stays readable until the timer is set or disarmed
            self._spec.seconds = self._spec.nanoseconds = 0
            self._set(self._fd, _ABSOLUTE, self._reference, None)

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


_COARSE = 0.0015
"""Seconds before the due time at which polling starts, since the loop's timer is coarse."""


class LoopTimer:
    """A timer on the loop's timer, with polling at the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._when = 0
        self._handle: asyncio.Handle | None = None

    def set(self, when: int) -> None:
        """Call back at this time."""
        self.close()
        self._when = when
        self._handle = self._loop.call_later(
            max(0.0, (when - monotonic_ns()) / _SECOND - _COARSE), self._poll
        )

    def _poll(self) -> None:
        if monotonic_ns() < self._when:
            self._handle = self._loop.call_soon(self._poll)
        else:
            self._handle = None
            self._ring()

    def close(self) -> None:
        """Cancel the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

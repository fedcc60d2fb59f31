"""Flags that control flow reads but that are not computed: assumed false, reconsidered after an error."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

CallSite = tuple[tuple[CodeType, int], ...]
"""Where a program asks: the call stack, each frame as its code and instruction."""
_MAX_RECONSIDERED = 32


class AssumedFlags:
    """Assumed answers: false, unless an error followed when the same place asked before."""

    def __init__(self) -> None:
        """Assume false for all."""
        self._true: set[CallSite] = set()
        self._last_asked: CallSite | None = None

    def answer(self) -> bool:
        """Return the assumed flag for the calling place."""
        self._last_asked = _call_site()
        return self._last_asked in self._true

    def reconsider(self) -> bool:
        """Assume true for the flag that was read last; return whether that is new."""
        site, self._last_asked = self._last_asked, None
        if site is None or site in self._true or len(self._true) == _MAX_RECONSIDERED:
            return False
        self._true.add(site)
        return True


def _call_site() -> CallSite:
    """Return the call stack; layers that one loop calls are at the same place."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - no public name
    calls: list[tuple[CodeType, int]] = []
    while frame is not None:
        calls.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(calls)

"""Flags that a program asks for and that are not computed: made up, and reconsidered where one is refused."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

Where = tuple[tuple[CodeType, int], ...]
"""From where in a program something is asked: the calls that lead there, each as code and its instruction."""
_MOST_RECONSIDERED = 32


class Flags:
    """Answers that are made up: false, unless an error followed when the same was asked at the same place."""

    def __init__(self) -> None:
        """Take each for false."""
        self._true: set[Where] = set()
        self._asked: Where | None = None

    def answer(self) -> bool:
        """Make up the flag that the caller is asked for."""
        self._asked = _where()
        return self._asked in self._true

    def reconsider(self) -> bool:
        """Take the flag that was made up last for true from now on; say whether that is new."""
        asked, self._asked = self._asked, None
        if asked is None or asked in self._true or len(self._true) == _MOST_RECONSIDERED:
            return False
        self._true.add(asked)
        return True


def _where() -> Where:
    """Say where a program is; layers that one loop calls are at the same place."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - no public name
    calls: list[tuple[CodeType, int]] = []
    while frame is not None:
        calls.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(calls)

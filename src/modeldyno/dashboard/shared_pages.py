"""Pages that several ask for at about the same time are made once.

Each page is made anew from the store; but those who ask for one while it is being made, or a moment later,
are given what was made, unless the store is known to have changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_Page = TypeVar("_Page")

MOMENT = 0.25
"""Seconds for which a page is shown to others as well."""


@dataclass(slots=True)
class _Made(Generic[_Page]):
    page: _Page
    mark: str
    at: float


@dataclass(slots=True)
class SharedPages(Generic[_Page]):
    """The pages of this moment, by what was asked for; used from one event loop."""

    mark: Callable[[], str]
    """Returns the mark of the last change of the store that is known, without looking."""
    moment: float = MOMENT
    clock: Callable[[], float] = time.monotonic
    _made: dict[object, _Made[_Page]] = field(default_factory=dict)
    _making: dict[object, asyncio.Lock] = field(default_factory=dict)
    _writes: int = 0

    async def page(self, key: object, make: Callable[[], Awaitable[_Page]]) -> _Page:
        """Return a page that was made a moment ago, or make it; one at a time is made of each."""
        if (made := self._of_this_moment(key)) is not None:
            return made.page
        lock = self._making.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                if (made := self._of_this_moment(key)) is not None:
                    return made.page
                writes, mark, at = self._writes, self.mark(), self.clock()
                page = await make()
                if writes == self._writes:
                    # Its moment begins when the store was read, but others who waited for it are given it.
                    self._made[key] = _Made(page=page, mark=mark, at=max(at, self.clock() - self.moment / 2))
                return page
        finally:
            if not lock.locked():
                self._making.pop(key, None)
            self._forget_old_ones()

    def forget(self) -> None:
        """Forget all pages, also those that are being made: something was written here."""
        self._writes += 1
        self._made.clear()

    def _of_this_moment(self, key: object) -> _Made[_Page] | None:
        made = self._made.get(key)
        return made if made is not None and self._is_new(made) else None

    def _is_new(self, made: _Made[_Page]) -> bool:
        return made.mark == self.mark() and self.clock() - made.at < self.moment

    def _forget_old_ones(self) -> None:
        for key in [key for key, made in self._made.items() if not self._is_new(made)]:
            del self._made[key]

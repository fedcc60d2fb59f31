"""Pages that several ask for at about the same time are made once.

Each page is made anew from the store; but those who ask for one while it is being made, or a moment later,
are given what was made, unless the store is known to have changed. While it changes all the time, whoever
does not follow it is given what was made within the last second, and the page is made anew behind him.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from modeldyno.base.clock import monotonic

_Page = TypeVar("_Page")

MOMENT = 0.25
"""Seconds for which a page is shown to others as well."""
_MOMENTS = 4.0
"""Moments for which a page is shown while it is made anew."""
_TIMES = 3.0
"""As many times as long as it took to make it, if that is longer: a machine that is slow has others to do."""


@dataclass(slots=True)
class _Made(Generic[_Page]):
    page: _Page
    mark: str
    at: float
    took: float


@dataclass(slots=True)
class SharedPages(Generic[_Page]):
    """The pages of this moment, by what was asked for; used from one event loop."""

    mark: Callable[[], str]
    """Returns the mark of the last change of the store that is known, without looking."""
    moment: float = MOMENT
    clock: Callable[[], float] = monotonic
    _made: dict[object, _Made[_Page]] = field(default_factory=dict)
    _making: dict[object, asyncio.Task[_Page]] = field(default_factory=dict)
    _writes: int = 0

    async def page(self, key: object, make: Callable[[], Awaitable[_Page]], *, newest: bool = False) -> _Page:
        """Return a page that was made a moment ago, or make it; one at a time is made of each.

        With `newest` it is from after the last change of the store that is known.
        """
        made = self._made.get(key)
        if made is not None and made.mark == self.mark() and self.clock() - made.at < self.moment:
            return made.page
        making = self._making.get(key)
        if making is None:
            making = asyncio.create_task(self._make(key, make))
            self._making[key] = making
            making.add_done_callback(_look_at)
        if made is not None and not newest and self._may_be_shown(made):
            return made.page
        return await asyncio.shield(making)

    def forget(self) -> None:
        """Forget all pages, also those that are being made: something was written here."""
        self._writes += 1
        self._made.clear()
        self._making.clear()

    async def _make(self, key: object, make: Callable[[], Awaitable[_Page]]) -> _Page:
        writes, mark, at = self._writes, self.mark(), self.clock()
        try:
            page = await make()
            if writes == self._writes:
                # Its moment begins when the store was read, but others who waited for it are given it.
                now = self.clock()
                self._made[key] = _Made(
                    page=page, mark=mark, at=max(at, now - self.moment / 2), took=now - at
                )
            return page
        finally:
            if writes == self._writes:
                self._making.pop(key, None)
            self._forget_old_ones()

    def _may_be_shown(self, made: _Made[_Page]) -> bool:
        longest = max(_MOMENTS * self.moment, _TIMES * made.took) if self.moment else 0.0
        return self.clock() - made.at < longest

    def _forget_old_ones(self) -> None:
        for key in [key for key, made in self._made.items() if not self._may_be_shown(made)]:
            del self._made[key]


def _look_at(made: asyncio.Task[_Page]) -> None:
    """Take note of an error that nobody has waited for: the next one who asks tries again."""
    if not made.cancelled():
        made.exception()

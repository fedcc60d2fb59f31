"""The store that the dashboard reads: one for all its threads, opened once, closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from modeldyno.base.clock import monotonic
from modeldyno.base.errors import ModelDynoError, StoreError
from modeldyno.stores.interface import Store

if TYPE_CHECKING:
    from modeldyno.base.result.live_load import LiveLoad
    from modeldyno.base.result.result import Result

_REST = 0.4
"""Seconds for which a mark is taken for the present one, however many readers ask."""


def result_or_none(store: Store) -> Callable[[str], Result | None]:
    """Return what gives a Result by its whole id; None where the store lacks it, or it is damaged."""

    def read(identifier: str) -> Result | None:
        with suppress(ModelDynoError):
            return store.registry.result(identifier)
        return None

    return read


def live_loads(store: Store) -> Sequence[LiveLoad]:
    """Return the loads that go on or have ended a moment ago, the newest first."""
    return store.live_loads()


@dataclass(slots=True)
class ChangeWatch:
    """Says whether a store has changed; asked by many, it looks a few times a second."""

    store: Store
    clock: Callable[[], float] = monotonic
    version: Callable[[], int] = lambda: 0
    """Returns a number that moves when pages change though the store does not."""
    _lock: Lock = field(default_factory=Lock)
    _mark: str = ""
    _looked: float = float("-inf")

    @property
    def known(self) -> str:
        """The mark as it was seen last, without looking."""
        return self._full_mark()

    def mark(self) -> str:
        """Return the mark of the store's last change; the last known one while the store cannot be read."""
        with self._lock:
            if self.clock() - self._looked >= _REST:
                with suppress(StoreError):
                    self._mark = self.store.change_mark()
                self._looked = self.clock()
            return self._full_mark()

    def store_mark(self) -> str:
        """Return the mark of the store alone."""
        self.mark()
        return self._mark

    def _full_mark(self) -> str:
        version = self.version()
        return f"{self._mark}.{version}" if version else self._mark

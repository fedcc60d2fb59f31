"""Looks beside the pages for models that have become worse, as reading long histories takes seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Thread

from modeldyno.dashboard.page import Attention
from modeldyno.dashboard.trend_pages import find_regressions
from modeldyno.errors import ModelDynoError
from modeldyno.interfaces.store import Store

_FIRST = 0.05
"""Seconds that the first page waits: a small store has been read by then."""
_REST, _SHARE = 10.0, 0.1
"""Seconds between two searches, and the share of the time that they may take."""


@dataclass(slots=True)
class RegressionSearch:
    """What has become worse in a store, searched by a thread of its own when the store has changed."""

    store: Store
    mark: Callable[[], str]
    """That of the store's last change."""
    clock: Callable[[], float] = time.monotonic
    version: int = 0
    """Grows when something else is found."""
    _found: Sequence[Attention] | None = None
    _searched: str | None = None
    """The mark of the store that was searched last."""
    _next: float = float("-inf")
    """When the next search may begin."""
    _running: bool = False
    _changed: Condition = field(default_factory=Condition)

    def found(self) -> Sequence[Attention] | None:
        """Return what the last search has found, and search again if the store has changed since.

        None: nothing was searched yet.
        """
        mark = self.mark()
        with self._changed:
            if not self._running and mark != self._searched and self.clock() >= self._next:
                self._running, self._searched = True, mark
                Thread(target=self._search, name="regressions", daemon=True).start()
            if self._found is None:
                self._changed.wait_for(lambda: not self._running, _FIRST)
            return self._found

    def _search(self) -> None:
        began, found = self.clock(), None
        try:
            with suppress(ModelDynoError):  # the pages say what is wrong with the store
                found = find_regressions(self.store)
        finally:
            with self._changed:
                if found is not None:
                    self.version += found != self._found
                    self._found = found
                ended = self.clock()
                self._next = ended + max(_REST, (ended - began) / _SHARE)
                self._running = False
                self._changed.notify_all()

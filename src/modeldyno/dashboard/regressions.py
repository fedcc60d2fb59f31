"""Looks beside the pages for models that have become worse: all of them, as long histories take seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from threading import Condition, Thread

from modeldyno.base.clock import monotonic
from modeldyno.base.errors import ModelDynoError
from modeldyno.comparison.change.trend import FEWEST_FOR_A_STEP
from modeldyno.dashboard.page import Attention
from modeldyno.dashboard.trend_pages import (
    MODELS,
    REFERENCE,
    Regression,
    latest_first,
    regression_of_model,
    regressions_of_machines,
)
from modeldyno.stores.interface import Store, StoredName

_FIRST = 0.05
"""Seconds that the first page waits: a small store has been read by then."""
_REST, _SHARE = 10.0, 0.1
"""Seconds between two looks at which models have new results, and the share of the time that all may take."""


@dataclass(slots=True)
class RegressionSearch:
    """What has become worse in a store, searched by a thread of its own when the store has changed.

    What was found of a model is kept as long as its results are the same; so every model that has new ones
    is judged in the end, however many there are. One whose results cannot be read is judged again.
    """

    store: Store
    mark: Callable[[], str]
    """That of the store's last change."""
    clock: Callable[[], float] = monotonic
    pause: Callable[[float], None] = time.sleep
    version: int = 0
    """Grows when something else is found."""
    _latest: Sequence[Attention] | None = None
    _searched: str | None = None
    """The mark of the store whose models were listed last."""
    _next: float = float("-inf")
    """When the next search may begin."""
    _judged: dict[StoredName, Regression | None] = field(default_factory=dict)
    _running: bool = False
    _changed: Condition = field(default_factory=Condition)

    def regressions(self) -> Sequence[Attention] | None:
        """Return what was found so far, and search again if the store has changed since.

        None: the models measured last have not been judged yet.
        """
        mark = self.mark()
        with self._changed:
            if not self._running and mark != self._searched and self.clock() >= self._next:
                self._running = True
                Thread(target=self._search, name="regressions", daemon=True).start()
            if self._latest is None:
                self._changed.wait_for(lambda: not self._running or self._latest is not None, _FIRST)
            return self._latest

    def _search(self) -> None:
        """Judge one model after the other until nothing is left, and leave the pages their time."""
        began = self.clock()
        try:
            for _ in self._judge_all():
                self.pause((self.clock() - began) * (1 / _SHARE - 1))
                began = self.clock()
        except ModelDynoError:  # the pages say what is wrong with the store
            self._searched = None
        finally:
            with self._changed:
                ended = self.clock()
                self._next = ended + max(_REST, (ended - began) / _SHARE)
                self._running = False
                self._changed.notify_all()

    def _judge_all(self) -> Iterator[None]:
        """Judge what is new, and yield whenever it is time for a pause."""
        while self._searched != (mark := self.mark()):
            self._searched, listed = mark, self.clock()
            machines, waiting = regressions_of_machines(self.store), self._waiting()
            for count, name in enumerate(waiting, 1):
                self._judged[name] = regression_of_model(self.store, name.name)
                if self._latest is not None or count >= MODELS:
                    self._publish(machines)
                    yield
                    # Not before one of either end of the list has been judged.
                    if count > 1 and self.clock() - listed >= _REST and self.mark() != mark:
                        break
            else:
                self._publish(machines)
                if any(map(_is_unknown, (*machines, *self._judged.values()))):
                    self._searched = None
                return

    def _waiting(self) -> Sequence[StoredName]:
        """Return the models whose results have changed since they were judged, those measured last first.

        Later every other one is of those that have waited longest, as more may change than can be judged.
        """
        there = [one for one in self.store.names(least=FEWEST_FOR_A_STEP) if one.name != REFERENCE]
        self._judged = {one: self._judged[one] for one in there if one in self._judged}
        waiting = [one for one in there if one not in self._judged or _is_unknown(self._judged[one])]
        return waiting if self._latest is None else _from_both_ends(waiting)

    def _publish(self, machines: Sequence[Regression]) -> None:
        latest = latest_first((*machines, *self._judged.values()))
        with self._changed:
            self.version += latest != self._latest
            self._latest = latest
            self._changed.notify_all()


def _is_unknown(judged: Regression | None) -> bool:
    return judged is not None and judged.unknown


def _from_both_ends(waiting: Sequence[StoredName]) -> Sequence[StoredName]:
    half = -(-len(waiting) // 2)
    first, last = waiting[:half], waiting[: half - 1 : -1] if half < len(waiting) else ()
    return [one for both in zip_longest(first, last) for one in both if one is not None]

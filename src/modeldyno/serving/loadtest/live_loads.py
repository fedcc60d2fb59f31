"""Shows loads in the store while they go on, once a second, from a thread that nothing waits for."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import ModelDynoError
from modeldyno.base.identity import new_identity
from modeldyno.base.result.live_load import LiveLoad, add_second
from modeldyno.base.result.result import Loaded, SecondPassed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.result.result import Event, Result
    from modeldyno.stores.interface import Store

_PATIENCE = 2.0
"""Seconds for which the end of a command waits until its last second is shown."""


@contextmanager
def show_loads(*, enabled: bool = True, store: Callable[[], Store] = plugins.store) -> Iterator[LoadDisplay]:
    """Yield what shows loads in the store, if `enabled`, as it follows their events.

    Whatever is wrong with the store, the load goes on: it is said when its Result is stored.
    """
    display = LoadDisplay(store if enabled else None)
    try:
        yield display
    finally:
        display.close()


class LoadDisplay:
    """Follows the events of one load after another."""

    def __init__(self, store: Callable[[], Store] | None) -> None:
        self._open = store
        self._name = ""
        self._load: LiveLoad | None = None
        self._states: SimpleQueue[LiveLoad | None] = SimpleQueue()
        self._thread: Thread | None = None

    def follow(self, watch: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return a callback for events that calls `watch`, too."""

        def pass_on(event: Event) -> None:
            if isinstance(event, SecondPassed) and self._open is not None:
                self._add(event)
            elif isinstance(event, Loaded):
                self._name = event.model.name
            watch(event)

        return pass_on

    def end(self, result: Result) -> None:
        """Say that a load has ended, and which Result takes its place; it is stored."""
        self._end(result.id)

    def close(self) -> None:
        """Say that no load goes on any more; wait a moment until that is written."""
        self._end("")
        if self._thread is not None:
            self._states.put(None)
            self._thread.join(_PATIENCE)

    def _end(self, result: str) -> None:
        if self._load is not None:
            self._states.put(replace(self._load, ended=True, result=result))
            self._load = None

    def _add(self, passed: SecondPassed) -> None:
        load = self._load
        if load is None:
            load = LiveLoad(name=self._name, load=passed.load, seconds=(), **new_identity())
        self._load = add_second(load, passed.load, passed.second)
        self._states.put(self._load)
        if self._thread is None:
            self._thread = Thread(target=self._write, daemon=True)
            self._thread.start()

    def _write(self) -> None:
        """Write the newest state of each load, until there are no more."""
        assert self._open is not None
        try:
            with self._open() as store:
                while (state := self._states.get()) is not None:
                    for newest in self._newest(state):
                        store.put_live_load(newest)
        except ModelDynoError:
            self._open = None

    def _newest(self, state: LiveLoad) -> Iterator[LiveLoad]:
        """Yield the newest of the states that wait, of each load: a store that was locked has missed some."""
        while True:
            try:
                following = self._states.get_nowait()
            except Empty:
                break
            if following is None:
                self._states.put(None)
                break
            if following.id != state.id:
                yield state
            state = following
        yield state

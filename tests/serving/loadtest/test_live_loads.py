"""Showing loads in the store while they go on."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pytest

from modeldyno.base.errors import StoreError
from modeldyno.base.result.live_load import SECONDS_KEPT, LiveLoad
from modeldyno.base.result.result import Loaded, SecondPassed
from modeldyno.base.result.trace_data import LiveSecond
from modeldyno.serving.loadtest.live_loads import LoadDisplay, show_loads
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Event


@dataclass
class Shelf:
    """A store that keeps what it is given, once it may."""

    kept: list[LiveLoad] = field(default_factory=list)
    free: threading.Event = field(default_factory=threading.Event)
    called: threading.Event = field(default_factory=threading.Event)
    wrong: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def put_live_load(self, load: LiveLoad) -> None:
        """Keep it, after waiting as for a lock."""
        self.called.set()
        self.free.wait(10)
        if self.wrong:
            raise StoreError("The store is away.")
        self.kept.append(load)

    def live_loads(self) -> list[LiveLoad]:
        """Return all states."""
        return self.kept


def second(at: float) -> SecondPassed:
    """Return what a child tells of a second."""
    return SecondPassed(load="concurrency 8", second=LiveSecond(at=at, answered=5, failed=0))


@pytest.fixture
def shelf() -> Shelf:
    """A store that is free."""
    empty = Shelf()
    empty.free.set()
    return empty


def show(shelf: Shelf, *events: Event, passed_on: list[Event] | None = None) -> LoadDisplay:
    """Let a display follow events, and return it."""
    model = a_result().model
    assert model is not None
    with show_loads(store=lambda: shelf) as live:  # type: ignore[arg-type, return-value]
        watch = live.follow((passed_on if passed_on is not None else []).append)
        for event in (Loaded(model=model), *events):
            watch(event)
    return live


def test_the_last_seconds_of_a_load_are_stored_as_they_pass(shelf: Shelf) -> None:
    """Under the name of the model; at the end of the command it has ended."""
    show(shelf, *(second(float(n)) for n in range(SECONDS_KEPT + 5)))

    last = shelf.kept[-1]
    assert (last.name, last.load, last.ended, last.result) == (a_result().name, "concurrency 8", True, "")
    assert [one.at for one in last.seconds] == [float(n) for n in range(5, SECONDS_KEPT + 5)]
    assert len({load.id for load in shelf.kept}) == 1


def test_other_events_are_passed_on_and_nothing_is_stored_without_a_load(shelf: Shelf) -> None:
    """A profile shows nothing."""
    events: list[Event] = []
    show(shelf, passed_on=events)

    assert len(events) == 1
    assert shelf.kept == []


def test_each_load_of_a_series_is_followed_by_its_result(shelf: Shelf) -> None:
    """The next one has an id of its own."""
    with show_loads(store=lambda: shelf) as live:  # type: ignore[arg-type, return-value]
        watch = live.follow(lambda _event: None)
        watch(second(0.0))
        live.end(a_result(id="a" * 12))
        watch(second(0.0))

    ended = {load.id: load.result for load in shelf.kept if load.ended}
    assert list(ended.values()) == ["a" * 12, ""]


def test_a_fresh_process_of_the_same_load_begins_anew(shelf: Shelf) -> None:
    """Seconds of two processes are not mixed."""
    show(shelf, second(0.0), second(1.0), second(0.0))

    assert [one.at for one in shelf.kept[-1].seconds] == [0.0]
    assert len({load.id for load in shelf.kept}) == 1


def test_a_store_that_is_locked_delays_nothing_and_gets_the_newest_state() -> None:
    """The load goes on; states that nobody saw are left out."""
    shelf = Shelf()
    display = LoadDisplay(lambda: shelf)  # type: ignore[arg-type, return-value]
    watch = display.follow(lambda _event: None)
    watch(second(0.0))
    assert shelf.called.wait(10)
    for n in range(1, 50):
        watch(second(float(n)))
    shelf.free.set()
    display.close()

    assert [len(load.seconds) for load in shelf.kept] == [1, 50]


def test_a_store_that_is_away_ends_no_load(shelf: Shelf) -> None:
    """What is wrong with it is said when the Result is stored."""
    shelf.wrong = True
    display = show(shelf, second(0.0), second(1.0))

    display.follow(lambda _event: None)(second(2.0))
    assert shelf.kept == []


def test_a_command_that_stores_nothing_shows_nothing() -> None:
    """No store is opened for it."""

    def refuse() -> Any:
        raise AssertionError

    with show_loads(enabled=False, store=refuse) as live:
        live.follow(lambda _event: None)(second(0.0))
        assert live._thread is None

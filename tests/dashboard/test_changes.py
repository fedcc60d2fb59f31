"""What open pages are told when the store changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from modeldyno.base.errors import StoreError
from modeldyno.dashboard.changes import marks
from modeldyno.dashboard.store_access import ChangeWatch
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from tests.dashboard.conftest import Visitor

    from modeldyno.stores.interface import Store


async def collect_texts(store: Store, rounds: int) -> list[str]:
    """Return what a page is told in a number of looks, while a result is stored after each second one."""
    looked = 0

    async def gone() -> bool:
        nonlocal looked
        looked += 1
        if looked % 2 == 0:
            store.put(a_small_result(id=f"{looked:x}" * 12), headline="")
        return looked >= rounds

    time = iter(range(1000))
    watch = ChangeWatch(store=store, clock=lambda: float(next(time)))
    return [event async for event in marks(watch, lambda: False, gone, pause=0.0)]


def test_a_change_is_announced_once(newcomer: Visitor) -> None:
    """The first event says where the store is, each further one that something was written."""
    events = asyncio.run(collect_texts(newcomer.store, 9))

    assert len(events) == len(set(events)) == 5
    assert all(event.startswith("event: change\ndata: ") and event.endswith("\n\n") for event in events)


def test_a_page_may_change_though_the_store_does_not(newcomer: Visitor) -> None:
    """A number beside the mark of the store says so."""
    watch = ChangeWatch(store=newcomer.store)
    before = watch.mark()
    watch.version = lambda: 1

    assert watch.mark() == watch.known == f"{before}.1"
    assert watch.store_mark() == before


def test_a_quiet_store_gives_signs_of_life(newcomer: Visitor) -> None:
    """Now and then, so that a connection that is gone is noticed."""

    async def listen() -> list[str]:
        left = iter(range(40))

        async def gone() -> bool:
            return next(left) >= 35

        watch = ChangeWatch(store=newcomer.store)
        return [event async for event in marks(watch, lambda: False, gone, pause=0.0)]

    first, *others = asyncio.run(listen())

    assert first.startswith("event: change")
    assert others == [": still here\n\n"]


def test_many_pages_look_at_the_store_a_few_times_a_second(newcomer: Visitor) -> None:
    """Whoever asks again within the same moment is told what the last one saw."""
    now = 0.0
    watch = ChangeWatch(store=newcomer.store, clock=lambda: now)
    before = watch.mark()
    newcomer.store.put(a_small_result(), headline="")

    assert watch.mark() == before
    now = 1.0
    assert watch.mark() != before


def test_a_store_that_cannot_be_read_for_a_moment_has_not_changed() -> None:
    """The last known mark stays."""

    class Away:
        def change_mark(self) -> str:
            raise StoreError("The store is away.")

    assert ChangeWatch(store=Away()).mark() == ""  # type: ignore[arg-type]


def test_a_stream_ends_with_the_server(visitor: Visitor) -> None:
    """The server need not wait for pages that listen."""

    async def listen() -> list[str]:
        async def gone() -> bool:
            return False

        watch = ChangeWatch(store=visitor.store)
        return [event async for event in marks(watch, lambda: True, gone, pause=0.0)]

    assert asyncio.run(listen()) == []

"""Loads that go on, in a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.result.live_load import LiveLoad
from modeldyno.base.result.trace_data import LiveSecond
from modeldyno.stores import clock, live_loads
from modeldyno.stores.sql import SqlStore
from modeldyno.stores.sql import open as open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def a_load(identifier: str = "a" * 12, seconds: int = 1, **fields: str) -> LiveLoad:
    """Return a load that goes on."""
    return LiveLoad(
        id=identifier,
        created="2026-01-01T00:00:00.000+00:00",
        name=fields.get("name", "digits"),
        load="concurrency 8",
        seconds=tuple(LiveSecond(at=float(n), answered=n, failed=0, p50=0.5) for n in range(seconds)),
    )


def without_silence(load: LiveLoad) -> tuple[object, ...]:
    """Return all but when it was heard of."""
    return load.id, load.name, load.load, load.seconds, load.ended, load.result


def test_a_load_is_replaced_by_its_later_state(shared: SqlStore) -> None:
    """There is one row of each."""
    assert shared.live_loads() == []
    shared.put_live_load(a_load())
    shared.put_live_load(a_load(seconds=3))

    (load,) = shared.live_loads()
    assert without_silence(load) == without_silence(a_load(seconds=3))
    assert 0 <= load.silent < 60


def test_a_load_that_was_not_heard_of_for_long_is_forgotten(
    shared: SqlStore, let_pass: Callable[[float], None]
) -> None:
    """Its command was killed; the next load removes its row."""
    shared.put_live_load(a_load())
    let_pass(300.0)
    assert [300 <= load.silent < 360 for load in shared.live_loads()] == [True]
    let_pass(301.0)
    assert shared.live_loads() == []
    shared.put_live_load(a_load("b" * 12))
    let_pass(-400.0)

    assert [load.id for load in shared.live_loads()] == ["b" * 12]


def test_a_load_of_an_earlier_boot_is_forgotten(shared: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock began anew."""
    boot = "first"
    monkeypatch.setattr(clock, "now", lambda _connection: (1000.0, boot))
    shared.put_live_load(a_load())
    boot = "second"

    assert shared.live_loads() == []


def test_a_reader_blocks_no_writer(tmp_path: Path) -> None:
    """A page that is being read keeps no second of a load from the store, and sees it as it was."""
    with open_store(f"sqlite:///{tmp_path}/store.db?timeout=0") as store:
        store.put_live_load(a_load())
        with store._database.reading() as connection:
            before = live_loads.find(connection)
            store.put_live_load(a_load(seconds=2))
            assert [load.seconds for load in live_loads.find(connection)] == [before[0].seconds]

        assert [len(load.seconds) for load in store.live_loads()] == [2]


def test_a_name_that_no_database_takes_is_cleaned(shared: SqlStore) -> None:
    """As in every other list."""
    shared.put_live_load(a_load(name="m\udcff\0"))

    assert shared.live_loads()[0].name == "m?\ufffd"

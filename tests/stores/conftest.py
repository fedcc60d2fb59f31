"""Stores to test with: in a file, and on a PostgreSQL server if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.databases import postgres, server, url

from modeldyno.stores import clock, sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from modeldyno.registry.store.sql_registry import SqlRegistry
    from modeldyno.stores.sql import SqlStore

__all__ = ["postgres", "server", "url"]


@pytest.fixture
def shared(url: str) -> Iterator[SqlStore]:
    """Give an empty store, in a file and then on a server."""
    with sql.open(url) as opened:
        yield opened


@pytest.fixture
def registry(shared: SqlStore) -> SqlRegistry:
    """Give the registry of an empty store, in a file and then on a server."""
    return shared.registry


@pytest.fixture
def let_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Give a function that lets some seconds of the database's clock pass."""
    real, passed = clock.now, [0.0]

    def now(connection: Connection) -> tuple[float, str]:
        seconds, boot = real(connection)
        return seconds + passed[0], boot

    def let(seconds: float) -> None:
        passed[0] += seconds

    monkeypatch.setattr(clock, "now", now)
    return let

"""Stores to test with: in a file, and on a PostgreSQL server if there is one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text

from modeldyno.adapters.stores import sql
from modeldyno.adapters.stores.registry import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy import Connection

    from modeldyno.adapters.stores.registry.sql_registry import SqlRegistry
    from modeldyno.adapters.stores.sql import SqlStore

BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.engine)]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give the URL of an empty schema of its own on the server that MODELDYNO_TEST_POSTGRES names."""
    address = os.environ.get("MODELDYNO_TEST_POSTGRES")
    if not address:
        pytest.skip("MODELDYNO_TEST_POSTGRES names no server")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    schema = f"test_{uuid4().hex}"
    engine = create_engine(address.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    yield f"{address}?options=-csearch_path%3D{schema}"
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
    engine.dispose()


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the URL of an empty store, in a file and then on a server."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return str(request.getfixturevalue("server"))


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

"""An empty database for each test: a file, and a schema of a PostgreSQL server if there is one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text
from tests.support.postgres import postgres_programs, temporary_postgres

from modeldyno.serving.servers import paths
from modeldyno.stores import sqlite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from sqlite3 import Connection

BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.engine)]


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Give the URL of the server that MODELDYNO_TEST_POSTGRES names, else of one that ends with the tests."""
    named = os.environ.get("MODELDYNO_TEST_POSTGRES")
    if named:
        yield named
    elif postgres_programs() is None:
        pytest.skip("needs PostgreSQL (apt install postgresql), or MODELDYNO_TEST_POSTGRES")
    else:
        with temporary_postgres() as address:
            yield address


@pytest.fixture
def server(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give the URL of an empty schema of its own on a PostgreSQL server."""
    monkeypatch.setenv(paths.VARIABLE, str(paths.servers_root()))  # the engines that are installed
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    schema = f"test_{uuid4().hex}"
    engine = create_engine(postgres.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    yield f"{postgres}?options=-csearch_path%3D{schema}"
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
    engine.dispose()


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the URL of an empty store, on a server or in a file, for whose disk no commit here waits."""
    if request.param == "sqlite":
        prepare = sqlite._prepare

        def prepare_unsynced(connection: Connection, timeout: float) -> Connection:
            prepare(connection, timeout).execute("PRAGMA synchronous=OFF")
            return connection

        monkeypatch.setattr(sqlite, "_prepare", prepare_unsynced)
        return f"sqlite:///{tmp_path}/store.db"
    return str(request.getfixturevalue("server"))

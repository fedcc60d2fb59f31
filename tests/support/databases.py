"""An empty database for each test: a file, and a schema of a PostgreSQL server if there is one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text

from modeldyno.servers import paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.engine)]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give the URL of an empty schema of its own on the server that MODELDYNO_TEST_POSTGRES names."""
    address = os.environ.get("MODELDYNO_TEST_POSTGRES")
    if not address:
        pytest.skip("MODELDYNO_TEST_POSTGRES names no server")
    monkeypatch.setenv(paths.VARIABLE, str(paths.servers_root()))  # the engines that are installed
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

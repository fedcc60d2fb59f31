"""Connections to a PostgreSQL server, through psycopg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event

from modeldyno import plugins

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

_CONNECT_TIMEOUT = "10"  # seconds


def engine(url: URL, timeout: float) -> Engine:
    """Create an engine whose statements wait up to `timeout` seconds for a lock.

    A transaction that does nothing for half of that, as its process was stopped or its machine has gone, is
    rolled back by the server, so that those who wait for it go on.

    Raises:
        MissingExtra: psycopg is not installed.
    """
    plugins.require(("psycopg",), "store 'postgresql'")
    connect_timeout = url.query.get("connect_timeout", _CONNECT_TIMEOUT)
    new_engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args={"connect_timeout": connect_timeout},
        pool_pre_ping=True,
    )

    def prepare(connection: Any, _record: object) -> None:
        connection.execute(f"SET lock_timeout = {int(timeout * 1000)}")
        connection.execute(f"SET idle_in_transaction_session_timeout = {max(1, int(timeout * 500))}")
        connection.commit()

    event.listen(new_engine, "connect", prepare)
    return new_engine

"""Connections to a PostgreSQL server, through psycopg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import String, cast, create_engine, event, func, select

from modeldyno.base import plugins

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

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


def change_mark(connection: Connection) -> str:
    """Return what a transaction that begins now would see: it moves when one that has written ends."""
    return str(connection.scalar(select(cast(func.pg_current_snapshot(), String))))

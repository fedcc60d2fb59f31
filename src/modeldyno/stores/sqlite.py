"""Connections to one SQLite file that many processes write to.

Write-ahead log, so that readers never wait; `BEGIN IMMEDIATE` for writes, so that a write waits for the lock
before it reads anything; `synchronous=FULL`, so that commits are on disk.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from sqlalchemy import URL, create_engine, event
from sqlalchemy.pool import StaticPool

from modeldyno.base.clock import monotonic
from modeldyno.stores.errors import primary_code
from modeldyno.stores.schema import METADATA, REVISION, REVISIONS

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.pool import ConnectionPoolEntry

_UNWRITABLE = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}


def engine(path: Path, timeout: float) -> Engine:
    """Create an engine whose writes wait up to `timeout` seconds for those of other processes."""
    new_engine = create_engine(
        URL.create("sqlite", database=str(path)), creator=lambda: _connect(path, timeout)
    )
    event.listen(new_engine, "begin", _begin)
    event.listen(new_engine, "checkin", _reopen_read_only)
    return new_engine


def empty_engine() -> Engine:
    """Create an engine of an in-memory database with empty tables."""
    new_engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    with new_engine.begin() as connection:
        create_tables(connection)
    return new_engine


def vacuum(path: Path) -> None:
    """Shrink a file to what it holds; it stays as it is if others write, or without space for a copy."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def create_tables(connection: Connection) -> None:
    """Create the empty tables of the newest revision, unless another process has created tables."""
    if connection.exec_driver_sql("SELECT 1 FROM sqlite_master").first() is None:
        for statement in _creation():
            connection.exec_driver_sql(statement)
        connection.execute(REVISIONS.insert().values(version_num=REVISION))


@cache
def _creation() -> tuple[str, ...]:
    """Return the statements that make a new database what migrations make of an old one."""
    new_engine = create_engine("sqlite://")
    with new_engine.begin() as connection:
        METADATA.create_all(connection)
        REVISIONS.create(connection)
        made = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE sql NOT NULL ORDER BY rowid")
        statements = tuple(made.scalars())
    new_engine.dispose()
    return statements


def change_mark(path: Path) -> str:
    """Return sizes and times of the database and its log: each write changes those of one of them."""
    stats = []
    for file in (path, Path(f"{path}-wal")):
        with suppress(FileNotFoundError):
            stat = file.stat()
            stats.append(f"{stat.st_ino}.{stat.st_size}.{stat.st_mtime_ns}")
    return "-".join(stats)


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


class _ReadOnly(sqlite3.Connection):
    """A read-only connection, which may miss later writes of other processes."""


def _reopen_read_only(connection: sqlite3.Connection | None, record: ConnectionPoolEntry) -> None:
    if isinstance(connection, _ReadOnly):
        record.invalidate()


def _connect(path: Path, timeout: float) -> sqlite3.Connection:
    """Connect for writing, or else for reading only."""
    try:
        return _prepare(_open(str(path), timeout, sqlite3.Connection), timeout)
    except sqlite3.Error as error:
        readable = _open_read_only(path, timeout) if primary_code(error) in _UNWRITABLE else None
        if readable is None:
            raise
        return readable


def _open(name: str, timeout: float, kind: type[sqlite3.Connection]) -> sqlite3.Connection:
    return sqlite3.connect(
        name,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
        factory=kind,
        uri=kind is _ReadOnly,
    )


def _prepare(connection: sqlite3.Connection, timeout: float) -> sqlite3.Connection:
    try:
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA fullfsync=ON")  # macOS: its fsync alone does not reach the disk
        _enable_wal(connection, timeout)
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _enable_wal(connection: sqlite3.Connection, timeout: float) -> None:
    """Switch to the write-ahead log; retry while locked, because SQLite ignores its timeout here."""
    deadline = monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _open_read_only(path: Path, timeout: float) -> sqlite3.Connection | None:
    """Open a database in a read-only directory or on a full disk; None if nothing is readable.

    If the log is empty, the file is the whole database and can be opened without shared memory.
    """
    log = Path(f"{path}-wal")
    modes = ["mode=ro"]
    if not (log.exists() and log.stat().st_size):
        modes.append("immutable=1")
    for mode in modes:
        try:
            connection = _open(f"file:{quote(str(path))}?{mode}", timeout, _ReadOnly)
        except sqlite3.Error:
            continue
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.Error:
            connection.close()
        else:
            return connection
    return None

"""Turns database errors into one sentence that says what to do."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.exc import OperationalError, SQLAlchemyError

from modeldyno.base.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCKED = "is locked by another process; wait until it has ended, and try again"
_FULL = "cannot be written because its disk is full; free some space and try again; its results stay readable"
_FAILING = (
    "cannot be read or written because its disk is full or failing ({cause}); "
    "free some space and try again; its results stay readable"
)
_READ_ONLY = (
    "is read-only; make the file and its directory writable, on a disk with space left, "
    "or name another store with MODELDYNO_STORE"
)
_CANNOT_OPEN = (
    "cannot be opened ({cause}); check that its directory exists and is writable, "
    "or name another store with MODELDYNO_STORE"
)
_NOT_SQLITE = "is not a SQLite database; move the file away, or name another store with MODELDYNO_STORE"
_DAMAGED = (
    "is damaged ({cause}); move it away to start a new one, and recover what it still holds with: "
    "sqlite3 DAMAGED .recover | sqlite3 NEW"
)
_TOO_LARGE = "cannot hold a document of this size ({cause}); save it to a file instead"
_LOG_SIZE = 2**16
"""Bytes that the write-ahead log and its index need."""
_UNREACHABLE = "cannot be reached ({cause}); check that its server runs, and MODELDYNO_STORE"
_NOT_ALLOWED = (
    "may not be read or written so by the role that MODELDYNO_STORE names ({cause}); grant it the right, "
    "or name a role that has it"
)
_OTHER = "cannot be used ({cause}); check MODELDYNO_STORE"
_PASSING = frozenset({_LOCKED, _FULL, _FAILING, _UNREACHABLE})
"""What may be over in a while."""

_SQLITE = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_PROTOCOL: _LOCKED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: _FAILING,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: _CANNOT_OPEN,
    sqlite3.SQLITE_NOTADB: _NOT_SQLITE,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_TOOBIG: _TOO_LARGE,
}
"""Primary SQLite error code to the message."""

_POSTGRESQL = {
    "25006": _READ_ONLY,
    "40P01": _LOCKED,
    "42501": _NOT_ALLOWED,
    "53100": _FULL,
    "53300": _UNREACHABLE,
    "55P03": _LOCKED,
    "58030": _FAILING,
    "54000": _TOO_LARGE,
    "57P01": _UNREACHABLE,
    "57P02": _UNREACHABLE,
    "57P03": _UNREACHABLE,
    "25P03": _UNREACHABLE,
}
"""SQLSTATE to the message."""
_CONNECTION = "08"
"""The class of SQLSTATE of connections that are refused or lost; what the client sees itself has none."""


@contextmanager
def as_store_error(place: str) -> Iterator[None]:
    """Turn database and file system errors into a StoreError about the store at `place`.

    It is StoreUnavailable where that may be over in a while.
    """
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, UnicodeDecodeError, OSError) as error:
        cause = getattr(error, "orig", None) or error
        text = " ".join(str(cause).split())
        message = _FULL if _is_full_disk(cause, place) else _message(cause, error)
        kind = StoreUnavailable if message in _PASSING else StoreError
        raise kind(f"The store {place} {message.format(cause=text)}.") from error


def _is_full_disk(cause: BaseException, place: str) -> bool:
    """Return whether SQLite opened the database read-only because the disk has no room for its log."""
    if not isinstance(cause, sqlite3.Error) or primary_code(cause) != sqlite3.SQLITE_READONLY:
        return False
    with suppress(OSError):
        return shutil.disk_usage(Path(place).parent).free < _LOG_SIZE
    return False


def _message(cause: BaseException, error: BaseException) -> str:
    if isinstance(cause, OSError):
        return _CANNOT_OPEN
    if isinstance(cause, UnicodeDecodeError):  # raised on SQLite's message about a damaged table
        return _DAMAGED
    if isinstance(cause, sqlite3.Error):
        return _SQLITE.get(primary_code(cause), _OTHER)
    state = getattr(cause, "sqlstate", None) or ""
    if isinstance(error, OperationalError) and state[:2] in {"", _CONNECTION}:
        return _UNREACHABLE
    return _POSTGRESQL.get(state, _OTHER)


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's error code without its extension; 0 for errors raised by Python itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF

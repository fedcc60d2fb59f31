"""A database at its newest revision, in which every fault is one sentence."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sqlalchemy import URL, select, table
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.sql import column, func

from modeldyno.adapters.stores import postgresql, sqlite
from modeldyno.adapters.stores.errors import explained
from modeldyno.adapters.stores.schema import REVISION, VERSION_TABLE
from modeldyno.errors import RequestError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine, Select

PATIENCE = 60.0
"""Seconds that a write waits for those of other processes, unless the URL says ``?timeout=``."""
_DRIVERS = {"sqlite", "postgresql", "postgresql+psycopg"}
_LOCK = 0x6D6F64656C64796E
"""Key of the advisory lock that PostgreSQL migrates under."""


class Database:
    """Transactions over one engine."""

    def __init__(self, engine: Engine, place: str) -> None:
        self._engine = engine
        self._writer = engine.execution_options(begin="BEGIN IMMEDIATE")
        self.place = place
        """What to call it in a message; holds no password."""

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a transaction that reads; raise StoreError if the database cannot be read."""
        with explained(self.place), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give a transaction that writes, on disk when the block has ended; StoreError if it cannot be."""
        with explained(self.place), self._writer.begin() as connection:
            yield connection

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


class Unmade:
    """The database of a file that is not there: it reads as empty, and whoever writes first makes it."""

    def __init__(self, path: Path, timeout: float) -> None:
        self._path, self._timeout = path, timeout
        self._empty = Database(sqlite.empty(), str(path))
        self._made: Database | None = None
        self.place = self._empty.place
        """What to call it in a message."""

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a transaction that reads what is there by now."""
        with explained(self.place):
            there = self._path.exists()
        with (self._file() if there else self._empty).reading() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give a transaction that writes into the file; StoreError if it cannot be made."""
        with self._file().writing() as connection:
            yield connection

    def close(self) -> None:
        """Close all connections."""
        for each in filter(None, (self._empty, self._made)):
            each.close()

    def _file(self) -> Database:
        if self._made is None:
            with explained(self.place):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                engine = sqlite.engine(self._path, self._timeout)
            self._made = _current(Database(engine, self.place))
        return self._made


def connect(text: str) -> tuple[Database | Unmade, Path | None]:
    """Open the database of a URL and bring it to its newest revision; give the path of a file too.

    A file that is not there is made by the first that writes.

    Raises:
        RequestError: the URL is not understood.
        MissingExtra: it asks for PostgreSQL, and psycopg is not installed.
        StoreError: the database cannot be opened, or is of a later ModelDyno.
    """
    url, timeout = _parse(text)
    path = Path(url.database or "").expanduser().absolute() if url.drivername == "sqlite" else None
    place = str(path) if path else _shown(url)
    with explained(place):
        if path and not path.exists():
            return Unmade(path, timeout), path
        engine = sqlite.engine(path, timeout) if path else postgresql.engine(url, timeout)
    return _current(Database(engine, place)), path


def _current(database: Database) -> Database:
    """Bring a database to its newest revision, or close it."""
    try:
        _make_current(database)
    except BaseException:
        database.close()
        raise
    return database


def _parse(text: str) -> tuple[URL, float]:
    try:
        url = _file_url(text) or make_url(text)
        timeout = float(str(url.query.get("timeout", PATIENCE)))
    except (ArgumentError, ValueError):
        url = None
    if url is None or url.drivername not in _DRIVERS or url.database in {None, "", ":memory:"}:
        raise RequestError(
            "The URL of the store is not understood; "
            "write sqlite:///path/to/store.db or postgresql://user@host/database."
        )
    return url.difference_update_query(["timeout"]), timeout


def _file_url(text: str) -> URL | None:
    """Read the URL of a file, which SQLAlchemy unquotes only since 2.1."""
    match = re.fullmatch(r"sqlite:///([^?]+)(?:\?(.*))?", text)
    if match is None or match[1] == ":memory:":
        return None
    return URL.create("sqlite", database=unquote(match[1])).update_query_string(match[2] or "")


def _shown(url: URL) -> str:
    """Name a server without its password, wherever in the URL that stands."""
    return URL.create("postgresql", url.username, None, url.host, url.port, url.database).render_as_string()


def _make_current(database: Database) -> None:
    found = _revision(database)
    if found == REVISION:
        return
    if found is not None and found > REVISION:
        raise StoreError(
            f"The store {database.place} was written by a later ModelDyno (revision {found}, and this one "
            f"knows {REVISION}); upgrade ModelDyno, or name another store with MODELDYNO_STORE."
        )
    _migrate(database)


def _revision(database: Database) -> str | None:
    """Read the revision; None where no store has been made yet."""
    query: Select[Any] = select(func.max(column("version_num"))).select_from(table(VERSION_TABLE))
    with explained(database.place):
        try:
            with database.reading() as connection:
                return connection.execute(query).scalar()
        except StoreError as error:
            if _says_no_table(error.__cause__):
                return None
            raise


def _says_no_table(error: BaseException | None) -> bool:
    cause = error.orig if isinstance(error, DBAPIError) else None
    return getattr(cause, "sqlstate", None) == "42P01" or "no such table" in str(cause)


def _migrate(database: Database) -> None:
    """Migrate in one transaction; of several processes that begin at once, the others find it done."""
    from alembic import command  # noqa: PLC0415 - dear, and needed once in a store's life
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    scripts = Path(__file__).with_name("migrations")
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    try:
        with database.writing() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except CommandError as error:
        raise StoreError(f"The store {database.place} cannot be brought up to date: {error}.") from error

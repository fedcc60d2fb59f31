"""Opens a database at its newest revision and turns every database error into one sentence."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import unquote

from sqlalchemy import URL, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.sql import func

from modeldyno.base.codec import check_no_stream
from modeldyno.base.errors import RequestError, StoreError
from modeldyno.stores import postgresql, sqlite
from modeldyno.stores.errors import as_store_error
from modeldyno.stores.schema import REVISION, REVISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, Engine, Select

PATIENCE = 60.0
"""Seconds that a write waits for those of other processes, unless the URL has ``?timeout=``."""
_DRIVERS = {"sqlite", "postgresql", "postgresql+psycopg"}
_LOCK = 0x6D6F64656C64796E
"""Key of PostgreSQL's advisory lock that is held during a migration."""


P = ParamSpec("P")
T = TypeVar("T")


def in_transaction(
    begin: Callable[[Any], AbstractContextManager[Connection]],
    function: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate[Any, P], T]:
    """Return a method that calls a function within a transaction."""

    @wraps(function)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with begin(self) as connection:
            return function(connection, *args, **kwargs)

    return method


class Database:
    """A database engine with read and write transactions."""

    def __init__(self, engine: Engine, place: str) -> None:
        self._engine = engine
        self._writer = engine.execution_options(begin="BEGIN IMMEDIATE")
        self.place = place
        """Name for messages; without the password."""
        self.is_file = engine.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a read transaction; raise StoreError if the database cannot be read."""
        with as_store_error(self.place), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a write transaction, committed to disk at the end; raise StoreError if that fails."""
        with as_store_error(self.place), self._writer.begin() as connection:
            yield connection

    def change_mark(self) -> str:
        """Return a text that is another one after every write of any process."""
        if self.is_file:
            with as_store_error(self.place):
                return sqlite.change_mark(Path(self.place))
        with self.reading() as connection:
            return postgresql.change_mark(connection)

    def give_back_space(self) -> None:
        """Shrink the file of SQLite to what it holds, unless others use it now; a server does that itself."""
        if self.is_file:
            sqlite.vacuum(Path(self.place))

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


class LazyDatabase:
    """The database of a file that is missing or empty: it reads as empty, and the first write creates it."""

    def __init__(self, path: Path, timeout: float) -> None:
        self._path, self._timeout = path, timeout
        self._empty: Database | None = None
        self._created: Database | None = None
        self._lock, self._creation = Lock(), Lock()
        self.place = str(path)
        """Name for messages."""

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a read transaction on what exists by now."""
        with as_store_error(self.place):
            empty = _is_empty(self._path)
        if not empty:
            with self._file().reading() as connection:
                yield connection
            return
        with self._lock:  # it has one connection
            self._empty = self._empty or Database(sqlite.empty_engine(), self.place)
            with self._empty.reading() as connection:
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a write transaction on the file; raise StoreError if it cannot be created."""
        with self._file().writing() as connection:
            yield connection

    def change_mark(self) -> str:
        """Return a text that is another one after every write of any process."""
        with as_store_error(self.place):
            return sqlite.change_mark(self._path)

    def give_back_space(self) -> None:
        """Shrink the file to what it holds, unless others use it now."""
        sqlite.vacuum(self._path)

    def close(self) -> None:
        """Close all connections."""
        for database in filter(None, (self._empty, self._created)):
            database.close()

    def _file(self) -> Database:
        with self._creation:
            if self._created is None:
                with as_store_error(self.place):
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    engine = sqlite.engine(self._path, self._timeout)
                self._created = _migrated(Database(engine, self.place))
            return self._created


def connect(text: str) -> tuple[Database | LazyDatabase, Path | None]:
    """Open the database of a URL at its newest revision; return it, and the path if it is a file.

    A file that is missing, or was left empty by a full disk, gets its tables by the first write.

    Raises:
        RequestError: the URL is not valid.
        MissingExtra: the URL is for PostgreSQL, and psycopg is not installed.
        StoreError: the database cannot be opened, or was written by a later ModelDyno.
    """
    url, timeout = _parse(text)
    path = Path(url.database or "").expanduser().absolute() if url.drivername == "sqlite" else None
    place = str(path) if path else _without_password(url)
    with as_store_error(place):
        with suppress(FileNotFoundError):
            if path:
                check_no_stream(path)
        if path and _is_empty(path):
            return LazyDatabase(path, timeout), path
        engine = sqlite.engine(path, timeout) if path else postgresql.engine(url, timeout)
    return _migrated(Database(engine, place)), path


def _is_empty(path: Path) -> bool:
    return not path.exists() or path.stat().st_size == 0


def _migrated(database: Database) -> Database:
    """Migrate a database to its newest revision, or close it on failure."""
    try:
        _migrate_if_old(database)
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
            "The URL of the store is not valid; "
            "write sqlite:///path/to/store.db or postgresql://user@host/database."
        )
    return url.difference_update_query(["timeout"]), timeout


def _file_url(text: str) -> URL | None:
    """Parse the URL of a file; SQLAlchemy unquotes it only since 2.1."""
    match = re.fullmatch(r"sqlite:///([^?]+)(?:\?(.*))?", text)
    if match is None or match[1] == ":memory:":
        return None
    return URL.create("sqlite", database=unquote(match[1])).update_query_string(match[2] or "")


def _without_password(url: URL) -> str:
    """Return a server's URL without its password, wherever the password stands in it."""
    return URL.create("postgresql", url.username, None, url.host, url.port, url.database).render_as_string()


def _migrate_if_old(database: Database) -> None:
    revision = _revision(database)
    if revision is None and database.is_file:
        with database.writing() as connection:
            sqlite.create_tables(connection)
        revision = _revision(database)  # an older ModelDyno may have been first
    if revision == REVISION:
        return
    if revision is not None and revision > REVISION:
        raise StoreError(
            f"The store {database.place} was written by a later ModelDyno (revision {revision}; this one "
            f"supports {REVISION}); upgrade ModelDyno, or name another store with MODELDYNO_STORE."
        )
    _migrate(database)


def _revision(database: Database) -> str | None:
    """Return the revision; None if the store has no tables yet."""
    query: Select[Any] = select(func.max(REVISIONS.c.version_num))
    with as_store_error(database.place):
        try:
            with database.reading() as connection:
                return connection.execute(query).scalar()
        except StoreError as error:
            if _is_missing_table(error.__cause__):
                return None
            raise


def _is_missing_table(error: BaseException | None) -> bool:
    cause = error.orig if isinstance(error, DBAPIError) else None
    return getattr(cause, "sqlstate", None) == "42P01" or "no such table" in str(cause)


def _migrate(database: Database) -> None:
    """Migrate in one transaction; of several processes that start at once, only the first has work to do."""
    from alembic import command  # slow to import, and rarely needed
    from alembic.config import Config
    from alembic.util import CommandError

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
        raise StoreError(f"The store {database.place} cannot be upgraded: {error}.") from error

"""Results in a relational database: SQLite in a file, or PostgreSQL by URL.

A Result is one row with its JSON document, compressed where that pays, and the checksum of it; what a
list shows stands beside it, so that listing opens no document and survives a damaged one.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite

from modeldyno import wire
from modeldyno.errors import RequestError, StoreError
from modeldyno.ports import Entry
from modeldyno.stores import database
from modeldyno.stores.artifacts import erase, expired
from modeldyno.stores.tables import ARTIFACTS, KEY_LENGTH, RESULTS, TAGS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import Self

    from sqlalchemy import Connection, Row, Select, Table

    from modeldyno.core.result import Result
    from modeldyno.stores.database import Database

VARIABLE = "MODELDYNO_STORE"
LONGEST_TAG = 100
_LISTED = [c for c in RESULTS.c if c.name in Entry.__dataclass_fields__]
_NEWEST_FIRST = (RESULTS.c.created.desc(), RESULTS.c.id.desc())
_SHOWN = 5
_INSERT = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def open(url: str) -> SqlStore:  # noqa: A001 - a plugin's function, called as store.open(url)
    """Open the store at ``sqlite:///path[?timeout=seconds]`` or ``postgresql://...``; make it if it is new.

    Raises:
        RequestError: the URL is not understood.
        MissingExtra: psycopg is not installed.
        StoreError: the database cannot be opened.
    """
    opened, path = database.connect(url)
    folder = path.with_name(f"{path.name}.artifacts") if path else _data_directory() / "artifacts"
    return SqlStore(opened, folder)


def default_url() -> str:
    """Give the URL of the user's store: MODELDYNO_STORE, or a file in the user's data directory."""
    return os.environ.get(VARIABLE) or f"sqlite:///{quote(str(_data_directory() / 'store.db'))}"


def _data_directory() -> Path:
    try:
        home = Path.home()
    except RuntimeError as error:
        raise StoreError(f"There is no home directory to keep the store in; set {VARIABLE}.") from error
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "modeldyno"
    chosen = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (chosen if chosen.is_absolute() else home / ".local" / "share") / "modeldyno"


class SqlStore:
    """Keeps Results; a context manager, or to be closed."""

    def __init__(self, opened: Database, artifacts: Path) -> None:
        self._database = opened
        self.artifacts = artifacts
        """The directory for files that belong to Results; the only one that is ever cleared."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def put(self, result: Result, *, headline: str) -> None:
        """Keep it; when this returns, it is on disk. Putting the same id again replaces it; its tags stay.

        Raises:
            StoreError: the database cannot be written; it holds what it held before.
        """
        row = _row(result, headline)
        files = [_artifact_row(result, n) for n in range(len(result.artifacts))]
        with self._database.writing() as connection:
            before = _own_files(connection, row["id"])
            upsert = _insert(connection, RESULTS).values(row)
            connection.execute(upsert.on_conflict_do_update(index_elements=["id"], set_=row))
            connection.execute(delete(ARTIFACTS).where(ARTIFACTS.c.result_id == row["id"]))
            if files:
                connection.execute(ARTIFACTS.insert(), files)
        for path in before - {file["path"] for file in files}:
            erase(self.artifacts, path)

    def get(self, prefix: str) -> Result:
        """Give the Result whose id begins with `prefix`, or the newest that has it as a tag.

        Raises:
            RequestError: there is none, or there are several.
            StoreError: the database cannot be read, or the document is damaged.
        """
        with self._database.reading() as connection:
            found = _resolve(connection, prefix)
            query = select(RESULTS.c.document, RESULTS.c.checksum).where(RESULTS.c.id == found)
            document, checksum = connection.execute(query).one()
        origin = f"Result {found} in the store {self._database.place}"
        return wire.decode(_intact(document, checksum, origin), origin=origin)

    def find(self, *, name: str | None = None, tag: str | None = None, limit: int = 50) -> Sequence[Entry]:
        """List, newest first: all, those of a model's name, or those with a tag.

        Raises:
            StoreError: the database cannot be read.
        """
        query = select(*_LISTED).order_by(*_NEWEST_FIRST).limit(max(0, limit))
        if name is not None:
            text = _clean(name)
            query = query.where(RESULTS.c.name_key == text[:KEY_LENGTH], RESULTS.c.name == text)
        if tag is not None:
            tagged = select(TAGS.c.result_id).where(TAGS.c.tag == _clean(tag))
            query = query.where(RESULTS.c.id.in_(tagged))
        with self._database.reading() as connection:
            return _entries(connection, query)

    def tag(self, prefix: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Entry:
        """Add and remove tags; adding one that is there and removing one that is not change nothing.

        Raises:
            RequestError: there is no such Result, or there are several; a tag is empty, or too long.
            StoreError: the database cannot be written.
        """
        added = [_checked_tag(tag) for tag in add]
        with self._database.writing() as connection:
            found = _resolve(connection, prefix)
            gone = TAGS.c.tag.in_([_clean(tag) for tag in remove])
            connection.execute(delete(TAGS).where(TAGS.c.result_id == found, gone))
            if added:
                rows = [{"result_id": found, "tag": tag} for tag in added]
                connection.execute(_insert(connection, TAGS).on_conflict_do_nothing(), rows)
            return _entries(connection, select(*_LISTED).where(RESULTS.c.id == found))[0]

    def remove(self, prefix: str) -> str:
        """Delete a Result and its artifacts; give its id.

        Raises:
            RequestError: there is no such Result, or there are several.
            StoreError: the database cannot be written.
        """
        with self._database.writing() as connection:
            found = _resolve(connection, prefix)
            files = _own_files(connection, found)
            connection.execute(delete(RESULTS).where(RESULTS.c.id == found))
            # Before the commit: should the program die in between, removing again finds what is left.
            for path in files:
                erase(self.artifacts, path)
        return found

    def expire(self, now: datetime) -> list[str]:
        """Delete the artifacts whose time is over, and give their paths; the Results stay.

        Raises:
            StoreError: the database cannot be written.
        """
        with self._database.writing() as connection:
            query = select(ARTIFACTS).where(ARTIFACTS.c.keep_until.is_not(None)).order_by(ARTIFACTS.c.id)
            over = [row for row in connection.execute(query) if expired(row.keep_until, now)]
            connection.execute(delete(ARTIFACTS).where(ARTIFACTS.c.id.in_([row.id for row in over])))
            kept = set(connection.scalars(select(ARTIFACTS.c.path)))
            return [row.path for row in over if row.path not in kept and erase(self.artifacts, row.path)]


def _insert(connection: Connection, table: Table) -> Any:
    return _INSERT[connection.dialect.name](table)


def _row(result: Result, headline: str) -> dict[str, Any]:
    document = _pack(wire.encode(result))
    name = _clean(result.name)
    return {
        "id": _clean(result.id),
        "created": _clean(result.created),
        "name": name,
        "name_key": name[:KEY_LENGTH],
        "digest": result.model.digest if result.model else "",
        "backend": result.job.backend,
        "config": json.dumps(result.job.config),
        "headline": _clean(headline),
        "failed": bool(result.failures),
        "schema": result.schema,
        "checksum": _checksum(document),
        "document": document,
    }


def _artifact_row(result: Result, position: int) -> dict[str, str | None]:
    artifact = result.artifacts[position]
    return {
        "result_id": _clean(result.id),
        "name": _clean(artifact.name),
        "path": _clean(artifact.path),
        "digest": artifact.digest,
        "keep_until": artifact.keep_until,
    }


def _own_files(connection: Connection, found: str) -> set[str]:
    """List the artifacts of a Result that no other Result has too."""
    shared = select(ARTIFACTS.c.path).where(ARTIFACTS.c.result_id != found)
    own = ARTIFACTS.c.result_id == found
    return set(connection.scalars(select(ARTIFACTS.c.path).where(own, ARTIFACTS.c.path.not_in(shared))))


def _resolve(connection: Connection, prefix: str) -> str:
    """Find the one id that is meant: an id, the beginning of one, or a tag."""
    text = _clean(prefix)
    if not text:
        raise RequestError("Name a result by the beginning of its id, one character or more, or by a tag.")
    ids = _beginning_with(connection, text)
    if len(ids) == 1 or text in ids:
        return text if text in ids else ids[0]
    if ids:
        shown = ", ".join(ids[:_SHOWN]) + (", ..." if len(ids) > _SHOWN else "")
        raise RequestError(f"'{text}' begins several ids: {shown}; give more characters of the one you mean.")
    query = select(RESULTS.c.id).join(TAGS).where(TAGS.c.tag == text).order_by(*_NEWEST_FIRST).limit(1)
    tagged = connection.scalar(query)
    if tagged is None:
        raise RequestError(
            f"The store has no result whose id begins with {text[:LONGEST_TAG]!r}, and none with that tag; "
            "modeldyno list shows what it has."
        )
    return str(tagged)


def _beginning_with(connection: Connection, text: str) -> list[str]:
    within = (RESULTS.c.id >= text, RESULTS.c.id <= text + chr(sys.maxunicode))
    query = select(RESULTS.c.id).where(*within).order_by(RESULTS.c.id).limit(_SHOWN + 1)
    return list(connection.scalars(query))


def _entries(connection: Connection, query: Select[Any]) -> list[Entry]:
    rows = connection.execute(query).all()
    ids = select(query.subquery().c.id)
    tags: dict[str, list[str]] = {}
    for owner, tag in connection.execute(select(TAGS).where(TAGS.c.result_id.in_(ids)).order_by(TAGS.c.tag)):
        tags.setdefault(owner, []).append(tag)
    return [_entry(row, tuple(tags.get(row.id, ()))) for row in rows]


def _entry(row: Row[Any], tags: tuple[str, ...]) -> Entry:
    try:
        config = json.loads(row.config)
    except (TypeError, ValueError):  # damaged on disk; the list goes on
        config = {}
    return Entry(**{**row._mapping, "config": config}, tags=tags)  # noqa: SLF001 - its documented name


def _checked_tag(tag: str) -> str:
    if not tag.strip() or len(tag) > LONGEST_TAG or not tag.isprintable():
        raise RequestError(f"A tag is one line of 1 to {LONGEST_TAG} characters, not {tag[:LONGEST_TAG]!r}.")
    return tag


def _clean(text: str) -> str:
    """Replace what no database takes as text: the null character and halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _checksum(document: bytes) -> str:
    return hashlib.sha256(document).hexdigest()


def _pack(document: bytes) -> bytes:
    """Compress where that pays; JSON begins with a brace, and a compressed document never does."""
    packed = zlib.compress(document, level=1)
    return packed if len(packed) < len(document) else document


def _intact(document: bytes, checksum: str, origin: str) -> bytes:
    """Unpack a document that is as it was put."""
    try:
        if checksum == _checksum(document):
            return document if document.startswith(b"{") else zlib.decompress(document)
    except (TypeError, zlib.error):  # the cell no longer holds bytes, or bytes of another making
        pass
    raise StoreError(
        f"{origin} is damaged: its document is not what was put. The other results stay readable; "
        "remove this one with modeldyno rm."
    )

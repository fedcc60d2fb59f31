"""Keeps Results in a relational database: SQLite in a file, or PostgreSQL by URL.

A Result is one row with its JSON document, compressed if that saves space, and a checksum; what a list shows
is in columns of its own, so that listing opens no document and survives a damaged one. The same holds for a
Study and for each of its trials; a trial is written in the same transaction as its Result.
"""

from __future__ import annotations

import os
import stat
import sys
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING
from urllib.parse import quote

from sqlalchemy import delete, exists, select

from modeldyno.base import codec
from modeldyno.base.errors import RequestError, StoreError
from modeldyno.stores import database, results
from modeldyno.stores import live_loads as stored_live_loads
from modeldyno.stores import series as stored_conclusions
from modeldyno.stores import studies as stored_studies
from modeldyno.stores.database import in_transaction
from modeldyno.stores.interface import Store
from modeldyno.stores.prune import old_conclusions, old_results
from modeldyno.stores.rows import after_mark, find_id_by_prefix, insert, storable_text, verified_document
from modeldyno.stores.schema import ARTIFACTS, ATTACHED, CONCLUSIONS, KEY_LENGTH, RESULTS, TAGS, TRIALS
from modeldyno.stores.where import clause

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from typing import Self

    from sqlalchemy import Connection

    from modeldyno.base.document import Conclusion
    from modeldyno.base.result.result import Result
    from modeldyno.base.result.where import Expression
    from modeldyno.registry.store.sql_registry import SqlRegistry
    from modeldyno.stores.database import Database, LazyDatabase
    from modeldyno.stores.interface import Entry, OldDocument
    from modeldyno.sweeps.study.study import Study

VARIABLE = "MODELDYNO_STORE"
LONGEST_TAG = 100
_WALK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def open(url: str) -> SqlStore:  # noqa: A001 - the name that store plugins have to export
    """Open the store at ``sqlite:///path[?timeout=seconds]`` or ``postgresql://...``.

    A missing file is created by the first write.

    Raises:
        RequestError: the URL is not valid.
        MissingExtra: psycopg is not installed.
        StoreError: the database cannot be opened.
    """
    opened, path = database.connect(url)
    folder = path.with_name(f"{path.name}.artifacts") if path else _data_directory() / "artifacts"
    return SqlStore(opened, folder)


def default_url() -> str:
    """Return the URL of the user's store: MODELDYNO_STORE, or a file in the user's data directory."""
    return os.environ.get(VARIABLE) or f"sqlite:///{quote(str(_data_directory() / 'store.db'))}"


def _data_directory() -> Path:
    try:
        home = Path.home()
    except RuntimeError as error:
        raise StoreError(f"There is no home directory to keep the store in; set {VARIABLE}.") from error
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "modeldyno"
    data_home = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (data_home if data_home.is_absolute() else home / ".local" / "share") / "modeldyno"


class SqlStore(Store):
    """A store of Results and Studies in a database; see `modeldyno.stores.interface.Store`."""

    def __init__(self, opened: Database | LazyDatabase, artifacts: Path) -> None:
        self._database = opened
        self.place = opened.place
        """Where it is, for messages; without a password."""
        self.artifacts = artifacts
        """The directory for files that belong to Results; the only one where files are deleted."""

    @cached_property
    def registry(self) -> SqlRegistry:
        """The models that are registered in it."""
        from modeldyno.registry.store.sql_registry import SqlRegistry  # a run needs none of it

        return SqlRegistry(self._database, self.artifacts.with_suffix(".models"))

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._database.reading()

    def _writing(self) -> AbstractContextManager[Connection]:
        return self._database.writing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def put(self, result: Result, *, headline: str) -> None:
        with self._database.writing() as connection:
            gone = results.put(connection, result, headline)
        for path in gone:
            erase(self.artifacts, path)

    def get(self, prefix: str) -> Result:
        with self._database.reading() as connection:
            result_id = _resolve(connection, prefix)
            query = select(RESULTS.c.document, RESULTS.c.checksum).where(RESULTS.c.id == result_id)
            data, checksum = connection.execute(query).one()
        origin = f"Result {result_id} in the store {self._database.place}"
        return codec.decode(verified_document(data, checksum, origin, results.ADVICE), origin=origin)

    def document(self, identifier: str) -> bytes | None:
        with self._database.reading() as connection:
            for table in (RESULTS, CONCLUSIONS):
                query = select(table.c.document, table.c.checksum).where(table.c.id == identifier)
                row = connection.execute(query).one_or_none()
                if row is not None:
                    origin = f"Document {identifier} in the store {self._database.place}"
                    return verified_document(row.document, row.checksum, origin, results.ADVICE)
        return None

    def head(self, identifier: str) -> Result:
        with self._database.reading() as connection:
            result = results.head(connection, storable_text(identifier), self._database.place)
        if result is None:
            raise RequestError(f"The store has no result {identifier!r}; modeldyno list shows what it has.")
        return result

    def change_mark(self) -> str:
        return self._database.change_mark()

    def find(
        self,
        *,
        name: str | None = None,
        tag: str | None = None,
        limit: int = 50,
        where: Expression | None = None,
        before: str = "",
    ) -> Sequence[Entry]:
        query = select(*results.LISTED).order_by(*results.NEWEST_FIRST).limit(max(0, limit))
        query = query.where(after_mark(RESULTS, before))
        if name is not None:
            cleaned = storable_text(name)
            query = query.where(RESULTS.c.name_key == cleaned[:KEY_LENGTH], RESULTS.c.name == cleaned)
        if tag is not None:
            tagged = select(TAGS.c.result_id).where(TAGS.c.tag == storable_text(tag))
            query = query.where(RESULTS.c.id.in_(tagged))
        else:
            query = query.where(~exists().where(TRIALS.c.result_id == RESULTS.c.id))
        with self._database.reading() as connection:
            if where is not None:
                query = query.where(clause(connection, where))
            return results.entries(connection, query)

    names = in_transaction(_reading, results.names)

    def tag(self, prefix: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Entry:
        added = [_checked_tag(tag) for tag in add]
        only_asked = not added and not remove
        with self._database.reading() if only_asked else self._database.writing() as connection:
            result_id = _resolve(connection, prefix)
            if remove:
                removed = TAGS.c.tag.in_([storable_text(tag) for tag in remove])
                connection.execute(delete(TAGS).where(TAGS.c.result_id == result_id, removed))
            if added:
                rows = [{"result_id": result_id, "tag": tag} for tag in added]
                connection.execute(insert(connection, TAGS).on_conflict_do_nothing(), rows)
            return results.entries(connection, select(*results.LISTED).where(RESULTS.c.id == result_id))[0]

    def remove(self, prefix: str) -> str:
        with self._database.writing() as connection:
            result_id = _resolve(connection, prefix)
            self._delete(connection, result_id)
        return result_id

    def prune(self, before: str, *, keep: int, dry_run: bool = False) -> Sequence[OldDocument]:
        with self._database.reading() if dry_run else self._database.writing() as connection:
            old = old_results(connection, before, keep)
            conclusions = old_conclusions(connection, before, keep)
            if not dry_run:
                for document in old:
                    self._delete(connection, document.id)
                for document in conclusions:
                    stored_conclusions.remove(connection, document.id)
        if not dry_run and (old or conclusions):
            self._database.give_back_space()
        return [*old, *conclusions]

    def _delete(self, connection: Connection, result_id: str) -> None:
        files = results.own_files(connection, result_id)
        connection.execute(delete(RESULTS).where(RESULTS.c.id == result_id))
        connection.execute(delete(ATTACHED).where(ATTACHED.c.document == result_id))
        # Before the commit: if the program dies in between, another removal deletes the rest.
        for path in files:
            erase(self.artifacts, path)

    def expire(self, now: datetime) -> list[str]:
        with self._database.writing() as connection:
            query = select(ARTIFACTS).where(ARTIFACTS.c.keep_until.is_not(None)).order_by(ARTIFACTS.c.id)
            expired_rows = [row for row in connection.execute(query) if is_expired(row.keep_until, now)]
            connection.execute(delete(ARTIFACTS).where(ARTIFACTS.c.id.in_([row.id for row in expired_rows])))
            kept = set(connection.scalars(select(ARTIFACTS.c.path)))
            return [
                row.path for row in expired_rows if row.path not in kept and erase(self.artifacts, row.path)
            ]

    put_study = in_transaction(_writing, stored_studies.put)

    def add_trial(self, study: Study, result: Result | None, *, headline: str, brief: str = "") -> None:
        gone: set[str] = set()
        with self._database.writing() as connection:
            stored_studies.check_last(connection, study, self._database.place)
            if result is not None:
                gone = results.put(connection, result, brief)
            stored_studies.put(connection, study, headline=headline)
        for path in gone:
            erase(self.artifacts, path)

    def study(self, prefix: str) -> Study:
        with self._database.reading() as connection:
            study_id = stored_studies.resolve(connection, prefix)
            return stored_studies.get(connection, study_id, self._database.place)

    studies = in_transaction(_reading, stored_studies.find)

    def remove_study(self, prefix: str) -> str:
        with self._database.writing() as connection:
            study_id = stored_studies.resolve(connection, prefix)
            for result in stored_studies.untagged_results(connection, study_id):
                self._delete(connection, result)
            stored_studies.remove(connection, study_id)
        return study_id

    put_conclusion = in_transaction(_writing, stored_conclusions.put)

    def conclusion(self, prefix: str) -> Conclusion:
        with self._database.reading() as connection:
            conclusion_id = stored_conclusions.resolve(connection, prefix)
            return stored_conclusions.get(connection, conclusion_id, self._database.place)

    conclusions = in_transaction(_reading, stored_conclusions.find)
    put_live_load = in_transaction(_writing, stored_live_loads.put)
    live_loads = in_transaction(_reading, stored_live_loads.find)

    def remove_conclusion(self, prefix: str) -> str:
        with self._database.writing() as connection:
            conclusion_id = stored_conclusions.resolve(connection, prefix)
            stored_conclusions.remove(connection, conclusion_id)
        return conclusion_id


def _resolve(connection: Connection, prefix: str) -> str:
    """Return the one id that is meant: an id, a tag, or the beginning of an id."""
    text = storable_text(prefix)
    if not text:
        raise RequestError("Give at least the first character of the result's id, or a tag.")
    query = select(RESULTS.c.id).join(TAGS).where(TAGS.c.tag == text).order_by(*results.NEWEST_FIRST).limit(1)
    exact_id = connection.scalar(select(RESULTS.c.id).where(RESULTS.c.id == text))
    result_id = exact_id or connection.scalar(query) or find_id_by_prefix(connection, RESULTS, text)
    if result_id is None:
        raise RequestError(
            f"The store has no result whose id begins with {text[:LONGEST_TAG]!r}, and none with that tag; "
            "modeldyno list shows what it has."
        )
    return str(result_id)


def _checked_tag(tag: str) -> str:
    if not tag.strip() or len(tag) > LONGEST_TAG or not tag.isprintable():
        raise RequestError(f"A tag is one line of 1 to {LONGEST_TAG} characters, not {tag[:LONGEST_TAG]!r}.")
    return tag


def relative_to_store(root: Path, path: str) -> PurePath | None:
    """Return a path relative to `root`; None if, as written, it leads elsewhere."""
    relative = PurePath(path)
    if relative.is_absolute():
        roots = [candidate for candidate in (root, root.resolve()) if relative.is_relative_to(candidate)]
        if not roots:
            return None
        relative = relative.relative_to(roots[0])
    if not relative.parts or ".." in relative.parts or "\0" in path:
        return None
    return relative


def erase(root: Path, path: str) -> bool:
    """Delete one regular file below `root`; return False if it is elsewhere, behind a link, or missing.

    Directories are opened one by one by descriptor, without following links, so that no other process can
    put a link there between the check and the deletion.
    """
    relative = relative_to_store(root, path)
    if relative is None:
        return False
    descriptors: list[int] = []
    try:
        descriptors.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY))
        for name in relative.parts[:-1]:
            descriptors.append(os.open(name, _WALK, dir_fd=descriptors[-1]))
        if not stat.S_ISREG(os.stat(relative.name, dir_fd=descriptors[-1], follow_symlinks=False).st_mode):
            return False
        os.unlink(relative.name, dir_fd=descriptors[-1])
    except OSError:
        return False
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return True


def is_expired(keep_until: str | None, now: datetime) -> bool:
    """Return whether a file's time is over; False if the time is missing or unreadable."""
    try:
        moment = datetime.fromisoformat(keep_until or "")
    except ValueError:
        return False
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) <= now

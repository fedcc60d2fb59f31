"""Shared parts of a store's tables: text, documents with checksums, ids by prefix."""

from __future__ import annotations

import hashlib
import sys
import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from sqlalchemy import and_, or_, select, true

from modeldyno.base.codec.numbers import check_numbers
from modeldyno.base.errors import RequestError, StoreError, short_reason
from modeldyno.stores.schema import KEY_LENGTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, Row, Table

    from modeldyno.base.document import MeasuredAt

SHOWN = 5
"""Number of ids that an error message lists."""
_LARGEST_INTEGER = 2**31 - 1
"""Of a column of PostgreSQL."""
_LEVEL = 6
"""Of compression: a million samples take 40 % less space than at level 1, and a third of a second."""
NAME_LIMIT = 100
"""Characters of a name that an error message quotes."""
Record = TypeVar("Record")


def insert(connection: Connection, table: Table) -> Any:
    """Return an insert statement that supports ON CONFLICT."""
    dialect = import_module(f"sqlalchemy.dialects.{connection.dialect.name}")
    return dialect.insert(table)


def replace(connection: Connection, table: Table, row: dict[str, Any], key: Sequence[str] = ("id",)) -> None:
    """Insert a row, or replace the one that has its key."""
    upsert = insert(connection, table).values(row)
    connection.execute(upsert.on_conflict_do_update(index_elements=key, set_=row))


def record_row(table: Table, record: Any, **columns: Any) -> dict[str, Any]:
    """Return the row of a record: columns, what it has of the others by their names, and itself encoded."""
    values = {name: getattr(record, name) for name in table.c.keys() if hasattr(record, name)}  # noqa: SIM118 - not the columns
    texts = {name: storable_text(value) for name, value in values.items() if isinstance(value, str)}
    return {**values, **texts, "document": encode(record), **columns}


def place_columns(at: MeasuredAt) -> dict[str, Any]:
    """Return the columns that say where a document was measured."""
    texts = {"host": at.host, "device": at.device, "engine": at.engine}
    return {
        **{name: storable_text(text) for name, text in texts.items()},
        "batch_size": min(at.batch_size, _LARGEST_INTEGER),
    }


def storable_text(text: str) -> str:
    """Replace what no database accepts as text: the null character and lone surrogates."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def document_columns(data: bytes) -> dict[str, Any]:
    """Return the columns of a document."""
    packed = pack(data)
    return {"checksum": checksum(packed), "document": packed}


def pack(data: bytes) -> bytes:
    """Compress if that saves space; JSON starts with a brace, and a compressed document never does."""
    packed = zlib.compress(data, level=_LEVEL)
    return packed if len(packed) < len(data) else data


def verified_document(data: bytes, mark: str, origin: str, advice: str) -> bytes:
    """Return a document, unpacked, if its checksum is right.

    Raises:
        StoreError: the document is damaged; `origin` says which one, `advice` what to do.
    """
    try:
        if mark == checksum(data):
            return data if data.startswith(b"{") else zlib.decompress(data)
    except (TypeError, zlib.error):  # the cell does not hold bytes, or not compressed ones
        pass
    raise StoreError(f"{origin} is damaged: the checksum of its document is wrong. {advice}")


def checksum(data: bytes) -> str:
    """Return the SHA-256 of a document as stored."""
    return hashlib.sha256(data).hexdigest()


def find_id_by_prefix(connection: Connection, table: Table, text: str) -> str | None:
    """Return the one id that equals or starts with a text; None if there is none.

    Raises:
        RequestError: several ids start with it.
    """
    in_range = (table.c.id >= text, table.c.id <= text + chr(sys.maxunicode))
    query = select(table.c.id).where(*in_range).order_by(table.c.id).limit(SHOWN + 1)
    ids = list(connection.scalars(query))
    if text in ids:
        return text
    if len(ids) > 1:
        listed = ", ".join(ids[:SHOWN]) + (", ..." if len(ids) > SHOWN else "")
        raise RequestError(f"Several ids start with '{text}': {listed}; give more characters.")
    return ids[0] if ids else None


def name_matches(table: Table, name: str) -> tuple[Any, Any]:
    """Return the conditions on the name of a study or a series."""
    text = storable_text(name)
    return table.c.name_key == text[:KEY_LENGTH], table.c.name == text


def newest_first(table: Table) -> tuple[Any, Any]:
    """Return the order of a list."""
    return table.c.created.desc(), table.c.id.desc()


def after_mark(table: Table, mark: str) -> ColumnElement[bool]:
    """Return the condition that a row comes after a place in a list, newest first; all do if it is empty."""
    if not mark:
        return true()
    # Of several rows of one time, none is left out between two pages.
    created, _, identifier = storable_text(mark).partition("/")
    older = table.c.created < created
    return or_(older, and_(table.c.created == created, table.c.id < identifier)) if identifier else older


def find_entries(
    connection: Connection, table: Table, entry: Any, *conditions: ColumnElement[bool], limit: int
) -> Sequence[Row[Any]]:
    """Return the columns that a list entry has of the rows that meet all conditions, newest first."""
    columns = [column for column in table.c if column.name in entry.__dataclass_fields__]
    query = select(*columns).where(*conditions).order_by(*newest_first(table)).limit(max(0, limit))
    return connection.execute(query).all()


def document_row(document: Any, name: str, headline: str, data: bytes) -> dict[str, Any]:
    """Return the columns that the rows of a study and of a series share."""
    stored_name = storable_text(name)
    return {
        "id": storable_text(document.id),
        "created": storable_text(document.created),
        "name": stored_name,
        "name_key": stored_name[:KEY_LENGTH],
        "headline": storable_text(headline),
        "schema": document.schema,
        **document_columns(data),
    }


def encode(record: Any) -> bytes:
    """Encode a record.

    Raises:
        RequestError: a text in it is none, such as a path whose bytes are no characters, or a number is one
            that no document can hold.
    """
    check_numbers(record, type(record).__name__.lower())
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError as error:
        raise RequestError(f"{error.object[:60]!r} cannot be stored: it is not valid Unicode.") from None


def decode(data: bytes, kind: type[Record]) -> Record:
    """Decode a record; what an older ModelDyno did not write has its default.

    Raises:
        StoreError: it is damaged, or of a later ModelDyno.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, RequestError) as error:
        raise StoreError(
            f"A {kind.__name__.lower()} in the registry is damaged, or of a later ModelDyno "
            f"({short_reason(error)}); upgrade ModelDyno, or name another store with MODELDYNO_STORE."
        ) from error

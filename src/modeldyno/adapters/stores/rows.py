"""What the tables of a store have in common: text, documents with their checksums, ids by their beginning."""

from __future__ import annotations

import hashlib
import sys
import zlib
from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite

from modeldyno.errors import RequestError, StoreError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

SHOWN = 5
"""Ids that a mistake is answered with."""
_INSERT = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def insert(connection: Connection, table: Table) -> Any:
    """Give an insertion that knows what to do on a conflict."""
    return _INSERT[connection.dialect.name](table)


def replace(connection: Connection, table: Table, row: dict[str, Any]) -> None:
    """Put a row with an id in the place of the one that has it."""
    upsert = insert(connection, table).values(row)
    connection.execute(upsert.on_conflict_do_update(index_elements=["id"], set_=row))


def clean(text: str) -> str:
    """Replace what no database takes as text: the null character and halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def document(data: bytes) -> dict[str, Any]:
    """Give the columns of a document."""
    packed = pack(data)
    return {"checksum": checksum(packed), "document": packed}


def pack(data: bytes) -> bytes:
    """Compress where that pays; JSON begins with a brace, and a compressed document never does."""
    packed = zlib.compress(data, level=1)
    return packed if len(packed) < len(data) else data


def intact(data: bytes, mark: str, origin: str, advice: str) -> bytes:
    """Unpack a document that is as it was put, by its checksum.

    Raises:
        StoreError: it is not; `origin` says what is damaged, `advice` what to do.
    """
    try:
        if mark == checksum(data):
            return data if data.startswith(b"{") else zlib.decompress(data)
    except (TypeError, zlib.error):  # the cell no longer holds bytes, or bytes of another making
        pass
    raise StoreError(f"{origin} is damaged: its document is not what was put. {advice}")


def checksum(data: bytes) -> str:
    """Give the SHA-256 of a document as it stands in its cell."""
    return hashlib.sha256(data).hexdigest()


def by_beginning(connection: Connection, table: Table, text: str) -> str | None:
    """Find the one id that begins with a text, or is it; None where there is none.

    Raises:
        RequestError: there are several.
    """
    within = (table.c.id >= text, table.c.id <= text + chr(sys.maxunicode))
    query = select(table.c.id).where(*within).order_by(table.c.id).limit(SHOWN + 1)
    ids = list(connection.scalars(query))
    if text in ids:
        return text
    if len(ids) > 1:
        shown = ", ".join(ids[:SHOWN]) + (", ..." if len(ids) > SHOWN else "")
        raise RequestError(f"'{text}' begins several ids: {shown}; give more characters of the one you mean.")
    return ids[0] if ids else None

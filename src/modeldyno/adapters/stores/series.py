"""Conclusions in a store, one row each; all functions run within a transaction of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select

from modeldyno import kinds
from modeldyno.adapters.stores.rows import (
    document_columns,
    find_id_by_prefix,
    replace,
    storable_text,
    verified_document,
)
from modeldyno.adapters.stores.schema import CONCLUSIONS, KEY_LENGTH
from modeldyno.errors import RequestError
from modeldyno.interfaces.store import Conclusion, ConclusionEntry

if TYPE_CHECKING:
    from sqlalchemy import Connection


_NEWEST_FIRST = (CONCLUSIONS.c.created.desc(), CONCLUSIONS.c.id.desc())
_ADVICE = "The results that it is based on stay readable; remove this one with modeldyno rm."
_NAME_LIMIT = 100
"""Characters of a name that an error message quotes."""


def put(connection: Connection, conclusion: Conclusion, headline: str) -> None:
    """Insert a Conclusion, or replace the one that has its id."""
    replace(connection, CONCLUSIONS, _row(conclusion, headline))


def get(connection: Connection, conclusion_id: str, place: str) -> Conclusion:
    """Return a Conclusion.

    Raises:
        StoreError: the document is damaged.
    """
    origin = f"Document {conclusion_id} in the store {place}"
    query = select(CONCLUSIONS.c.document, CONCLUSIONS.c.checksum).where(CONCLUSIONS.c.id == conclusion_id)
    data, checksum = connection.execute(query).one()
    conclusion = kinds.decode(verified_document(data, checksum, origin, _ADVICE), origin=origin)
    assert isinstance(conclusion, Conclusion)
    return conclusion


def find(connection: Connection, name: str | None, limit: int) -> list[ConclusionEntry]:
    """Return the entries of Conclusions, newest first."""
    columns = [column for column in CONCLUSIONS.c if column.name in ConclusionEntry.__dataclass_fields__]
    query = select(*columns).order_by(*_NEWEST_FIRST).limit(max(0, limit))
    if name is not None:
        cleaned = storable_text(name)
        query = query.where(CONCLUSIONS.c.name_key == cleaned[:KEY_LENGTH], CONCLUSIONS.c.name == cleaned)
    return [ConclusionEntry(**row._mapping) for row in connection.execute(query)]  # noqa: SLF001 - documented


def remove(connection: Connection, conclusion_id: str) -> None:
    """Delete a Conclusion; the Results stay."""
    connection.execute(delete(CONCLUSIONS).where(CONCLUSIONS.c.id == conclusion_id))


def resolve(connection: Connection, prefix: str) -> str:
    """Return the one id that is meant: an id, or its beginning.

    Raises:
        RequestError: there is none, or there are several.
    """
    text = storable_text(prefix)
    if not text:
        raise RequestError("Give at least the first character of the document's id.")
    conclusion_id = find_id_by_prefix(connection, CONCLUSIONS, text)
    if conclusion_id is None:
        raise RequestError(
            f"The store has no comparison and no load series whose id begins with {text[:_NAME_LIMIT]!r}; "
            "modeldyno list shows what it has."
        )
    return conclusion_id


def _row(conclusion: Conclusion, headline: str) -> dict[str, Any]:
    name, kind = storable_text(conclusion.name), kinds.kind_of(conclusion)
    return {
        "id": storable_text(conclusion.id),
        "created": storable_text(conclusion.created),
        "kind": kind.name,
        "name": name,
        "name_key": name[:KEY_LENGTH],
        "headline": storable_text(headline),
        "schema": conclusion.schema,
        **document_columns(kind.encode(conclusion)),
    }

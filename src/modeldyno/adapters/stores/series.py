"""Conclusions in a store, a row for each, within a transaction of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select

from modeldyno.adapters.stores.rows import by_beginning, clean, document, intact, replace
from modeldyno.adapters.stores.schema import CONCLUSIONS, KEY_LENGTH
from modeldyno.codec import series as codec_series
from modeldyno.core.comparison.saved_kinds import kind_of, name_of
from modeldyno.errors import RequestError
from modeldyno.interfaces import ConclusionEntry

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from modeldyno.core.comparison.saved_kinds import Conclusion

_NEWEST_FIRST = (CONCLUSIONS.c.created.desc(), CONCLUSIONS.c.id.desc())
_ADVICE = "The results that it was concluded from stay readable; remove this one with modeldyno rm."
_SHOWN = 100
"""Characters of a name that a mistake is answered with."""


def put(connection: Connection, found: Conclusion, headline: str) -> None:
    """Put the row of a Conclusion, in the place of the one that has its id."""
    replace(connection, CONCLUSIONS, _row(found, headline))


def get(connection: Connection, found: str, place: str) -> Conclusion:
    """Read a Conclusion.

    Raises:
        StoreError: the document is damaged.
    """
    origin = f"Document {found} in the store {place}"
    query = select(CONCLUSIONS.c.document, CONCLUSIONS.c.checksum).where(CONCLUSIONS.c.id == found)
    data, checksum = connection.execute(query).one()
    return codec_series.decode(intact(data, checksum, origin, _ADVICE), origin=origin)


def find(connection: Connection, name: str | None, limit: int) -> list[ConclusionEntry]:
    """List, newest first."""
    columns = [c for c in CONCLUSIONS.c if c.name in ConclusionEntry.__dataclass_fields__]
    query = select(*columns).order_by(*_NEWEST_FIRST).limit(max(0, limit))
    if name is not None:
        text = clean(name)
        query = query.where(CONCLUSIONS.c.name_key == text[:KEY_LENGTH], CONCLUSIONS.c.name == text)
    return [ConclusionEntry(**row._mapping) for row in connection.execute(query)]  # noqa: SLF001 - documented


def remove(connection: Connection, found: str) -> None:
    """Delete a Conclusion; the Results stay."""
    connection.execute(delete(CONCLUSIONS).where(CONCLUSIONS.c.id == found))


def resolve(connection: Connection, prefix: str) -> str:
    """Find the one id that is meant: an id, or the beginning of one.

    Raises:
        RequestError: there is none, or there are several.
    """
    text = clean(prefix)
    if not text:
        raise RequestError("Name a document by the beginning of its id, one character or more.")
    found = by_beginning(connection, CONCLUSIONS, text)
    if found is None:
        raise RequestError(
            f"The store has no comparison and no series of loads whose id begins with {text[:_SHOWN]!r}; "
            "modeldyno list shows what it has."
        )
    return found


def _row(found: Conclusion, headline: str) -> dict[str, Any]:
    name = clean(name_of(found))
    return {
        "id": clean(found.id),
        "created": clean(found.created),
        "kind": kind_of(found),
        "name": name,
        "name_key": name[:KEY_LENGTH],
        "headline": clean(headline),
        "schema": found.schema,
        **document(codec_series.encode(found)),
    }

"""Conclusions in a store, one row each; all functions run within a transaction of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, select

from modeldyno.base.document import Conclusion
from modeldyno.base.errors import RequestError
from modeldyno.stores.interface import ConclusionEntry
from modeldyno.stores.rows import (
    NAME_LIMIT,
    after_mark,
    document_row,
    find_entries,
    find_id_by_prefix,
    insert,
    name_matches,
    place_columns,
    replace,
    storable_text,
    verified_document,
)
from modeldyno.stores.schema import ATTACHED, CONCLUSION_MODELS, CONCLUSIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

_ADVICE = "The results that it is based on stay readable; remove this one with modeldyno rm."


def put(connection: Connection, conclusion: Conclusion, *, headline: str) -> None:
    """Insert a Conclusion, or replace the one that has its id."""
    from modeldyno.base.kinds import kind_of  # a run keeps Results only, and imports no other kind

    kind = kind_of(conclusion)
    row = document_row(conclusion, conclusion.name, headline, kind.encode(conclusion))
    replace(connection, CONCLUSIONS, {"kind": kind.name, **row})
    _put_models(connection, row["id"], conclusion)


def _put_models(connection: Connection, conclusion_id: str, conclusion: Conclusion) -> None:
    """Write of which models a Conclusion has figures, and where they were measured."""
    connection.execute(delete(CONCLUSION_MODELS).where(CONCLUSION_MODELS.c.conclusion == conclusion_id))
    digests, measured_at = conclusion.model_digests, conclusion.measured_at
    if digests and measured_at is not None:
        place = place_columns(measured_at)
        connection.execute(
            insert(connection, CONCLUSION_MODELS),
            [
                {"conclusion": conclusion_id, "digest": storable_text(digest), **place}
                for digest in sorted(digests)
            ],
        )


def get(connection: Connection, conclusion_id: str, place: str) -> Conclusion:
    """Return a Conclusion.

    Raises:
        StoreError: the document is damaged.
    """
    from modeldyno.base.kinds import decode  # as above

    origin = f"Document {conclusion_id} in the store {place}"
    query = select(CONCLUSIONS.c.document, CONCLUSIONS.c.checksum).where(CONCLUSIONS.c.id == conclusion_id)
    data, checksum = connection.execute(query).one()
    conclusion = decode(verified_document(data, checksum, origin, _ADVICE), origin=origin)
    assert isinstance(conclusion, Conclusion)
    return conclusion


def find(
    connection: Connection,
    *,
    name: str | None = None,
    kinds: Sequence[str] = (),
    limit: int = 50,
    before: str = "",
) -> list[ConclusionEntry]:
    """Return the entries of Conclusions after a place in the list, newest first."""
    conditions = (
        *(() if name is None else name_matches(CONCLUSIONS, name)),
        *((CONCLUSIONS.c.kind.in_(kinds),) if kinds else ()),
        after_mark(CONCLUSIONS, before),
    )
    rows = find_entries(connection, CONCLUSIONS, ConclusionEntry, *conditions, limit=limit)
    return [ConclusionEntry(**row._mapping) for row in rows]


def remove(connection: Connection, conclusion_id: str) -> None:
    """Delete a Conclusion; the Results stay."""
    connection.execute(delete(CONCLUSIONS).where(CONCLUSIONS.c.id == conclusion_id))
    connection.execute(delete(ATTACHED).where(ATTACHED.c.document == conclusion_id))


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
            "The store has no comparison, load series or conversion whose id begins with "
            f"{text[:NAME_LIMIT]!r}; modeldyno list shows what it has."
        )
    return conclusion_id

"""Old documents that nothing refers to; all functions run within a transaction of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import and_, func, select

from modeldyno.stores.interface import OldDocument
from modeldyno.stores.schema import ATTACHED, CONCLUSIONS, FIGURES, RESULTS, TAGS, TASKS, TRIALS

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Subquery, Table

_CONVERSION = "conversion"
"""A kind of document that belongs to a variant."""


def old_results(connection: Connection, before: str, keep: int) -> list[OldDocument]:
    """Return Results from before a time that no tag, study, figure or version needs, the oldest first.

    Args:
        connection: of a transaction.
        before: a time of UTC, ISO 8601.
        keep: so many of the newest of each name and backend are not among them.
    """
    ranked = _ranked(RESULTS, RESULTS.c.name, RESULTS.c.backend)
    needed = (TAGS.c.result_id, TRIALS.c.result_id, FIGURES.c.result, ATTACHED.c.document)
    unneeded = (ranked.c.id.not_in(select(column).where(column.is_not(None))) for column in needed)
    return _old(connection, ranked, before, keep, *unneeded)


def old_conclusions(connection: Connection, before: str, keep: int) -> list[OldDocument]:
    """Return comparisons, loads and explanations from before a time, likewise."""
    ranked = _ranked(CONCLUSIONS, CONCLUSIONS.c.name, CONCLUSIONS.c.kind)
    needed = (TASKS.c.result, ATTACHED.c.document)
    unneeded = (ranked.c.id.not_in(select(column)) for column in needed)
    return _old(connection, ranked, before, keep, ranked.c.kind != _CONVERSION, *unneeded)


def _ranked(table: Table, *group: ColumnElement[str]) -> Subquery:
    newest_first = (table.c.created.desc(), table.c.id.desc())
    place = func.row_number().over(partition_by=group, order_by=newest_first)
    size = func.length(table.c.document)
    columns = (table.c.id, table.c.created, *group, size.label("size"), place.label("place"))
    return select(*columns).subquery()


def _old(
    connection: Connection, ranked: Subquery, before: str, keep: int, *conditions: ColumnElement[bool]
) -> list[OldDocument]:
    query = select(ranked.c.id, ranked.c.size).where(
        and_(ranked.c.created < before, ranked.c.place > keep, *conditions)
    )
    rows = connection.execute(query.order_by(ranked.c.created, ranked.c.id))
    return [OldDocument(id=row.id, size=row.size) for row in rows]

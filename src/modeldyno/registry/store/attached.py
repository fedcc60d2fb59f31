"""What is listed under a version: documents of the same model, and those that were attached to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, delete, or_, select

from modeldyno.base import codec
from modeldyno.base.document import MeasuredAt
from modeldyno.base.job.version_name import VersionName
from modeldyno.registry.records.records import AttachedDocument, VersionMeasurement
from modeldyno.registry.store import events, versions
from modeldyno.stores import rows
from modeldyno.stores.results import HEAD
from modeldyno.stores.schema import ATTACHED, CONCLUSION_MODELS, CONCLUSIONS, FACTS, RESULTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, Row, Table

    from modeldyno.registry.records.records import Version

_PLACE = ("host", "device", "engine", "batch_size")
_RESULT = "result"


def attach(
    connection: Connection, document: AttachedDocument, actor: str, *, replace: bool = False
) -> tuple[str, ...]:
    """List a document under a version; return the ids of those in whose place it is.

    Args:
        connection: of a write transaction.
        document: the document; if it is attached already, its place changes.
        actor: who does it.
        replace: detach the others of the same host, device, engine and batch size.

    Raises:
        RequestError: there is no such version.
    """
    versions.resolve(connection, VersionName(model=document.model, number=document.number))
    place = rows.place_columns(document.at)
    before: tuple[str, ...] = ()
    if replace:
        same = and_(*(ATTACHED.c[name] == value for name, value in place.items()))
        others = and_(_of(document.model, document.number), same, ATTACHED.c.document != document.document)
        before = tuple(connection.scalars(delete(ATTACHED).where(others).returning(ATTACHED.c.document)))
    row = {
        "model": document.model, "number": document.number, "document": document.document,
        "kind": document.kind, **place,
    }  # fmt: skip
    rows.replace(connection, ATTACHED, row, key=["model", "number", "document"])
    events.record(
        connection,
        actor,
        f"{document.kind}.attached",
        document.version,
        document=document.document,
        **place,
        **({"replaces": ", ".join(before)} if before else {}),
    )
    return before


def detach(connection: Connection, version: Version, documents: Sequence[str], actor: str) -> int:
    """List documents no more under a version, unless they are of the same model; return how many were."""
    some = and_(_of(version.model, version.number), ATTACHED.c.document.in_(documents))
    gone = connection.execute(delete(ATTACHED).where(some).returning(ATTACHED.c.document, ATTACHED.c.kind))
    detached = gone.all()
    for row in detached:
        events.record(connection, actor, f"{row.kind}.detached", version.name, document=row.document)
    return len(detached)


def attached(connection: Connection, version: Version) -> list[AttachedDocument]:
    """Return what is attached to a version."""
    query = select(ATTACHED).where(_of(version.model, version.number)).order_by(ATTACHED.c.document)
    return [
        AttachedDocument(
            model=row.model, number=row.number, document=row.document, kind=row.kind, at=_place(row)
        )
        for row in connection.execute(query)
    ]


def measurements(
    connection: Connection, version: Version, digests: Sequence[str], *, limit: int
) -> list[VersionMeasurement]:
    """Return what is listed under a version, the newest first.

    Args:
        connection: of a transaction.
        version: the version.
        digests: of it and its variants.
        limit: maximum number.
    """
    by_id = {one.document: one.at for one in attached(connection, version)}
    by_hand = select(ATTACHED.c.document).where(_of(version.model, version.number))
    of_results = _newest(RESULTS, or_(RESULTS.c.digest.in_(digests), RESULTS.c.id.in_(by_hand)), limit)
    listed = [
        _measurement(row, _RESULT, by_id.get(row.id) or _place_of_result(row), row.id in by_id)
        for row in connection.execute(
            of_results.add_columns(FACTS.c.text.label("head")).outerjoin(
                FACTS, and_(FACTS.c.result_id == RESULTS.c.id, FACTS.c.name == HEAD)
            )
        )
    ]
    of_models = CONCLUSION_MODELS.c.digest.in_(digests)
    by_model = select(CONCLUSION_MODELS.c.conclusion).where(of_models)
    places = {
        row.conclusion: _place(row) for row in connection.execute(select(CONCLUSION_MODELS).where(of_models))
    } | by_id
    of_conclusions = _newest(
        CONCLUSIONS, or_(CONCLUSIONS.c.id.in_(by_model), CONCLUSIONS.c.id.in_(by_hand)), limit
    )
    listed += [
        _measurement(row, row.kind, places[row.id], row.id in by_id)
        for row in connection.execute(of_conclusions.add_columns(CONCLUSIONS.c.kind))
    ]
    return sorted(listed, key=lambda one: (one.created, one.document), reverse=True)[:limit]


def _of(model: str, number: int) -> ColumnElement[bool]:
    return and_(ATTACHED.c.model == model, ATTACHED.c.number == number)


def _place(row: Row[Any]) -> MeasuredAt:
    return MeasuredAt(**{name: getattr(row, name) for name in _PLACE})


def _place_of_result(row: Row[Any]) -> MeasuredAt:
    """Read a place from the head of a Result; of one that was stored before heads were, nobody knows it."""
    return MeasuredAt() if row.head is None else codec.decode_head(row.head, origin=row.id).measured_at


def _newest(table: Table, condition: ColumnElement[bool], limit: int) -> Any:
    columns = (table.c.id, table.c.created, table.c.headline)
    return select(*columns).where(condition).order_by(*rows.newest_first(table)).limit(limit)


def _measurement(row: Row[Any], kind: str, at: MeasuredAt, is_attached: bool) -> VersionMeasurement:
    return VersionMeasurement(
        document=row.id, kind=kind, created=row.created, headline=row.headline, at=at, attached=is_attached
    )

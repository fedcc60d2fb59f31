"""Events: written in the transaction of what they tell, never changed.

A transaction that records events has its turn from its beginning: otherwise one could hold the history and
wait for a row, while another holds that row and waits for the history.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import and_, func, insert, or_, select

from modeldyno.registry.records.records import RegistryEvent, event_hash
from modeldyno.registry.store import webhooks
from modeldyno.stores.rows import storable_text
from modeldyno.stores.schema import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

_LOCK = 0x6D646576656E7473
"""Key of PostgreSQL's advisory lock: of two changes at once, the second waits for the hash of the first."""
_PAGE = 1000
_TOLD = [column for column in EVENTS.c if column.name in RegistryEvent.__dataclass_fields__]


def utc_now() -> str:
    """Return the time for people, UTC in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def take_turn(connection: Connection) -> None:
    """Wait until no other transaction changes the registry, and keep others waiting until this one ends.

    It comes before any row is locked. A write transaction of SQLite has its turn anyway.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))


def record(connection: Connection, actor: str, kind: str, subject: str, **detail: object) -> None:
    """Append an event, and the messages about it, in a transaction that has its turn."""
    before = connection.scalar(select(EVENTS.c.hash).order_by(EVENTS.c.id.desc()).limit(1)) or ""
    at, who, what = utc_now(), storable_text(actor), storable_text(subject)
    texts = {name: storable_text(str(value)) for name, value in detail.items()}
    model = what.partition("/")[0]
    row = {
        "at": at,
        "actor": who,
        "kind": kind,
        "model": model,
        "subject": what,
        "detail": json.dumps(texts),
        "before": before,
        "hash": event_hash(before, at, who, kind, what, texts),
    }
    number = connection.scalar(insert(EVENTS).values(row).returning(EVENTS.c.id))
    webhooks.address(connection, int(number or 0), kind, model)


def read(
    connection: Connection, *, subject: str | None = None, newest: int = 50, before: int | None = None
) -> list[RegistryEvent]:
    """Return the newest events, the oldest of them first: all, or those of a subject and what is below it."""
    query = select(*_TOLD).order_by(EVENTS.c.id.desc()).limit(newest)
    if before is not None:
        query = query.where(EVENTS.c.id < before)
    if subject is not None and "/" not in subject:
        query = query.where(EVENTS.c.model == subject)
    elif subject is not None:
        # All texts that begin with "digits/3/" are before "digits/30", as "0" follows "/".
        below = and_(EVENTS.c.subject > f"{subject}/", EVENTS.c.subject < f"{subject}0")
        query = query.where(or_(EVENTS.c.subject == subject, below))
    return [_event(row) for row in reversed(connection.execute(query).all())]


def read_all(connection: Connection) -> Iterator[RegistryEvent]:
    """Yield every event, the oldest first."""
    last = 0
    while rows := connection.execute(
        select(*_TOLD).where(EVENTS.c.id > last).order_by(EVENTS.c.id).limit(_PAGE)
    ).all():
        yield from map(_event, rows)
        last = rows[-1].id


def _event(row: object) -> RegistryEvent:
    columns = dict(row._mapping)  # type: ignore[attr-defined]
    return RegistryEvent(**{**columns, "detail": json.loads(columns["detail"])})

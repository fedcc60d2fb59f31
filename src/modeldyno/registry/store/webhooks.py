"""Webhooks and their outbox: a message is written in the transaction of its event, and leased like a task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, insert, or_, select, update

from modeldyno.base.errors import RequestError
from modeldyno.registry.records.records import RegistryEvent
from modeldyno.registry.records.webhooks import HOOK, MOST_ATTEMPTS, Delivery, Webhook, pause_after
from modeldyno.stores import clock
from modeldyno.stores.rows import storable_text
from modeldyno.stores.schema import DELIVERIES, EVENTS, WEBHOOKS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection

WAITING, DONE, FAILED = "waiting", "done", "failed"


def put(connection: Connection, webhook: Webhook) -> int:
    """Store a webhook; return its id."""
    row = {
        "url": storable_text(webhook.url),
        "secret": storable_text(webhook.secret),
        "kinds": json.dumps(webhook.kinds),
        "model": storable_text(webhook.model),
    }
    return int(connection.scalar(insert(WEBHOOKS).values(row).returning(WEBHOOKS.c.id)) or 0)


def find(connection: Connection) -> Sequence[Webhook]:
    """Return the webhooks in the order in which they were stored."""
    return [_webhook(row) for row in connection.execute(select(WEBHOOKS).order_by(WEBHOOKS.c.id))]


def remove(connection: Connection, identifier: int) -> None:
    """Remove a webhook with what it was still to be sent.

    Raises:
        RequestError: there is none.
    """
    connection.execute(delete(DELIVERIES).where(DELIVERIES.c.webhook == identifier))
    if not connection.execute(delete(WEBHOOKS).where(WEBHOOKS.c.id == identifier)).rowcount:
        raise RequestError(f"There is no webhook {identifier}.")


def address(connection: Connection, event: int, kind: str, model: str) -> None:
    """Write the messages about an event, in its transaction."""
    wanting = [webhook.id for webhook in find(connection) if webhook.wants(kind, model)]
    if wanting:
        numbers = dict.fromkeys(("attempts", "token", "until"), 0)
        row = {"event": event, "state": WAITING, "boot": "", "why": "", **numbers}
        connection.execute(insert(DELIVERIES), [{**row, "webhook": webhook} for webhook in wanting])


def claim(connection: Connection, lease: float, hooks: Collection[str] = ()) -> Delivery | None:
    """Lease the first message that is due, for some seconds; None if there is none.

    Those for commands are left to whoever declares them: `hooks` are the names of ours.
    """
    seconds, boot = clock.now(connection)
    due = clock.is_over(DELIVERIES, seconds, boot)
    ours = or_(WEBHOOKS.c.url.not_like(f"{HOOK}%"), WEBHOOKS.c.url.in_([f"{HOOK}{name}" for name in hooks]))
    ids = (
        select(DELIVERIES.c.id)
        .where(DELIVERIES.c.state == WAITING, due)
        .where(DELIVERIES.c.webhook.in_(select(WEBHOOKS.c.id).where(ours)))
        .order_by(DELIVERIES.c.until, DELIVERIES.c.id)
    )
    leased = clock.lease_first(connection, DELIVERIES, ids, until=seconds + lease, boot=boot)
    if leased is None:
        return None
    webhook = connection.execute(select(WEBHOOKS).where(WEBHOOKS.c.id == leased.webhook)).one()
    names = [EVENTS.c[name] for name in RegistryEvent.__dataclass_fields__]
    event = dict(connection.execute(select(*names).where(EVENTS.c.id == leased.event)).mappings().one())
    return Delivery(
        id=leased.id,
        webhook=_webhook(webhook),
        event=RegistryEvent(**{**event, "detail": json.loads(event["detail"])}),
        attempts=leased.attempts,
        token=leased.token,
    )


def finish(connection: Connection, delivery: Delivery, why: str) -> bool:
    """Write that a message has arrived, or why not; False if another has it by now.

    One that has not arrived is sent again later, until it is given up.
    """
    seconds, boot = clock.now(connection)
    changes: dict[str, Any] = {"state": DONE, "why": ""}
    if why:
        given_up = delivery.attempts >= MOST_ATTEMPTS
        changes = {"state": FAILED if given_up else WAITING, "why": storable_text(why)}
    held = (DELIVERIES.c.id == delivery.id) & (DELIVERIES.c.token == delivery.token)
    changes |= {"until": seconds + pause_after(delivery.attempts), "boot": boot}
    ended = update(DELIVERIES).where(held, DELIVERIES.c.state == WAITING).values(changes)
    return connection.execute(ended).rowcount == 1


def count(connection: Connection) -> dict[tuple[int, str], int]:
    """Count the messages by webhook and state."""
    columns = (DELIVERIES.c.webhook, DELIVERIES.c.state)
    query = select(*columns, func.count()).group_by(*columns)
    return {(webhook, state): number for webhook, state, number in connection.execute(query)}


def _webhook(row: Any) -> Webhook:
    return Webhook(
        id=row.id, url=row.url, secret=row.secret, kinds=tuple(json.loads(row.kinds)), model=row.model
    )

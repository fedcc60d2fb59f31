"""Loads that go on, one row each; all functions run within a transaction of the store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import delete, or_, select

from modeldyno.base.result.live_load import LiveLoad
from modeldyno.stores import clock, rows
from modeldyno.stores.rows import decode
from modeldyno.stores.schema import LIVE_LOADS

if TYPE_CHECKING:
    from sqlalchemy import Connection

_FORGOTTEN = 600.0
"""Seconds after which a load that was not heard of is forgotten."""


def put(connection: Connection, load: LiveLoad) -> None:
    """Insert a load or replace the one that has its id, and forget those of long ago."""
    seconds, boot = clock.now(connection)
    old = or_(LIVE_LOADS.c.boot != boot, LIVE_LOADS.c.seen < seconds - _FORGOTTEN)
    connection.execute(delete(LIVE_LOADS).where(old))
    cleaned = replace(load, name=rows.storable_text(load.name), load=rows.storable_text(load.load))
    rows.replace(connection, LIVE_LOADS, rows.record_row(LIVE_LOADS, cleaned, seen=seconds, boot=boot))


def find(connection: Connection) -> list[LiveLoad]:
    """Return the loads that were heard of lately, the newest first."""
    seconds, boot = clock.now(connection)
    heard = (LIVE_LOADS.c.boot == boot, LIVE_LOADS.c.seen >= seconds - _FORGOTTEN)
    query = select(LIVE_LOADS).where(*heard).order_by(*rows.newest_first(LIVE_LOADS))
    return [
        replace(decode(row.document, LiveLoad), silent=max(0.0, seconds - row.seen))
        for row in connection.execute(query).all()
    ]

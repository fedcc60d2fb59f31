"""The database's own clock, by which leases run out.

PostgreSQL has one clock for all hosts. SQLite has none, but all its processes are on one machine: they share
the clock that counts from the boot and that nobody can set; a boot makes every lease of an earlier one void.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, or_, select, update

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Row, Select, Table

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now(connection: Connection) -> tuple[float, str]:
    """Return the seconds of the database's clock, and the boot that they count from (empty: absolute)."""
    if connection.dialect.name == "postgresql":
        seconds = connection.scalar(select(func.extract("epoch", func.clock_timestamp())))
        return float(seconds or 0.0), ""
    return time.clock_gettime(_CLOCK), _boot()


def seconds_left(until: float, boot: str, now_: tuple[float, str]) -> float:
    """Return how far a time in ``until`` is ahead; 0 if it is over."""
    seconds, this_boot = now_
    return max(0.0, until - seconds) if boot == this_boot else 0.0


def is_over(table: Table, seconds: float, boot: str) -> ColumnElement[Any]:
    """Return the condition that the time in ``until`` is over."""
    return or_(table.c.until <= seconds, table.c.boot != boot)


def lease_first(
    connection: Connection,
    table: Table,
    ids: Select[Any],
    *,
    until: float,
    boot: str,
    **values: Any,
) -> Row[Any] | None:
    """Lease the first of some rows, and set the values in it; return it, or None if there is none.

    PostgreSQL passes over a row that another transaction leases; SQLite writes one transaction at a time.
    """
    first = ids.limit(1).with_for_update(skip_locked=True).scalar_subquery()
    counted = {"token": table.c.token + 1, "attempts": table.c.attempts + 1}
    leased = update(table).where(table.c.id == first).values(until=until, boot=boot, **counted, **values)
    return connection.execute(leased.returning(table)).first()


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "this boot"

"""The database's own clock, by which leases run out.

PostgreSQL has one clock for all hosts. SQLite has none, but all its processes are on one machine: they share
the clock that counts from the boot and that nobody can set; a boot makes every lease of an earlier one void.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, or_, select

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Table

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


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "this boot"

"""Times of day at which a machine may be measured."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

_HOUR, _DAY = 60, 24 * 60
_FORM = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)\s*-\s*([01]?\d|2[0-4]):([0-5]\d)")
_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of each day, in local time; one that ends before it begins goes over midnight."""

    begin: int
    """Minutes after midnight; within the window."""
    end: int
    """Minutes after midnight; no longer within it."""

    @classmethod
    def parse(cls, text: str) -> Window:
        """Read ``22:00-06:00``.

        Raises:
            RequestError: it is no time of day, or it lasts no time.
        """
        match = _FORM.fullmatch(text.strip())
        if match is not None:
            hour, minute, end_hour, end_minute = map(int, match.groups())
            begin, end = hour * _HOUR + minute, end_hour * _HOUR + end_minute
            if max(begin, end) <= _DAY and begin % _DAY != end:
                return cls(begin=begin % _DAY, end=end)
        raise RequestError(f"'{text[:_SHOWN]}' is no time of day; write 22:00-06:00, or 00:00-24:00.")

    def __str__(self) -> str:
        return "-".join(f"{time // _HOUR:02}:{time % _HOUR:02}" for time in (self.begin, self.end))

    def holds(self, now: datetime) -> bool:
        """Return whether a local time is within it."""
        minute = now.hour * _HOUR + now.minute
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end

    def next_begin(self, now: datetime) -> datetime:
        """Return when it begins next, after a local time."""
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        today = midnight + timedelta(minutes=self.begin)
        return today if today > now else today + timedelta(days=1)


def opens_at(windows: Iterable[Window], now: datetime) -> datetime | None:
    """Return when the first window begins; None if one holds now, or there are none and any time will do.

    Args:
        windows: one of them is enough.
        now: local time, without a zone.
    """
    each = tuple(windows)
    if any(window.holds(now) for window in each):
        return None
    return min((window.next_begin(now) for window in each), default=None)

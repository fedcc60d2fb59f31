"""When a request is sent again: only if no part of its answer came, as a cut answer was work for the server.

A server that rejects a request (429, 503, and their equals in gRPC) may say when to ask again; that is waited
for. Without a word the pause doubles from retry to retry.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from modeldyno.base.result.request_outcome import RequestOutcome

REST = 0.05
"""Seconds before a slot or a retry connects again after a refused connection."""
_LONGEST = 1.0
"""Seconds of the longest pause after a rejection that does not say how long."""


def pause_before_retry(outcome: RequestOutcome, *, begun: bool, retries: int, head: bytes) -> float | None:
    """Return the seconds before a failed request is sent again; None if it is not.

    Args:
        outcome: how it ended.
        begun: whether any byte of an answer came.
        retries: how often it was sent again already.
        head: the head of the answer; empty if there was none.
    """
    if outcome is RequestOutcome.REJECTED:
        asked_for = retry_after(head)
        return min(_LONGEST, REST * 2.0 ** min(retries, 30)) if asked_for is None else asked_for
    if outcome is RequestOutcome.REFUSED:
        return REST
    if outcome in {RequestOutcome.RESET, RequestOutcome.TRUNCATED} and not begun:
        return 0.0
    return None


def retry_after(head: bytes) -> float | None:
    """Return the seconds that a server asks to wait (RFC 9110, 10.2.3; gRPC's pushback); None if it does not.

    A date is read by the clock of the server if its answer has a date, as the clocks may differ.
    """
    fields = {
        name.strip().lower(): value.strip().decode("latin-1")
        for name, _, value in (line.partition(b":") for line in head.splitlines())
    }
    pushback, wish = fields.get(b"grpc-retry-pushback-ms", ""), fields.get(b"retry-after", "")
    if _is_count(pushback):
        return int(pushback) / 1e3
    if _is_count(wish):
        return float(wish)
    when = _date(wish)
    if when is None:
        return None
    now = _date(fields.get(b"date", "")) or datetime.now(UTC)
    return max(0.0, (when - now).total_seconds())


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)

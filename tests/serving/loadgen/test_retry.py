"""What is sent again, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.serving.loadgen.retry import pause_before_retry, retry_after

DATE = b"Date: Wed, 01 Jan 2020 00:00:00 GMT\r\n"


@pytest.mark.parametrize(
    ("head", "seconds"),
    [
        (b"HTTP/1.1 429\r\nRetry-After: 7", 7.0),
        (b"retry-after:0", 0.0),
        (DATE + b"Retry-After: Wed, 01 Jan 2020 00:01:30 GMT", 90.0),
        (DATE + b"Retry-After: Tue, 31 Dec 2019 00:00:00 GMT", 0.0),
        (b"grpc-retry-pushback-ms: 250", 0.25),
        (b"Retry-After: soon", None),
        (b"Retry-After: -1", None),
        (b"Retry-After: 99999999999999999999", None),
        (b"Retry-After: Wed, 99 Jan 2020 00:00:00 GMT", None),
        (b"Retry-After: \xff", None),
        (b"", None),
    ],
)
def test_how_long_a_server_wants_us_to_wait(head: bytes, seconds: float | None) -> None:
    """Seconds, a date by the server's own clock, and nothing where it makes no sense."""
    assert retry_after(head) == seconds


def test_a_date_without_that_of_the_answer_is_read_by_our_clock() -> None:
    """Whole seconds, as such dates have no others."""
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    wait = retry_after(f"Retry-After: {when}".encode())
    assert wait is not None
    assert 28 < wait <= 30


@pytest.mark.parametrize(
    ("outcome", "begun", "pause"),
    [
        (RequestOutcome.REFUSED, False, 0.05),
        (RequestOutcome.REJECTED, True, 0.2),
        (RequestOutcome.RESET, False, 0.0),
        (RequestOutcome.TRUNCATED, False, 0.0),
        (RequestOutcome.RESET, True, None),
        (RequestOutcome.TRUNCATED, True, None),
        (RequestOutcome.TIMEOUT, False, None),
        (RequestOutcome.SERVER_ERROR, True, None),
        (RequestOutcome.CLIENT_ERROR, True, None),
        (RequestOutcome.MALFORMED, True, None),
    ],
)
def test_only_what_was_not_begun_is_sent_again(
    outcome: RequestOutcome, begun: bool, pause: float | None
) -> None:
    """A rejection is an answer without work; a pause that the server does not set doubles up to a second."""
    assert pause_before_retry(outcome, begun=begun, retries=2, head=b"") == pause
    assert pause_before_retry(RequestOutcome.REJECTED, begun=True, retries=99, head=b"") == 1.0
    assert pause_before_retry(RequestOutcome.REJECTED, begun=True, retries=2, head=b"Retry-After: 3") == 3.0

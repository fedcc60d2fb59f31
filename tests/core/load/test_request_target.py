"""Where requests go."""

from __future__ import annotations

from modeldyno.core.load.request_log import RequestOutcome
from modeldyno.core.load.request_target import BrokenStream


def test_a_broken_stream_says_how_its_request_ended() -> None:
    """Its status said that all is well."""
    broken = BrokenStream(RequestOutcome.TRUNCATED, "the last piece is missing")
    assert broken.outcome is RequestOutcome.TRUNCATED
    assert str(broken) == "the last piece is missing"

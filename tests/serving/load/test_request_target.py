"""Where requests go."""

from __future__ import annotations

from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.request_target import BrokenStream, request_id


def test_a_broken_stream_says_how_its_request_ended() -> None:
    """Its status said that all is well."""
    broken = BrokenStream(RequestOutcome.TRUNCATED, "the last piece is missing")
    assert broken.outcome is RequestOutcome.TRUNCATED
    assert str(broken) == "the last piece is missing"


def test_an_id_has_the_same_length_at_any_time() -> None:
    """It is written into messages whose length is told before."""
    assert request_id(87_808_200_654_831) == b"00000087808200654831"
    assert {len(request_id(sent)) for sent in (0, 1, (1 << 64) - 1)} == {20}

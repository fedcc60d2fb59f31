"""A limit of requests before their first token, at a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHORT: dict[str, Any] = {"max_time": 20, "store": False, "progress": False, "max_tokens": 8}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that takes 5 ms to begin each answer, of any number of them, and streams it for 16 ms."""
    with serve_in_subprocess("--service", "constant:0.005", "--workers", "32", "--pace", "0.002") as server:
        yield f"http://127.0.0.1:{server.port}/v1"


@pytest.mark.parametrize(
    "arrivals",
    [{"concurrency": 12}, {"rate": "150:burst=6"}, {"concurrency": 12, "sequence": 3, "endpoint": "chat"}],
)
def test_no_more_than_asked_for_are_before_their_first_token(
    url: str, tmp_path: Path, arrivals: dict[str, Any]
) -> None:
    """By the records of each request; the wait is in the latency, and the client is not blamed for it."""
    path = tmp_path / "requests.jsonl"
    result = modeldyno.load(
        url, prefill_concurrency=2, requests=200, records=path, drivers=1, **arrivals, **SHORT
    )
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    begun = [(row["sent"], row["first_piece"]) for row in rows if row["outcome"] == "ok"]
    at_once = max(sum(sent <= at < first for sent, first in begun) for at, _ in begun)
    assert len(begun) >= 200
    assert at_once == 2
    assert (result["time_to_first_token.mean"] or 0) > 1.3 * (result["first_token_service_time.mean"] or 0)
    assert not {"client-limited", "sent-late"} & {doubt.code for doubt in result.doubts}
    assert "at most 2 before the first token" in str(result.job.load)


def test_whole_answers_have_no_first_token(url: str) -> None:
    """Which is said before anything is sent."""
    with pytest.raises(RequestError, match="or set stream=true"):
        modeldyno.load(url, prefill_concurrency=2, stream=False, **SHORT)

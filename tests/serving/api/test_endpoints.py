"""Responses, messages and images reach a server, which counts and times them as the client does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.testing.server import serve_in_subprocess
from modeldyno.testing.server_text import IMAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.testing.server import RunningServer

PACE = 0.002
FAST: dict[str, Any] = {
    "requests": 24,
    "concurrency": 2,
    "max_time": 20,
    "store": False,
    "progress": False,
    "max_tokens": 8,
}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server of a known pace, which says what it had cached, and checks the order of sessions."""
    with serve_in_subprocess(
        "--pace", str(PACE), "--workers", "4", "--prefix-cache", "--sessions"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def url(server: RunningServer) -> str:
    return f"http://127.0.0.1:{server.port}/v1#echo"


@pytest.mark.parametrize("endpoint", ["responses", "messages"])
def test_a_stream_is_timed_and_counted(url: str, endpoint: str) -> None:
    """Its pieces have the server's pace, and nothing of its text or its tokens is doubted."""
    result = modeldyno.load(url, endpoint=endpoint, **FAST)

    assert not result.failures
    assert result["prompt_tokens"] == 128
    assert result["time_per_output_token.p50.raw"] == pytest.approx(PACE, rel=0.3)
    assert (result["time_to_first_token.p50.raw"] or 1) < (result["latency.p50.raw"] or 0)
    assert result["cached_prompt_share"] is not None
    doubts = {doubt.code for doubt in result.doubts}
    assert not doubts & {"not-in-pieces", "no-token-counts", "fewer-tokens"}


@pytest.mark.parametrize("endpoint", ["responses", "messages"])
def test_a_whole_answer_has_its_tokens(url: str, endpoint: str) -> None:
    """But no times of pieces."""
    result = modeldyno.load(url, endpoint=endpoint, stream=False, **FAST)

    assert not result.failures
    assert result["prompt_tokens"] == 128
    assert not {doubt.code for doubt in result.doubts} & {"no-token-counts", "fewer-tokens"}
    assert result.find("time_to_first_token") is None


def test_messages_go_on_with_their_own_answers(server: RunningServer, url: str) -> None:
    """The history of a session is what the server said, as of chats."""
    server.forget()
    result = modeldyno.load(url, endpoint="messages", sequence=3, **FAST)

    assert not result.failures
    assert server.sessions()["lost"] == 0
    tokens = [result.find("prompt_tokens", f"turn={turn}") for turn in (1, 2, 3)]
    assert [each and each.value for each in tokens] == [128, 264, 400]


@pytest.mark.parametrize("endpoint", ["chat", "responses", "messages"])
def test_random_images_go_with_each_request(url: str, endpoint: str) -> None:
    """The server sees as many, and the result says which."""
    result = modeldyno.load(url, endpoint=endpoint, images=2, image_size="96x64", **FAST)

    assert not result.failures
    assert result["prompt_tokens"] == 128 + 2 * IMAGE_TOKENS
    assert [spec.name for spec in result.inputs] == ["prompt", "images"]
    assert "images, 2 in each request, of 96 by 64 pixels, 64 distinct" in " ".join(str(result).split())


@pytest.mark.parametrize("endpoint", ["completions", "embeddings"])
def test_an_endpoint_without_images_refuses_them(url: str, endpoint: str) -> None:
    """In one sentence, which says what to set."""
    with pytest.raises(RequestError, match="have no images; set endpoint=chat, responses or messages"):
        modeldyno.load(url, endpoint=endpoint, images=1, **FAST)

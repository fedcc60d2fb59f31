"""What is text travels compressed to who takes it, and a browser keeps what does not change."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.dashboard.compression import Compression, compress, takes_gzip
from modeldyno.dashboard.html import static_files

if TYPE_CHECKING:
    from tests.dashboard.conftest import Visitor

    from modeldyno.dashboard.guard import Message


@pytest.mark.parametrize(
    ("accepted", "takes"),
    [
        ("gzip, deflate, br", True), ("br, GZIP ; q=0.5", True), ("*", True), ("gzip;q=0.001", True),
        ("", False), ("identity", False), ("gzip;q=0", False), ("gzip; q=0.00, *", False), ("*;q=0", False),
    ],
)  # fmt: skip
def test_a_browser_says_whether_it_takes_gzip(accepted: str, takes: bool) -> None:
    """A weight of 0 refuses what is named, whatever is said of all others."""
    assert takes_gzip(accepted) is takes


def test_the_same_bytes_are_compressed_to_the_same() -> None:
    """No time is written among them, so that a tag of what was compressed stays true."""
    assert compress(b"a" * 2000) == compress(b"a" * 2000)


@pytest.mark.parametrize("path", ["/", "/results/010101010101", "/api/v1/results", "/results.csv"])
def test_a_page_travels_compressed(visitor: Visitor, path: str) -> None:
    """Who takes gzip is sent it, who does not is sent the same text, and a proxy is told so."""
    packed, plain = (visitor.get(path, accept_encoding=words) for words in ("gzip", "identity"))

    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 2
    if "html" not in plain.headers["content-type"]:  # the token of its forms is that of a browser
        assert packed.content == plain.content


def test_a_chart_of_dots_and_what_is_short_travel_as_they_are(visitor: Visitor) -> None:
    """A picture is compressed already, and a sentence is one packet in any case."""
    picture = visitor.get("/results/010101010101/chart.png", accept_encoding="gzip")
    refused = visitor.get("/api/v1/results/none", accept_encoding="gzip")

    assert picture.status_code == 200
    assert refused.status_code == 404
    assert "content-encoding" not in {**picture.headers, **refused.headers}


def test_a_stream_is_not_held_back() -> None:
    """Each part of an answer that goes on is sent as it comes."""
    sent: list[Message] = []

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(2):
            await send({"type": "http.response.body", "body": b"a" * 5000, "more_body": True})

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(
        Compression(stream)(
            {"type": "http", "headers": [(b"accept-encoding", b"gzip")]}, None, send  # type: ignore[arg-type] # nothing is received
        )
    )  # fmt: skip

    assert [message.get("body") for message in sent] == [None, b"a" * 5000, b"a" * 5000]


def test_a_long_answer_is_compressed_whole() -> None:
    """By a thread, so that others do not wait for it."""
    sent: list[Message] = []
    body = b"long" * 50_000

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"200000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(
        Compression(answer)(
            {"type": "http", "headers": [(b"accept-encoding", b"gzip")]}, None, send  # type: ignore[arg-type] # nothing is received
        )
    )  # fmt: skip

    assert gzip.decompress(sent[1]["body"]) == body
    assert dict(sent[0]["headers"])[b"content-length"] == str(len(sent[1]["body"])).encode()


@pytest.mark.parametrize("accepted", ["gzip", "identity"])
def test_a_file_is_kept_by_its_content(visitor: Visitor, accepted: str) -> None:
    """At the address with its digest for good; at any other one until it is asked for again."""
    name, file = "dashboard.css", static_files()["dashboard.css"]
    kept = visitor.get(f"/static/{name}?{file.digest}", accept_encoding=accepted)
    other = visitor.get(f"/static/{name}?0", accept_encoding=accepted)
    again = visitor.get(f"/static/{name}?0", accept_encoding=accepted, if_none_match=other.headers["etag"])

    assert "immutable" in kept.headers["cache-control"]
    assert other.headers["cache-control"] == "no-cache"
    assert kept.content == other.content == file.content
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == other.headers["etag"]


def test_a_tag_is_that_of_the_bytes(visitor: Visitor) -> None:
    """A file by gzip is of other bytes, so who has the plain one is not told that it is the same."""
    packed, plain = (
        visitor.get("/static/charts.js", accept_encoding=words) for words in ("gzip", "identity")
    )
    mixed = visitor.get("/static/charts.js", accept_encoding="gzip", if_none_match=plain.headers["etag"])

    assert packed.headers["etag"] != plain.headers["etag"]
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert mixed.status_code == 200

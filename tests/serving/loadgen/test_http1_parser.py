from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.serving.loadgen.http1_parser import (
    CHUNKED,
    TO_THE_END,
    ChunkDecoder,
    Malformed,
    outcome_of_status,
    read_head,
)


@pytest.mark.parametrize(
    ("head", "status", "length", "stays"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 12", 200, 12, True),
        (b"HTTP/1.1 200\r\ncontent-length:0", 200, 0, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5", 200, 5, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5", 200, 5, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 5", 200, CHUNKED, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip", 200, TO_THE_END, False),
        (b"HTTP/1.1 200 OK", 200, TO_THE_END, False),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 1\r\nConnection: close", 503, 1, False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1", 200, 1, False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive", 200, 1, True),
        (b"HTTP/1.1 204 No Content", 204, 0, True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9", 304, 0, True),
        (b"HTTP/1.1 100 Continue", 100, 0, True),
    ],
)
def test_a_head_tells_how_long_its_body_is(head: bytes, status: int, length: int, stays: bool) -> None:
    """Length, coding and connection are read as RFC 9112 has it."""
    read = read_head(head)
    assert (read.status, read.length, read.stays) == (status, length, stays)
    assert read.interim is (status < 200)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTQ/1.1 200 OK",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 2000 OK",
        b"HTTP/1.1 abc OK",
        b"HTTP/1.1 999 Odd",
        b"HTTP/1.1 101 Switching Protocols",
        b"HTTP/2 200 OK",
        b"",
        b"HTTP/1.1 200 OK\r\nno colon",
        b"HTTP/1.1 200 OK\r\n folded: line",
        b"HTTP/1.1 200 OK\r\n: nameless",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5",
        b"HTTP/1.1 200 OK\r\nContent-Length: five",
        b"HTTP/1.1 200 OK\r\nContent-Length: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999",
    ],
)
def test_what_is_no_head_is_malformed(head: bytes) -> None:
    """Nothing is guessed."""
    with pytest.raises(Malformed):
        read_head(head)


def test_each_status_has_its_outcome() -> None:
    """429 and 503 say overload; a redirection is not what was asked for."""
    outcomes = {status: outcome_of_status(status) for status in (200, 206, 302, 400, 404, 429, 500, 503, 504)}
    assert outcomes == {
        200: RequestOutcome.OK,
        206: RequestOutcome.OK,
        302: RequestOutcome.CLIENT_ERROR,
        400: RequestOutcome.CLIENT_ERROR,
        404: RequestOutcome.CLIENT_ERROR,
        429: RequestOutcome.REJECTED,
        500: RequestOutcome.SERVER_ERROR,
        503: RequestOutcome.REJECTED,
        504: RequestOutcome.SERVER_ERROR,
    }


def parts_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


@given(
    pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    cuts=st.lists(st.integers(0, 10_000), max_size=30),
)
def test_chunks_are_read_however_they_are_cut(pieces: list[bytes], cuts: list[int]) -> None:
    """The body is the same wherever the network cuts the bytes."""
    data = b"".join(b"%x;name=value\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    data += b"0\r\nTrailer: one\r\n\r\n"
    chunks = ChunkDecoder()
    contents = [piece for part in parts_of(data, cuts) for piece in chunks.feed(part)]
    assert b"".join(contents) == b"".join(pieces)
    assert chunks.done


@pytest.mark.parametrize(
    "data",
    [
        b"zz\r\n", b"\r\n", b"-1\r\n", b"5\nhello", b"2\r\nok!!", b"2\r\nok\n", b"1" * 5000,
        b"f" * 16 + b"\r\n", b"0\r\n\r\nmore",
    ],
)  # fmt: skip
def test_what_are_no_chunks_is_malformed(data: bytes) -> None:
    """A wrong size, a wrong end, and bytes beyond the last chunk."""
    with pytest.raises(Malformed):
        ChunkDecoder().feed(data)

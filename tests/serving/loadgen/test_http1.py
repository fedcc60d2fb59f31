"""One connection, fed by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.request_target import Target, Transport
from modeldyno.serving.clients.generated_text import text_start
from modeldyno.serving.loadgen.http1 import Http1Connection
from modeldyno.serving.loadgen.request import Call, make_reply

if TYPE_CHECKING:
    from modeldyno.serving.loadgen.event_stream import TextStart
    from modeldyno.serving.loadgen.request import Raw

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN
PIECES = (b"data: he\n\n", b"data: llo\n\n: ping\n\n", b"data: [DONE]\n\n   ", b"")
EVENTS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in PIECES)
)


class Pipe:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.aborted = False
        self.unsent = 0

    def set_write_buffer_limits(self, high: int) -> None:
        """Have no buffer."""
        assert high == 0

    def write(self, data: bytes) -> None:
        """Keep it."""
        self.written += data

    def get_write_buffer_size(self) -> int:
        """Say what the test says."""
        return self.unsent

    def abort(self) -> None:
        """Note it."""
        self.aborted = True


class Ends:
    """An owner that keeps what it is told."""

    def __init__(self) -> None:
        self.ended: list[tuple[RequestOutcome, Raw | None]] = []
        self.reported: list[str] = []

    def done(self, call: Call, outcome: RequestOutcome, end: int, raw: Raw | None) -> None:
        """Keep it."""
        assert end >= call.first
        self.ended.append((outcome, raw))

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.reported.append(name)


def connected(
    *, stream: bool = False, text_start: TextStart | None = None
) -> tuple[Http1Connection, Pipe, Ends, Call]:
    """Give a connection with a request on its way."""
    target = Target(
        protocol="", transport=Transport.HTTP, host="", port=1, messages=(b"GET", b"PUT"), stream=stream
    )
    pipe, ends, call = Pipe(), Ends(), Call(1, 0)
    connection = Http1Connection(ends, target, text_start)
    connection.connection_made(pipe)
    connection.send(call)
    return connection, pipe, ends, call


def test_a_numbered_request_bears_the_time_of_its_sending() -> None:
    """In its place, and each time anew, as when it is sent again."""
    target = Target(
        protocol="",
        transport=Transport.HTTP,
        host="",
        port=1,
        messages=(b"a" + b"?" * 20 + b"z",),
        marks=(1,),
        numbered=True,
    )
    for _ in range(2):
        pipe, call = Pipe(), Call(0, 0)
        connection = Http1Connection(Ends(), target)
        connection.connection_made(pipe)
        connection.send(call)
        assert pipe.written == b"a%020dz" % call.sent


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    return [data[a:b] for a, b in zip(places, places[1:], strict=False)]  # noqa: RUF007


CUTS = st.lists(st.integers(0, 10_000), max_size=40)


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED, INTERIM])
@given(cuts=CUTS)
def test_an_answer_is_read_however_it_is_cut(answer: bytes, cuts: list[int]) -> None:
    """Whole, once, and the connection takes the next request."""
    connection, pipe, ends, call = connected()
    assert pipe.written == b"PUT"
    for part in cut(answer, cuts):
        assert not ends.ended
        connection.data_received(part)
    [(outcome, raw)] = ends.ended
    assert outcome is RequestOutcome.OK
    assert raw is not None
    assert make_reply(1, raw).body == b"hello"
    assert (make_reply(1, raw).status, call.received) == (200, 5)
    assert ends.reported == ["connection_ready", "connection_free"]
    assert not connection.full
    connection.send(Call(0, 0))
    connection.data_received(PLAIN)
    assert [outcome for outcome, _ in ends.ended] == [RequestOutcome.OK, RequestOutcome.OK]
    assert not pipe.aborted


@given(cuts=CUTS)
def test_the_events_of_a_stream_are_pieces(cuts: list[int]) -> None:
    """Two of them; neither a comment nor the mark at the end is one."""
    connection, _, ends, call = connected(stream=True)
    for part in cut(EVENTS, cuts):
        connection.data_received(part)
    assert [outcome for outcome, _ in ends.ended] == [RequestOutcome.OK]
    assert len(call.pieces) == 2
    assert call.first <= call.pieces[0] <= call.pieces[1]


def chunk(part: bytes, size: bytes = b"%x") -> bytes:
    return size % len(part) + b"\r\n" + part + b"\r\n"


WRITTEN = st.sampled_from([
    b'data: {"delta": "a"}\n\n', b'data: {"delta": "a word"}\n\n', b'data:{"delta": "b"}\n\n',
    b'data: {"delta": ""}\n\n', b'data: {"delta": "c"}\r\n\r\n', b": ping\n\n", b"data: {}\n\n",
    b'event: x\ndata: {"delta": "d"}\n\n', b'data: {"delta":\ndata: "e"}\n\n', b'data: {"delta": "f',
    b'"}\n\n', b'data: {"delta": "g"}\n\ndata: {"delta": "h"}\n\n', b'data: {"delta": "i"}\n', b"\n",
    b'data: {"delta": "' + b"j" * 300 + b'"}\n\n', b"data: [DONE]\n\n",
])  # fmt: skip
"""What servers put into a chunk: an event mostly, but also none, several, or a part of one."""


@given(
    parts=st.lists(st.tuples(WRITTEN, st.sampled_from([b"%x", b"%X", b"0%x", b"%x;a=b"])), max_size=12),
    cuts=CUTS,
)
def test_pieces_are_the_same_however_a_stream_is_cut(
    parts: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    """Read by the whole chunk, as most are, or byte by byte, with the same body."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    stream = head + b"".join(chunk(part, size) for part, size in parts) + b"0\r\n\r\n"
    by_cuts = [
        cut(stream, cuts),
        [bytes([byte]) for byte in stream],
        [head, *(chunk(*part) for part in parts), b"0\r\n\r\n"],
    ]
    outcomes = []
    for pieces in by_cuts:
        connection, _, ends, call = connected(stream=True, text_start=text_start)
        for piece in pieces:
            connection.data_received(piece)
        [(outcome, raw)] = ends.ended
        assert raw is not None
        outcomes.append((outcome, len(call.pieces), call.received, make_reply(1, raw).body))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_an_event_that_bears_nothing_is_no_piece() -> None:
    """The first byte came with it all the same."""
    connection, _, ends, call = connected(stream=True, text_start=lambda event: event.find(b"llo") + 1)
    connection.data_received(EVENTS)
    assert [outcome for outcome, _ in ends.ended] == [RequestOutcome.OK]
    assert len(call.pieces) == 1
    assert call.first


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    """In an orderly way; broken off, it is a failure."""
    for error, outcome in ((None, RequestOutcome.OK), (ConnectionResetError(), RequestOutcome.RESET)):
        connection, _, ends, _ = connected()
        connection.data_received(b"HTTP/1.0 200 OK\r\n\r\nhel")
        connection.data_received(b"lo")
        assert not ends.ended
        connection.connection_lost(error)
        assert [each for each, _ in ends.ended] == [outcome]


@pytest.mark.parametrize(
    "answer",
    [
        PLAIN + b"!",
        CHUNKED + b"!",
        b"HTTQ",
        b"\r\n\r\n" + PLAIN,
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=range(7),
)
@given(cuts=CUTS)
def test_what_is_no_answer_is_malformed_and_ends_the_connection(answer: bytes, cuts: list[int]) -> None:
    """Told at once, even while more may come; bytes beyond an answer that was whole are nobody's."""
    connection, pipe, ends, _ = connected()
    for part in cut(answer, cuts):
        if ends.ended:
            break
        connection.data_received(part)
    complete = answer[:-1] in {PLAIN, CHUNKED}
    assert [outcome for outcome, _ in ends.ended] in (
        [[RequestOutcome.MALFORMED]] + [[RequestOutcome.OK]] * complete
    )
    if ends.ended[0][0] is RequestOutcome.MALFORMED:
        assert pipe.aborted
        connection.connection_lost(None)
        assert len(ends.ended) == 1


def test_bytes_that_nobody_asked_for_end_an_idle_connection() -> None:
    """It would be mistaken for the answer to the next request."""
    connection, pipe, ends, _ = connected()
    connection.data_received(PLAIN)
    connection.data_received(b"more")
    assert pipe.aborted
    assert connection.full
    assert ends.reported == ["connection_ready", "connection_free", "connection_closed"]
    assert len(ends.ended) == 1


@pytest.mark.parametrize(
    ("used", "came", "error", "expected"),
    [
        (False, b"", None, RequestOutcome.TRUNCATED),
        (False, b"", ConnectionResetError(), RequestOutcome.RESET),
        (True, b"", None, "resend"),
        (True, b"", BrokenPipeError(), "resend"),
        (True, b"", ConnectionResetError(), RequestOutcome.RESET),
        (True, b"HTTP", None, RequestOutcome.TRUNCATED),
        (True, PLAIN[:-1], None, RequestOutcome.TRUNCATED),
        (True, PLAIN[:-1], ConnectionResetError(), RequestOutcome.RESET),
        (False, CHUNKED[:-3], None, RequestOutcome.TRUNCATED),
    ],
)
def test_the_end_of_a_connection_means_something(
    used: bool, came: bytes, error: Exception | None, expected: RequestOutcome | str
) -> None:
    """A kept connection that is closed in peace before any byte came has not answered; else it failed."""
    connection, _, ends, _ = connected()
    if used:
        connection.data_received(PLAIN)
        connection.send(Call(0, 0))
        ends.ended.clear()
    if came:
        connection.data_received(came)
    connection.connection_lost(error)
    assert [outcome for outcome, _ in ends.ended] == (
        [expected] if isinstance(expected, RequestOutcome) else []
    )
    assert ("resend" in ends.reported) is (expected == "resend")


def test_a_connection_is_not_used_again_when_it_should_not_be() -> None:
    """The server says so, or a part of our request is still unsent."""
    for unsent, answer in ((0, PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")), (9, PLAIN)):
        connection, pipe, ends, _ = connected()
        pipe.unsent = unsent
        connection.data_received(answer)
        assert [outcome for outcome, _ in ends.ended] == [RequestOutcome.OK]
        assert pipe.aborted
        assert "connection_free" not in ends.reported


def test_a_request_that_is_dropped_is_told_to_nobody() -> None:
    """The connection goes with it: its answer may still come."""
    connection, pipe, ends, call = connected()
    connection.drop(call)
    connection.connection_lost(None)
    assert pipe.aborted
    assert ends.ended == []


def test_an_error_in_a_stream_is_one_of_the_server() -> None:
    """Though its status is 200."""
    connection, _, ends, _ = connected(stream=True)
    connection.data_received(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
        b'data: a\n\ndata: {"error": {"message": "no"}}\n\n'
    )
    connection.eof_received()
    connection.connection_lost(None)
    assert [outcome for outcome, _ in ends.ended] == [RequestOutcome.SERVER_ERROR]

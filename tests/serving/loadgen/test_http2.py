"""One connection of HTTP/2, fed frames by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.request_target import Target, Transport
from modeldyno.serving.loadgen import http2
from modeldyno.serving.loadgen import http2_frames as frames
from modeldyno.serving.loadgen.hpack import Decoder, encode_literal
from modeldyno.serving.loadgen.http2 import Http2Connection
from modeldyno.serving.loadgen.http2_frames import frame
from modeldyno.serving.loadgen.http2_sender import CallTemplate
from modeldyno.serving.loadgen.request import Call, make_reply

if TYPE_CHECKING:
    from modeldyno.serving.loadgen.request import Raw

HEAD = encode_literal([(b":status", b"200"), (b"content-type", b"application/grpc")], learn=True)
WELL = encode_literal([(b"grpc-status", b"0")], learn=True)
SETTINGS = frame(frames.SETTINGS, 0, 0)
FIRST = "first call"


def headers(number: int, block: bytes = HEAD, flags: int = 0) -> bytes:
    return frame(frames.HEADERS, frames.END_HEADERS | flags, number, block)


def data(number: int, message: bytes = b"yes", flags: int = 0) -> bytes:
    return frame(frames.DATA, flags, number, b"\0" + len(message).to_bytes(4) + message)


def trailers(number: int, block: bytes = WELL) -> bytes:
    return headers(number, block, frames.END_STREAM)


def answer(number: int) -> bytes:
    return headers(number) + data(number) + trailers(number)


def settings(**values: int) -> bytes:
    numbers = {"table": 1, "streams": 3, "window": 4, "frame": 5}
    body = b"".join(numbers[name].to_bytes(2) + value.to_bytes(4) for name, value in values.items())
    return frame(frames.SETTINGS, 0, 0, body)


def window(number: int, size: int) -> bytes:
    return frame(frames.WINDOW_UPDATE, 0, number, size.to_bytes(4))


class Pipe:
    """A transport that keeps what is written, as frames."""

    def __init__(self) -> None:
        self.written = b""
        self.aborted = False

    def set_write_buffer_limits(self, high: int) -> None:
        """Have no buffer."""

    def write(self, data: bytes) -> None:
        """Keep it."""
        self.written += data

    def abort(self) -> None:
        """Note it."""
        self.aborted = True

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """Take what was written: kind, flags, stream, body."""
        sent_frames, rest = [], self.written.removeprefix(frames.CLIENT_PREFACE)
        while rest:
            end = 9 + int.from_bytes(rest[:3])
            sent_frames.append((rest[3], rest[4], int.from_bytes(rest[5:9]), rest[9:end]))
            rest = rest[end:]
        self.written = b""
        return sent_frames


class Ends:
    """An owner that keeps what it is told."""

    def __init__(self) -> None:
        self.ended: list[tuple[Call, RequestOutcome, Raw | None]] = []
        self.reported: list[Any] = []

    def done(self, call: Call, outcome: RequestOutcome, end: int, raw: Raw | None) -> None:
        """Keep it."""
        assert end >= call.first
        self.ended.append((call, outcome, raw))

    def connection_failed(self, outcome: RequestOutcome) -> None:
        """Keep it."""
        self.reported.append(outcome)

    def resend(self, call: Call) -> None:
        """Keep it."""
        self.reported.append(call)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.reported.append(name)

    @property
    def outcomes(self) -> list[RequestOutcome]:
        """Give only these."""
        return [outcome for _, outcome, _ in self.ended]


def made(
    message: bytes = b"ask", *, share: int = 8, hello: bytes = SETTINGS, **more: Any
) -> tuple[Http2Connection, Pipe, Ends]:
    """Give a connection whose server has said hello."""
    target = Target(
        protocol="",
        transport=Transport.GRPC,
        host="::1",
        port=80,
        messages=(message,),
        method="/a.B/C",
        metadata=(("Token", "secret"),),
        **more,
    )
    pipe, ends = Pipe(), Ends()
    channel = Http2Connection(ends, CallTemplate(target, 1.5), share)
    channel.connection_made(pipe)
    assert pipe.written.startswith(frames.CLIENT_PREFACE)
    channel.data_received(hello)
    pipe.frames()
    return channel, pipe, ends


def test_a_numbered_call_bears_the_time_of_its_sending() -> None:
    """In its place, in a message of the same length."""
    channel, pipe, _ = made(b"a" + b"?" * 20 + b"z", marks=(1,), numbered=True)
    (call,) = called(channel)
    assert pipe.frames()[-1][3] == b"\0" + (22).to_bytes(4) + b"a%020dz" % call.sent


def called(channel: Http2Connection, count: int = 1) -> list[Call]:
    calls = [Call(0, 0) for _ in range(count)]
    for call in calls:
        channel.send(call)
    return calls


def test_a_call_says_what_grpc_asks_for() -> None:
    """Headers in the order of the protocol, then the message; the later calls say the same in fewer bytes."""
    channel, pipe, _ = made()
    called(channel, 3)
    sent = pipe.frames()
    read = Decoder(list)
    headers = [read(body) for kind, _, _, body in sent if kind == frames.HEADERS]
    assert headers[0] == [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/a.B/C"),
        (b":authority", b"[::1]"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"modeldyno"),
        (b"grpc-timeout", b"1500m"),
        (b"token", b"secret"),
    ]
    assert headers[1:] == headers[:1] * 2
    assert len(sent[2][3]) == len(headers[0])
    assert [sent[i][:3] for i in (0, 1, 4, 5)] == [
        (
            frames.HEADERS,
            frames.END_HEADERS,
            1,
        ),
        (frames.DATA, frames.END_STREAM, 1),
        (frames.HEADERS, frames.END_HEADERS, 5),
        (frames.DATA, frames.END_STREAM, 5),
    ]
    assert sent[1][3] == b"\0\0\0\0\3ask"


@pytest.mark.parametrize("size", [0, 64, 4095])
def test_a_server_with_a_small_table_of_headers_gets_them_in_full(size: int) -> None:
    """Its decoder is told that the table is empty, and every call says all."""
    channel, pipe, _ = made(hello=settings(table=size))
    called(channel, 3)
    blocks = [body for kind, _, _, body in pipe.frames() if kind == frames.HEADERS]
    assert len(set(blocks)) == 1
    assert blocks[0][0] == 0x20
    assert Decoder(list)(blocks[0])[0] == (b":method", b"POST")


def test_a_table_that_becomes_small_is_no_longer_used() -> None:
    """From the next call on."""
    channel, pipe, _ = made()
    called(channel, 2)
    channel.data_received(settings(table=0))
    called(channel, 1)
    blocks = [body for kind, _, _, body in pipe.frames() if kind == frames.HEADERS]
    read = Decoder(list)
    assert len({tuple(read(block)) for block in blocks}) == 1
    assert blocks[2][0] == 0x20


@given(cuts=st.lists(st.integers(0, 10_000), max_size=40))
def test_answers_are_read_however_they_are_cut(cuts: list[int]) -> None:
    """Two calls, their frames mixed, padded, and with headers that go on in a second frame."""
    channel, _, ends = made()
    first, second = called(channel, 2)
    mixed = b"".join(
        (
            frame(frames.HEADERS, 0, 1, HEAD[:5]),
            frame(frames.CONTINUATION, frames.END_HEADERS, 1, HEAD[5:]),
            frame(frames.HEADERS, frames.END_HEADERS | frames.PADDED, 3, b"\2\xbf\xbe\0\0"),
            frame(frames.DATA, frames.PADDED, 1, b"\3\0\0\0\0\3yes\0\0\0"),
            frame(frames.PRIORITY, 0, 1, bytes(5)),
            data(3, b"no"),
            frame(99, 0, 0, b"unknown kinds are ignored"),
            trailers(3),
            trailers(1, b"\xbe"),
        )
    )
    places = sorted({0, len(mixed), *(cut % len(mixed) for cut in cuts)})
    for begin, end in pairwise(places):
        channel.data_received(mixed[begin:end])
    assert [(call, outcome) for call, outcome, _ in ends.ended] == [
        (second, RequestOutcome.OK),
        (first, RequestOutcome.OK),
    ]
    replies = [make_reply(0, raw) for _, _, raw in ends.ended if raw is not None]
    assert [each.body for each in replies] == [b"no", b"yes"]
    assert {each.head for each in replies} == {b"content-type: application/grpc\r\ngrpc-status: 0"}
    assert (first.received, second.received) == (3, 2)


def test_a_large_message_waits_for_windows() -> None:
    """No more is sent than the server takes: of the call, of the connection, and of a frame."""
    message = bytes(100_000)
    channel, pipe, _ = made(message, hello=settings(window=30_000, frame=20_000))
    called(channel, 1)

    def sent() -> list[int]:
        return [len(body) for kind, _, _, body in pipe.frames() if kind == frames.DATA]

    assert sent() == [20_000, 10_000]
    channel.data_received(window(1, 50_000))
    assert sent() == [20_000, 15_535]
    channel.data_received(window(0, 1_000_000))
    assert sent() == [14_465]
    channel.data_received(settings(window=40_000))
    assert sent() == [10_000]
    channel.data_received(window(1, 1_000_000))
    assert sent() == [10_005]
    called(channel, 1)
    assert sum(sent()) == 40_000


def test_small_messages_wait_their_turn_behind_a_large_one() -> None:
    """And their last frame says that it is."""
    channel, pipe, ends = made(bytes(40_000))
    called(channel, 3)
    channel.data_received(window(0, 1 << 20))
    ends_said = [stream for kind, flags, stream, _ in pipe.frames() if kind == frames.DATA and flags]
    assert sorted(ends_said) == [1, 3, 5]
    channel.data_received(answer(1))
    assert ends.outcomes == [RequestOutcome.OK]


def test_no_more_calls_are_taken_than_the_server_allows() -> None:
    """The connection is full until one has ended."""
    channel, _, ends = made(hello=settings(streams=2))
    called(channel, 1)
    before = channel.full
    called(channel, 1)
    reached = channel.full
    channel.data_received(answer(1))
    assert (before, reached, channel.full) == (False, True, False)
    assert ends.reported == ["connection_ready", "connection_free"]


def test_pings_and_settings_are_acknowledged() -> None:
    """A ping comes back as it was."""
    channel, pipe, _ = made()
    channel.data_received(frame(frames.PING, 0, 0, b"12345678") + settings(frame=20_000))
    channel.data_received(
        frame(frames.PING, frames.ACK, 0, b"12345678") + frame(frames.SETTINGS, frames.ACK, 0)
    )
    assert pipe.frames() == [(frames.PING, frames.ACK, 0, b"12345678"), (frames.SETTINGS, frames.ACK, 0, b"")]


def test_a_server_that_leaves_gets_no_more_calls_and_answers_those_it_has() -> None:
    """The call that it has not seen goes elsewhere; the connection ends with the last answer."""
    channel, pipe, ends = made()
    _, unseen = called(channel, 2)
    channel.data_received(frame(frames.GOAWAY, 0, 0, (1).to_bytes(4) + bytes(4)))
    assert channel.full
    assert ends.reported == ["connection_ready", "connection_closed", unseen]
    assert not pipe.aborted
    channel.data_received(answer(1))
    assert ends.outcomes == [RequestOutcome.OK]
    assert pipe.aborted


@pytest.mark.parametrize(
    ("code", "outcome"), [(8, RequestOutcome.RESET), (2, RequestOutcome.RESET), (11, RequestOutcome.REJECTED)]
)
def test_a_call_that_the_server_resets_has_failed(code: int, outcome: RequestOutcome) -> None:
    """Except one that it refuses: that is sent again."""
    channel, _, ends = made()
    _, refused = called(channel, 2)
    channel.data_received(frame(frames.RST_STREAM, 0, 1, code.to_bytes(4)))
    channel.data_received(frame(frames.RST_STREAM, 0, 1, code.to_bytes(4)))
    channel.data_received(frame(frames.RST_STREAM, 0, 3, (7).to_bytes(4)))
    assert ends.outcomes == [outcome]
    assert ends.reported[-1] is refused


def test_a_call_that_is_given_up_is_told_to_the_server_and_its_answer_ignored() -> None:
    """But its headers are read: the table is that of the connection."""
    channel, pipe, ends = made()
    given_up, other = called(channel, 2)
    pipe.frames()
    channel.drop(given_up)
    assert pipe.frames() == [(frames.RST_STREAM, 0, 1, (8).to_bytes(4))]
    channel.data_received(answer(1))
    channel.data_received(headers(3, b"\xc0\xbf") + data(3) + trailers(3, b"\xbe"))
    assert [call for call, _, _ in ends.ended] == [other]
    assert ends.outcomes == [RequestOutcome.OK]


SAID = {
    "no status": (
        headers(1) + data(1) + trailers(1, encode_literal([(b"x", b"y")], learn=False)),
        RequestOutcome.MALFORMED,
    ),
    "no message": (headers(1) + trailers(1), RequestOutcome.MALFORMED),
    "no trailers": (headers(1) + data(1, flags=frames.END_STREAM), RequestOutcome.MALFORMED),
    "half a message": (
        headers(1) + frame(frames.DATA, 0, 1, b"\0\0\0\0\5yes") + trailers(1),
        RequestOutcome.MALFORMED,
    ),
    "compressed": (headers(1) + frame(frames.DATA, 0, 1, b"\1\0\0\0\3yes"), RequestOutcome.MALFORMED),
    "no headers": (data(1), RequestOutcome.MALFORMED),
    "a proxy's 503": (
        trailers(1, encode_literal([(b":status", b"503")], learn=False)),
        RequestOutcome.REJECTED,
    ),
    "a proxy's 404": (
        headers(1, encode_literal([(b":status", b"404")], learn=False))
        + frame(frames.DATA, frames.END_STREAM, 1, b""),
        RequestOutcome.CLIENT_ERROR,
    ),
    "trailers only": (
        trailers(1, encode_literal([(b":status", b"200"), (b"grpc-status", b"14")], learn=False)),
        RequestOutcome.REJECTED,
    ),
    "an unknown status": (
        trailers(1, encode_literal([(b"grpc-status", b"77")], learn=False)),
        RequestOutcome.SERVER_ERROR,
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_what_a_call_says_is_called_one_thing(name: str) -> None:
    """And the connection goes on with the next call."""
    answer, outcome = SAID[name]
    channel, pipe, ends = made()
    called(channel, 1)
    channel.data_received(answer)
    assert ends.outcomes == [outcome]
    assert not pipe.aborted
    called(channel, 1)
    assert not channel.full


BROKEN = {
    "HTTP/1.1": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a frame that is too long": frame(frames.DATA, 0, 1, size=1 << 19),
    "an index of nothing": headers(1, b"\xff\x7f"),
    "a push": frame(frames.PUSH_PROMISE, 0, 1, bytes(8)),
    "headers that do not go on": frame(frames.HEADERS, 0, 1, HEAD) + data(1),
    "headers that go on without beginning": frame(frames.CONTINUATION, 0, 1, HEAD),
    "all padding": frame(frames.HEADERS, frames.END_HEADERS | frames.PADDED, 1, b"\7abc"),
    "settings of a wrong length": frame(frames.SETTINGS, 0, 0, b"abc"),
    "a status that is none": headers(1, encode_literal([(b":status", b"2e2")], learn=False)),
    "headers without end": frame(frames.HEADERS, 0, 1, b"")
    + frame(frames.CONTINUATION, 0, 1, bytes(1 << 18)) * 5,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_connection_that_makes_no_sense_is_left(name: str) -> None:
    """All its calls are malformed, once; or, before it was ready, it never came to be."""
    channel, pipe, ends = made()
    called(channel, 2)
    channel.data_received(BROKEN[name])
    channel.connection_lost(None)
    assert pipe.aborted
    assert ends.outcomes == [RequestOutcome.MALFORMED] * 2
    assert channel.full
    unborn, pipe, ends = made(hello=b"")
    unborn.data_received(BROKEN["HTTP/1.1"])
    unborn.connection_lost(None)
    assert ends.reported[0] is RequestOutcome.MALFORMED


@pytest.mark.parametrize(
    ("error", "outcome"), [(None, RequestOutcome.TRUNCATED), (ConnectionResetError(), RequestOutcome.RESET)]
)
def test_the_end_of_a_connection_ends_its_calls(error: Exception | None, outcome: RequestOutcome) -> None:
    """Each once; a connection that was never ready is told as such."""
    channel, _, ends = made()
    called(channel, 2)
    channel.connection_lost(error)
    assert ends.outcomes == [outcome] * 2
    unborn, _, ends = made(hello=b"")
    unborn.connection_lost(error)
    assert ends.reported == [RequestOutcome.REFUSED]


def test_a_server_that_has_sent_much_hears_that_it_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the connection and of the call."""
    monkeypatch.setattr(http2, "MAX_WINDOW_SIZE", 1000)
    channel, pipe, _ = made()
    called(channel, 1)
    pipe.frames()
    channel.data_received(headers(1) + data(1, bytes(700)))
    assert pipe.frames() == [
        (frames.WINDOW_UPDATE, 0, 0, (705).to_bytes(4)),
        (frames.WINDOW_UPDATE, 0, 1, (705).to_bytes(4)),
    ]
    channel.data_received(data(1, bytes(100)))
    assert pipe.frames() == []


def test_an_answer_before_all_was_sent_ends_the_sending() -> None:
    """The server does not want the rest."""
    channel, pipe, ends = made(bytes(200_000))
    called(channel, 1)
    pipe.frames()
    channel.data_received(
        trailers(1, encode_literal([(b":status", b"200"), (b"grpc-status", b"8")], learn=False))
    )
    assert pipe.frames() == [(frames.RST_STREAM, 0, 1, (8).to_bytes(4))]
    assert ends.outcomes == [RequestOutcome.REJECTED]
    channel.data_received(window(0, 1 << 20))
    assert pipe.frames() == []


def test_a_connection_whose_numbers_are_used_up_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its last answer."""
    monkeypatch.setattr(http2, "LAST_STREAM", 3)
    channel, pipe, ends = made()
    called(channel, 2)
    assert channel.full
    channel.data_received(answer(1) + headers(3, b"\xc0\xbf") + data(3))
    assert not pipe.aborted
    channel.data_received(trailers(3, b"\xbe"))
    assert ends.outcomes == [RequestOutcome.OK] * 2
    assert pipe.aborted

"""Streams are decoded as the standard has it, wherever the network cuts them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from modeldyno.serving.loadgen.event_stream import (
    EventDecoder,
    LineDecoder,
    PieceCounter,
    StreamEvent,
    decode_stream,
    decoder_of,
)

TOKENS = [
    b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"data", b":", b" ", b"data: ", b"data:x",
    b"event: error", b"event:a", b"id: 7", b"retry: 9", b": ping", b"\xef\xbb\xbf", b"\xe2\x82\xac", b"{}",
    b"[DONE]",
]  # fmt: skip
"""What streams are made of: line ends, fields, a mark of the byte order, a character of three bytes."""


def by_the_standard(stream: bytes) -> list[StreamEvent]:
    """Decode a whole stream, step by step as the standard's text says, with neither speed nor state."""
    events, data, kind = [], b"", b""
    for line in lines_of(stream.removeprefix(b"\xef\xbb\xbf")):
        if not line:
            if data:
                events.append(StreamEvent(kind, data[:-1]))
            data = kind = b""
            continue
        name, colon, value = line.partition(b":")
        if colon and value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            data += value + b"\n"
        elif name == b"event":
            kind = value
    return events


def lines_of(stream: bytes) -> list[bytes]:
    """Return the lines that have an end: LF, CR or CRLF."""
    lines, line, at = [], b"", 0
    while at < len(stream):
        if stream[at : at + 2] == b"\r\n":
            lines.append(line)
            line, at = b"", at + 2
        elif stream[at : at + 1] in (b"\r", b"\n"):
            lines.append(line)
            line, at = b"", at + 1
        else:
            line, at = line + stream[at : at + 1], at + 1
    return lines


def parts_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


def decoded(parts: list[bytes]) -> list[StreamEvent]:
    decoder = EventDecoder()
    return [event for part in parts for event in (*decoder.feed(part), *decoder.feed(b""))] + decoder.finish()


@given(pieces=st.lists(st.sampled_from(TOKENS), max_size=24))
@example([b"\xef\xbb\xbf", b"\n\n", b"data: x", b"\n\n"])
@example([b"data: x", b"\r", b"\n", b"\r", b"\n"])
def test_any_stream_is_decoded_as_by_the_standard_at_every_cut(pieces: list[bytes]) -> None:
    """Whole, byte by byte, and cut in two at each place, the events are those of the text of the standard."""
    stream = b"".join(pieces)
    expected = by_the_standard(stream)
    assert decoded([stream]) == expected
    assert decoded([stream[at : at + 1] for at in range(len(stream))]) == expected
    for at in range(len(stream)):
        assert decoded([stream[:at], stream[at:]]) == expected


@given(
    pieces=st.lists(st.sampled_from(TOKENS) | st.binary(max_size=3), max_size=60),
    cuts=st.lists(st.integers(0, 10_000), max_size=30),
)
def test_a_long_stream_is_decoded_however_it_is_cut(pieces: list[bytes], cuts: list[int]) -> None:
    """Any bytes, cut in any places."""
    stream = b"".join(pieces)
    assert decoded(parts_of(stream, cuts)) == by_the_standard(stream)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_event_is_complete_when_its_empty_line_is(end: bytes) -> None:
    """Neither a byte earlier nor with the next event; of CR LF the CR ends the line."""
    decoder = EventDecoder()
    stream = b"data: a" + end + end
    complete = [bool(decoder.feed(bytes([byte]))) for byte in stream]
    assert complete.index(True) == len(stream) - len(end)
    assert sum(complete) == 1


def test_a_long_event_in_many_pieces_takes_no_longer_than_its_bytes() -> None:
    """Two megabytes, a hundred bytes at a time: each is looked at once."""
    decoder = EventDecoder()
    assert not any(decoder.feed(b"data: " + b"x" * 93 + b"\n") for _ in range(20_000))
    (event,) = decoder.feed(b"\n")
    assert len(event.data) == 20_000 * 94 - 1


@given(lines=st.lists(st.binary(max_size=8)), cuts=st.lists(st.integers(0, 10_000), max_size=30))
def test_json_lines_are_decoded_however_they_are_cut(lines: list[bytes], cuts: list[int]) -> None:
    """An empty line is none, and the last one needs no end."""
    stream = b"\n".join(lines)
    decoder = LineDecoder()
    events = [event for part in parts_of(stream, cuts) for event in decoder.feed(part)] + decoder.finish()
    assert [event.data for event in events] == [line.strip() for line in stream.split(b"\n") if line.strip()]


def test_the_type_of_the_content_says_how_it_is_decoded() -> None:
    """Events, JSON lines, or neither; parameters and case do not matter."""
    assert decoder_of(b"Text/Event-Stream; charset=utf-8") is EventDecoder
    assert decoder_of(b"application/x-ndjson") is LineDecoder
    assert decoder_of(b"application/json") is None
    assert decoder_of(b"") is None
    assert [*decode_stream(b"text/plain", b"data: x\n\n")] == []
    assert [*decode_stream(b"text/event-stream", b"data: x\n\ndata: [DONE]\n\n")] == [StreamEvent(b"", b"x")]


def test_only_events_that_bear_something_count_where_that_is_told() -> None:
    """The role before and the usage after are none; what is asked is the data of each event."""
    offered: list[bytes] = []

    def text_start(event: bytes) -> int:
        offered.append(event)
        return 4 if b"word" in event else 0

    counter = PieceCounter(EventDecoder(), text_start)
    stream = b"data: role\n\ndata: 1 word\n\n: ping\n\ndata: 2 words\n\ndata: usage\n\ndata: [DONE]\n\n"
    assert sum(counter.feed(part) for part in parts_of(stream, [7, 20])) == 2
    assert offered == [b"role", b"1 word", b"2 words", b"usage", b"[DONE]"]


def test_without_that_every_event_with_data_counts() -> None:
    """A comment, an empty event and the mark at the end are none."""
    counter = PieceCounter(EventDecoder())
    assert counter.feed(b": ping\n\ndata: a\n\ndata\n\nevent: b\n\ndata: c\ndata: d\n\ndata: [DONE]\n\n") == 2
    assert not counter.failed


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error": {"code": 500}}',
        b'data:{"error":"x"}',
        b"event: error\ndata: x",
        b'data: {"object": "error", "message": "x"}',
        b'event: e\ndata: {"type": "error",\ndata: "message": "x"}',
        b'data: {"text": "", "error_code": 50001}',
        b'data: {"choices": [{"delta": {}, "finish_reason": "error"}]}',
    ],
)
def test_an_error_told_in_a_stream_is_seen(event: bytes) -> None:
    """It is no piece of the answer."""
    counter = PieceCounter(EventDecoder())
    assert counter.feed(b"data: a\n\n" + event + b"\n\n") == 1
    assert counter.failed


@pytest.mark.parametrize(
    "event",
    [
        b'{"error": null, "text": "a"}',
        b'{"text": "\\"error\\": {}"}',
        b'{"text": "a", "error_code": 0}',
        b'{"errors": 3}',
        b'"error"',
        b'{"error": ',
    ],
)
def test_an_answer_that_mentions_no_error_is_none(event: bytes) -> None:
    """Some servers tell in each event that there is none, and a text may be about errors."""
    counter = PieceCounter(EventDecoder())
    assert counter.feed(b"data: " + event + b"\n\n") == 1
    assert not counter.failed


def test_a_character_that_is_not_utf_8_is_replaced() -> None:
    """As the standard decodes the stream, so that one bad byte does not lose the event."""
    assert StreamEvent(b"", b'{"text": "a\xff"}').json() == {"text": "a\ufffd"}
    assert StreamEvent(b"", b"[" * 100_000).json() is None

"""Frames of HTTP/2 (RFC 9113): their numbers, and how they are written."""

from __future__ import annotations

from struct import Struct

from modeldyno.loadgen.http1_parser import Malformed

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME = Struct(">BHBBL")
"""Length in two parts, kind, flags, stream."""
HEAD_SIZE = 9
read_head = _FRAME.unpack_from
STREAM_AT = 5
"""Where in the head of a frame the number of its stream begins."""
SETTING = Struct(">HL")
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PROMISE, PING, AWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 0x1, 0x1, 0x4, 0x8, 0x20
TABLE, PUSH, STREAMS, INITIAL, LARGEST = range(1, 6)
"""Settings."""
REFUSED, CANCEL, CALM = 0x7, 0x8, 0xB
"""Codes of errors."""

WHOLE = END_HEADERS | END_STREAM
"""Flags of a block of headers in one frame, but for the end of the stream."""

USUAL_WINDOW = (1 << 16) - 1
USUAL_FRAME = 1 << 14
MOST = (1 << 31) - 1
"""Bytes that a server may send before it hears of us: as many as can be said."""
LONGEST = 1 << 18
"""Bytes of a frame that we take."""
BLOCK_LIMIT = 1 << 20
"""Bytes of a block of headers."""
LAST_STREAM = (1 << 31) - 1
"""The last stream of a connection."""


def frame(kind: int, flags: int, stream: int, body: bytes = b"", *, size: int | None = None) -> bytes:
    """Write a frame; or its head only, where `size` tells that of a body that is not given."""
    length = len(body) if size is None else size
    return _FRAME.pack(length >> 16 & 0xFF, length & 0xFFFF, kind, flags, stream) + body


HELLO = (
    PREFACE
    + frame(
        SETTINGS, 0, 0,
        SETTING.pack(PUSH, 0) + SETTING.pack(INITIAL, MOST) + SETTING.pack(LARGEST, LONGEST),
    )
    + frame(WINDOW, 0, 0, (MOST - USUAL_WINDOW).to_bytes(4))
)  # fmt: skip


def bare(flags: int, body: bytes) -> bytes:
    """Take padding and priority off the body of DATA or HEADERS."""
    begin, end = 0, len(body)
    if flags & PADDED:
        if not body or body[0] >= len(body):
            raise Malformed("a frame is all padding")
        begin, end = 1, end - body[0]
    if flags & PRIORITIZED:
        begin += 5
    return body[begin:end]

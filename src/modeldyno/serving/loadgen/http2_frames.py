"""HTTP/2 frames (RFC 9113): constants, encoding, and padding."""

from __future__ import annotations

from struct import Struct

from modeldyno.serving.loadgen.http1_parser import Malformed

CLIENT_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME = Struct(">BHBBL")
"""Length in two parts, kind, flags, stream."""
HEAD_SIZE = 9
read_head = _FRAME.unpack_from
STREAM_AT = 5
"""Offset of the stream number in a frame's head."""
SETTING = Struct(">HL")
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY_FLAG = 0x1, 0x1, 0x4, 0x8, 0x20
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)
"""Identifiers of settings."""
REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0x7, 0x8, 0xB
"""Error codes."""

END_OF_REQUEST = END_HEADERS | END_STREAM
"""Flags of a header block in one frame at the end of a stream."""

DEFAULT_WINDOW_SIZE = (1 << 16) - 1
DEFAULT_FRAME_SIZE = 1 << 14
MAX_WINDOW_SIZE = (1 << 31) - 1
"""Flow control window: bytes that a server may send before a window update, the maximum."""
LARGEST_FRAME = 1 << 18
"""Maximum bytes of a frame."""
BLOCK_LIMIT = 1 << 20
"""Maximum bytes of a header block."""
LAST_STREAM = (1 << 31) - 1
"""The highest stream number."""


def frame(kind: int, flags: int, stream: int, body: bytes = b"", *, size: int | None = None) -> bytes:
    """Encode a frame; or only its head, if `size` gives the length of a body that is not passed."""
    length = len(body) if size is None else size
    return _FRAME.pack(length >> 16 & 0xFF, length & 0xFFFF, kind, flags, stream) + body


_OUR_SETTINGS = (
    SETTING.pack(ENABLE_PUSH, 0)
    + SETTING.pack(INITIAL_WINDOW_SIZE, MAX_WINDOW_SIZE)
    + SETTING.pack(MAX_FRAME_SIZE, LARGEST_FRAME)
)
_WHOLE_WINDOW = (MAX_WINDOW_SIZE - DEFAULT_WINDOW_SIZE).to_bytes(4)
CONNECTION_PREFACE = (
    CLIENT_PREFACE + frame(SETTINGS, 0, 0, _OUR_SETTINGS) + frame(WINDOW_UPDATE, 0, 0, _WHOLE_WINDOW)
)


def strip_padding(flags: int, body: bytes) -> bytes:
    """Return the body of DATA or HEADERS without padding and priority."""
    begin, end = 0, len(body)
    if flags & PADDED:
        if not body or body[0] >= len(body):
            raise Malformed("a frame is all padding")
        begin, end = 1, end - body[0]
    if flags & PRIORITY_FLAG:
        begin += 5
    return body[begin:end]

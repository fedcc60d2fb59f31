"""Frames with records and replies, from a driver to the parent process: a kind, a length and bytes."""

from __future__ import annotations

from itertools import accumulate, pairwise
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from modeldyno.engine.interfaces.request_target import Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.serving.load.request_log import Records

ROW = Struct("<5q6iB")
"""A record: due, sent, first, end, received; message, retries, tokens, reasoning, server, pieces;
outcome."""
_NAMES = (
    "due",
    "sent",
    "first",
    "end",
    "received",
    "message",
    "retries",
    "tokens",
    "reasoning",
    "server",
    "pieces",
    "outcome",
)
_FORMATS = ["<i8"] * 5 + ["<i4"] * 6 + ["u1"]

_FRAME = Struct("<cI")
READY, BLOCK, ANSWER, FAULT, END = b"H", b"R", b"A", b"F", b"E"
_BLOCK = Struct("<2qB5q3I")
_ANSWER = Struct("<qiiI")


class RecordBlock(NamedTuple):
    """A driver's regular report, sent several times a second."""

    in_flight: int
    backlog: int
    """Requests due but not sent; after the stop, the number at that time."""
    ended: bool
    cpu: int
    """Nanoseconds of processor time since the start of the load."""
    wall: int
    """Nanoseconds since the start of the load."""
    sent: int
    opened: int
    pieces: int
    """Pieces that have come of the streamed answers in flight."""
    rows: bytes
    """Records, see ROW."""
    times: bytes
    """Times of the pieces of all rows, int64, row by row."""
    turns: bytes = b""
    """Of sequences: the columns `request_log.TURN_COLUMNS` of all rows, int64, row by row; else empty."""
    first_times: bytes = b""
    """Of each answer in flight whose first piece has come since the last block, how long that took from when
    its request was due: int64, nanoseconds."""


def frame(kind: bytes, body: bytes = b"") -> bytes:
    """Encode a frame."""
    return _FRAME.pack(kind, len(body)) + body


def frames(data: bytearray) -> Iterator[tuple[bytes, bytes]]:
    """Yield all complete frames at the front of a buffer, and remove them from it."""
    position = 0
    while len(data) - position >= _FRAME.size:
        kind, length = _FRAME.unpack_from(data, position)
        end = position + _FRAME.size + length
        if len(data) < end:
            break
        yield kind, bytes(data[position + _FRAME.size : end])
        position = end
    del data[:position]


def encode_block(block: RecordBlock) -> bytes:
    """Encode a block."""
    *state, rows, times, turns, first_times = block
    head = _BLOCK.pack(*state, len(rows), len(times), len(turns))
    return frame(BLOCK, b"".join((head, rows, times, turns, first_times)))


def read_block(body: bytes) -> RecordBlock:
    """Decode a block."""
    in_flight, backlog, ended, *state, rows, times, turns = _BLOCK.unpack_from(body)
    ends = [*accumulate((rows, times, turns), initial=_BLOCK.size), len(body)]
    parts = (body[begin:end] for begin, end in pairwise(ends))
    return RecordBlock(in_flight, backlog, bool(ended), *state, *parts)


def encode_answer(kind: bytes, end: int, reply: Reply) -> bytes:
    """Encode a reply and its time of arrival, as an ANSWER or a FAULT."""
    head = _ANSWER.pack(end, reply.message, reply.status, len(reply.head))
    return frame(kind, head + reply.head + reply.body)


def read_answer(body: bytes) -> tuple[int, Reply]:
    """Decode a reply and its time of arrival."""
    end, message, status, length = _ANSWER.unpack_from(body)
    body_start = _ANSWER.size + length
    return end, Reply(
        message=message, status=status, head=body[_ANSWER.size : body_start], body=body[body_start:]
    )


def decode_rows(rows: bytes, times: bytes, driver: int, turns: bytes = b"") -> Records:
    """Convert rows to columns."""
    from modeldyno.base.stats.statistics import load_numpy  # a driver has no numpy
    from modeldyno.serving.load.request_log import PieceTimes, Records, read_turns  # a driver needs none

    np = load_numpy()
    table = np.frombuffer(rows, np.dtype({"names": _NAMES, "formats": _FORMATS}))
    columns = {name: np.ascontiguousarray(table[name]) for name in _NAMES if name != "pieces"}
    pieces = None
    if times:
        pieces = PieceTimes(times=np.frombuffer(times, "<i8"), counts=table["pieces"].astype("int64"))
    return Records(
        **columns, driver=np.full(len(table), driver, "int32"), pieces=pieces, turns=read_turns(turns)
    )

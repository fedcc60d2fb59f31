"""Records and replies on their way from a driver: frames of a kind, a length and bytes."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from modeldyno.core.load.request_target import Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.load.request_log import Records

ROW = Struct("<5q4iB")
"""A record: due, sent, first, end, received; message, retries, tokens, pieces; outcome."""
_NAMES = ("due", "sent", "first", "end", "received", "message", "retries", "tokens", "pieces", "outcome")
_FORMATS = ["<i8"] * 5 + ["<i4"] * 4 + ["u1"]

_FRAME = Struct("<cI")
READY, BLOCK, ANSWER, FAULT, END = b"H", b"R", b"A", b"F", b"E"
_BLOCK = Struct("<2qB4qI")
_ANSWER = Struct("<qiiI")


class Block(NamedTuple):
    """What a driver tells several times a second."""

    in_flight: int
    backlog: int
    """Due and not sent; after it was told to stop, as many as there were then."""
    ended: bool
    cpu: int
    """Nanoseconds of processor time since it began to drive."""
    wall: int
    """Nanoseconds since then."""
    sent: int
    opened: int
    rows: bytes
    """Records, see ROW."""
    times: bytes
    """Of all pieces of all rows, int64, one row's after the other's."""


def frame(kind: bytes, body: bytes = b"") -> bytes:
    """Wrap what is to be sent."""
    return _FRAME.pack(kind, len(body)) + body


def frames(data: bytearray) -> Iterator[tuple[bytes, bytes]]:
    """Take all whole frames from the front of what has come."""
    at = 0
    while len(data) - at >= _FRAME.size:
        kind, length = _FRAME.unpack_from(data, at)
        end = at + _FRAME.size + length
        if len(data) < end:
            break
        yield kind, bytes(data[at + _FRAME.size : end])
        at = end
    del data[:at]


def of_block(block: Block) -> bytes:
    """Write a block."""
    *state, rows, times = block
    return frame(BLOCK, _BLOCK.pack(*state, len(rows)) + rows + times)


def read_block(body: bytes) -> Block:
    """Read a block."""
    in_flight, backlog, ended, cpu, wall, sent, opened, length = _BLOCK.unpack_from(body)
    end = _BLOCK.size + length
    rows, times = body[_BLOCK.size : end], body[end:]
    return Block(in_flight, backlog, bool(ended), cpu, wall, sent, opened, rows, times)


def of_answer(kind: bytes, end: int, reply: Reply) -> bytes:
    """Write a reply and when it came; it is an ANSWER or a FAULT."""
    head = _ANSWER.pack(end, reply.message, reply.status, len(reply.head))
    return frame(kind, head + reply.head + reply.body)


def read_answer(body: bytes) -> tuple[int, Reply]:
    """Read a reply and when it came."""
    end, message, status, length = _ANSWER.unpack_from(body)
    cut = _ANSWER.size + length
    return end, Reply(message=message, status=status, head=body[_ANSWER.size : cut], body=body[cut:])


def records(rows: bytes, times: bytes, driver: int) -> Records:
    """Make columns of rows."""
    from modeldyno.core.load.request_log import Records  # noqa: PLC0415 - a driver needs none
    from modeldyno.core.stats.statistics import load_numpy  # noqa: PLC0415 - a driver has no numpy

    np = load_numpy()
    table = np.frombuffer(rows, np.dtype({"names": _NAMES, "formats": _FORMATS}))
    columns = {name: np.ascontiguousarray(table[name]) for name in _NAMES if name != "pieces"}
    pieces: tuple[tuple[int, ...], ...] = ()
    if times:
        stops = np.cumsum(table["pieces"])
        every = np.frombuffer(times, "<i8").tolist()
        pieces = tuple(
            tuple(every[stop - many : stop])
            for stop, many in zip(stops.tolist(), table["pieces"].tolist(), strict=True)
        )
    return Records(**columns, driver=np.full(len(table), driver, "int32"), pieces=pieces)

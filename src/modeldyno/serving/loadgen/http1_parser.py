"""Parses HTTP/1.1 answers (RFC 9112): heads and chunks."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.serving.loadgen.event_stream import decoder_of

if TYPE_CHECKING:
    from modeldyno.serving.loadgen.event_stream import EventDecoder, LineDecoder

CHUNKED = -1
"""A length that means: the body is chunked."""
TO_THE_END = -2
"""A length that means: the body ends with the connection."""
HEAD_LIMIT = 1 << 16
"""Maximum bytes of a head."""
_LINE_LIMIT = 1 << 12
"""Maximum bytes of the line before a chunk."""
_DIGITS = frozenset(b"0123456789")
_HEX = frozenset(b"0123456789abcdefABCDEF")


class Malformed(ValueError):
    """The bytes are not a valid answer of the protocol."""


class AnswerHead(NamedTuple):
    """The parsed head of an answer."""

    status: int
    outcome: RequestOutcome
    length: int
    """Length of the body in bytes; or CHUNKED, or TO_THE_END."""
    stays: bool
    """Whether the connection may be reused."""
    whole: bool
    """Whether the body is one JSON document, which has no pieces."""
    decoder: type[EventDecoder | LineDecoder] | None
    """What decodes the body if it is a stream of events; None if it is none."""

    @property
    def interim(self) -> bool:
        """Whether it is an interim answer, before the final one."""
        return self.status < 200


@lru_cache(maxsize=512)  # most servers repeat the same head
def read_head(head: bytes) -> AnswerHead:
    """Parse a head without the empty line that ends it; raise Malformed if it is invalid."""
    first, *lines = head.split(b"\r\n")
    status = _status(first)
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise Malformed("a field of the head has no name")
        name = name.lower()
        fields[name] = fields[name] + b"," + value.strip() if name in fields else value.strip()
    connection, kind = (fields.get(name, b"").lower() for name in (b"connection", b"content-type"))
    length = _length(status, fields)
    return AnswerHead(
        status=status,
        outcome=outcome_of_status(status),
        length=length,
        stays=length != TO_THE_END
        and (b"close" not in connection if first[7:8] == b"1" else b"keep-alive" in connection),
        whole=kind.partition(b";")[0].strip() == b"application/json",
        decoder=decoder_of(kind),
    )


def _status(line: bytes) -> int:
    version, _, rest = line.partition(b" ")
    code = rest[:3]
    if version not in {b"HTTP/1.1", b"HTTP/1.0"} or len(code) < 3 or not _DIGITS.issuperset(code):
        raise Malformed("it does not start with a status")
    status = int(code)
    if rest[3:4].strip() or not 100 <= status < 600 or status == 101:
        raise Malformed("it has no valid HTTP status")
    return status


def _length(status: int, fields: dict[bytes, bytes]) -> int:
    """Return the length of the body (RFC 9112, 6.3)."""
    if status < 200 or status in {204, 304}:
        return 0
    coding = fields.get(b"transfer-encoding")
    if coding is not None:
        return CHUNKED if coding.lower().rpartition(b",")[2].strip() == b"chunked" else TO_THE_END
    stated = {value.strip() for value in fields.get(b"content-length", b"").split(b",")}
    if stated == {b""}:
        if b"content-length" in fields:
            raise Malformed("its length is empty")
        return TO_THE_END
    length = stated.pop()
    if stated or not length or len(length) > 18 or not _DIGITS.issuperset(length):
        raise Malformed("its length is not a number")
    return int(length)


def outcome_of_status(status: int) -> RequestOutcome:
    """Return the outcome of a request by the status of its answer."""
    if status < 300:
        return RequestOutcome.OK
    if status in {429, 503}:
        return RequestOutcome.REJECTED
    return RequestOutcome.SERVER_ERROR if status >= 500 else RequestOutcome.CLIENT_ERROR


class ChunkDecoder:
    """Decodes a chunked body as it arrives."""

    __slots__ = ("_left", "_line", "_state", "done")

    def __init__(self) -> None:
        self.done = False
        self._state = _CHUNK_SIZE
        self._left = 0
        self._line = b""

    @property
    def between(self) -> bool:
        """Whether the next byte begins a chunk."""
        return self._state == _CHUNK_SIZE and not self._line

    def feed(self, data: bytes) -> list[bytes]:
        """Return what these bytes add to the body; raise Malformed for bad chunks or data after the end."""
        pieces: list[bytes] = []
        position, end = 0, len(data)
        while position < end:
            if self.done:
                raise Malformed("it goes on after its end")
            if self._state == _DATA:
                piece = data[position : position + self._left]
                pieces.append(piece)
                position += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._state = _DATA_END
                continue
            newline = data.find(b"\n", position)
            stop = end if newline < 0 else newline + 1
            self._line += data[position:stop]
            position = stop
            if len(self._line) > _LINE_LIMIT or (
                self._state == _DATA_END and not b"\r\n".startswith(self._line)
            ):
                raise Malformed("a chunk does not end where it should")
            if newline >= 0:
                self._read_line(self._line)
                self._line = b""
        return pieces

    def _read_line(self, line: bytes) -> None:
        if not line.endswith(b"\r\n"):
            raise Malformed("a line between chunks ends wrongly")
        if self._state == _CHUNK_SIZE:
            size = line.partition(b";")[0].strip()
            if not size or len(size) > 15 or not _HEX.issuperset(size):
                raise Malformed("the size of a chunk is not a number")
            self._left = int(size, 16)
            self._state = _DATA if self._left else _TRAILER
        elif self._state == _DATA_END:
            self._state = _CHUNK_SIZE
        elif line == b"\r\n":
            self.done = True


_CHUNK_SIZE, _DATA, _DATA_END, _TRAILER = range(4)

"""gRPC over HTTP/2: the headers of a call, and the meaning of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.serving.loadgen.http1_parser import Malformed, outcome_of_status
from modeldyno.serving.loadgen.request import Compressed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.engine.interfaces.request_target import Target
    from modeldyno.serving.loadgen.hpack import Field
    from modeldyno.serving.loadgen.request import Call, Raw

PREFIX = 5
"""Bytes before each message: the compression flag and the length."""
_DEFAULT_PORTS = {True: 443, False: 80}
_OUTCOMES = {
    1: RequestOutcome.CLIENT_ERROR,
    2: RequestOutcome.SERVER_ERROR,
    3: RequestOutcome.CLIENT_ERROR,
    4: RequestOutcome.TIMEOUT,
    5: RequestOutcome.CLIENT_ERROR,
    6: RequestOutcome.CLIENT_ERROR,
    7: RequestOutcome.CLIENT_ERROR,
    8: RequestOutcome.REJECTED,
    9: RequestOutcome.CLIENT_ERROR,
    10: RequestOutcome.CLIENT_ERROR,
    11: RequestOutcome.CLIENT_ERROR,
    12: RequestOutcome.SERVER_ERROR,
    13: RequestOutcome.SERVER_ERROR,
    14: RequestOutcome.REJECTED,
    15: RequestOutcome.SERVER_ERROR,
    16: RequestOutcome.CLIENT_ERROR,
}
"""gRPC status to outcome, by the equivalent HTTP status (google.rpc.Code); 4 is our own deadline."""


class GrpcHeaders(NamedTuple):
    """The content of a header block."""

    status: int
    """HTTP status; 0 in trailers."""
    code: int | None
    """gRPC status; None if absent."""
    lines: bytes


NO_TRAILERS = GrpcHeaders(0, None, b"")


def parse_headers(fields: Sequence[Field]) -> GrpcHeaders:
    """Parse the headers or trailers of an answer; raise Malformed for an invalid status."""
    status, code = 0, None
    lines = []
    for name, value in fields:
        if name == b":status":
            status = _number(value)
        elif name == b"grpc-status":
            code = _number(value)
        if not name.startswith(b":"):
            lines.append(name + b": " + value)
    return GrpcHeaders(status, code, b"\r\n".join(lines))


def _number(value: bytes) -> int:
    if not value.isdigit() or len(value) > 3:
        raise Malformed("a status is not a number")
    return int(value)


def call_headers(target: Target, timeout: float) -> tuple[Field, ...]:
    """Return the headers of a call, which are the same for all calls."""
    default_port = target.port == _DEFAULT_PORTS[target.tls is not None]
    host = f"[{target.host}]" if ":" in target.host else target.host
    return (
        (b":method", b"POST"),
        (b":scheme", b"https" if target.tls is not None else b"http"),
        (b":path", target.method.encode()),
        (b":authority", (host if default_port else f"{host}:{target.port}").encode()),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"modeldyno"),
        (b"grpc-timeout", b"%dm" % min(99_999_999, max(1, round(timeout * 1000)))),
        *_compression_headers(target.compression),
        *((name.lower().encode(), value.encode()) for name, value in target.metadata),
    )


def _compression_headers(compression: str) -> tuple[Field, ...]:
    """Return the headers that say how messages are compressed, and how answers may be."""
    if not compression:
        return ()
    return (b"grpc-encoding", compression.encode()), (b"grpc-accept-encoding", b"gzip,deflate,identity")


class PartialAnswer:
    """A partly received answer to a call."""

    __slots__ = ("_buffer", "_compressed", "_stream", "body", "call", "consumed", "lines", "status")

    def __init__(self, call: Call, *, stream: bool, compressed: bool = False) -> None:
        self.call = call
        self.status = 0
        """HTTP status; 0 until it has arrived."""
        self.lines = b""
        self.body: list[bytes] = []
        self.consumed = 0
        """Bytes received since the last window update."""
        self._buffer: bytearray | None = None
        self._stream = stream
        self._compressed = compressed
        """Whether the answer may be compressed."""

    def take(self, data: bytes, now: int) -> None:
        """Read a part of the messages; raise Malformed for a compressed one that was not asked for."""
        if not self.status:
            raise Malformed("messages come before the headers")
        is_first = not self._buffer and len(data) >= PREFIX
        if is_first and len(data) - PREFIX == int.from_bytes(data[1:PREFIX]):
            self._message(data[0], data[PREFIX:], now)
            return
        if self._buffer is None:
            self._buffer = bytearray()
        self._buffer += data
        self._split(self._buffer, now)

    def _split(self, buffer: bytearray, now: int) -> None:
        while len(buffer) >= PREFIX:
            end = PREFIX + int.from_bytes(buffer[1:PREFIX])
            if len(buffer) < end:
                break
            self._message(buffer[0], bytes(buffer[PREFIX:end]), now)
            del buffer[:end]

    def _message(self, flag: int, message: bytes, now: int) -> None:
        if flag and not self._compressed:
            raise Malformed("a message is compressed although compression was not requested")
        self.body.append(Compressed(message) if flag else message)
        self.call.received += len(message)
        if self._stream:
            self.call.pieces.append(now)
            if self.call.begun is not None:
                self.call.begun(self.call)

    def end(self, trailers: GrpcHeaders) -> tuple[RequestOutcome, Raw | None]:
        """Return the outcome, and the raw answer if it is complete."""
        code = trailers.code
        if code is None:
            status = self.status or trailers.status
            fault = outcome_of_status(status)
            return (
                (RequestOutcome.MALFORMED, None)
                if fault is RequestOutcome.OK
                else (fault, self._raw(status, trailers))
            )
        outcome = RequestOutcome.OK if code == 0 else _OUTCOMES.get(code, RequestOutcome.SERVER_ERROR)
        if outcome is RequestOutcome.OK and (self._buffer or not (self.body or self._stream)):
            return RequestOutcome.MALFORMED, None
        return outcome, self._raw(code, trailers)

    def _raw(self, code: int, trailers: GrpcHeaders) -> Raw:
        lines = self.lines + b"\r\n" + trailers.lines if self.lines else trailers.lines
        return code, lines, tuple(self.body)

"""What a faulty server does instead of answering, by name, and how a client should classify it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.testing.server_response import ServerResponse, problem


class Wire(Protocol):
    """A connection on which faults act."""

    def write(self, data: bytes) -> None:
        """Send data."""

    def close(self) -> None:
        """Close in an orderly way, after what was written."""

    def reset(self) -> None:
        """Reset the connection."""

    def dribble(self, data: bytes) -> None:
        """Send byte by byte."""

    def over(self) -> None:
        """Go on to the next request."""


@dataclass(frozen=True, slots=True)
class ServerFault:
    """A fault: how it acts, and how clients may classify it."""

    act: Callable[[Wire, ServerResponse], None]
    outcomes: frozenset[RequestOutcome]
    """Outcomes that a client may report."""


def _half(answer: ServerResponse) -> bytes:
    """Return the head and half of the body, at least one byte too few."""
    raw, head = answer.raw, len(answer.head)
    return raw[: head + (len(raw) - head) // 2]


def _status(status: int) -> Callable[[Wire, ServerResponse], None]:
    def act(wire: Wire, _: ServerResponse) -> None:
        wire.write(problem(status, "as asked for").raw)
        wire.over()

    return act


def _later(status: int, *, dated: bool) -> Callable[[Wire, ServerResponse], None]:
    """Reject a request, and ask to wait for a second, given as such or as a time of the server's clock."""
    seconds = b"Retry-After: 1\r\n"
    date = b"Date: Wed, 01 Jan 2020 00:00:00 GMT\r\nRetry-After: Wed, 01 Jan 2020 00:00:01 GMT\r\n"

    def act(wire: Wire, _: ServerResponse) -> None:
        wire.write(replace(problem(status, "as asked for"), extra=date if dated else seconds).raw)
        wire.over()

    return act


def _reset_after(wire: Wire, answer: ServerResponse) -> None:
    wire.write(_half(answer))
    wire.reset()


def _truncated(wire: Wire, answer: ServerResponse) -> None:
    wire.write(_half(answer))
    wire.close()


def _long(wire: Wire, answer: ServerResponse) -> None:
    wire.write(answer.raw + b"more than was said")
    wire.over()


def _garbage(wire: Wire, answer: ServerResponse) -> None:
    wire.write(b"HTTQ/one point one, very well\r\n" + answer.raw.partition(b"\r\n")[2])
    wire.over()


def _bad_chunk(wire: Wire, answer: ServerResponse) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % answer.kind
    wire.write(head + b"2\r\nok\r\nnot hexadecimal\r\nok\r\n0\r\n\r\n")
    wire.over()


def _close_after(wire: Wire, answer: ServerResponse) -> None:
    wire.write(answer.raw)
    wire.close()


def _stream_error(wire: Wire, answer: ServerResponse) -> None:
    event = b'data: {"error": {"message": "as asked for", "code": 500}}\n\n'
    some = ServerResponse(kind=b"text/event-stream", pieces=(*answer.pieces[:1], (0, event)))
    wire.write(some.raw)
    wire.over()


FAULTS = {
    "429": ServerFault(_status(429), frozenset({RequestOutcome.REJECTED})),
    "503": ServerFault(_status(503), frozenset({RequestOutcome.REJECTED})),
    "500": ServerFault(_status(500), frozenset({RequestOutcome.SERVER_ERROR})),
    "400": ServerFault(_status(400), frozenset({RequestOutcome.CLIENT_ERROR})),
    "reset-before": ServerFault(lambda wire, _: wire.reset(), frozenset({RequestOutcome.RESET})),
    "reset-after": ServerFault(_reset_after, frozenset({RequestOutcome.RESET})),
    "close-before": ServerFault(
        lambda wire, _: wire.close(), frozenset({RequestOutcome.RESET, RequestOutcome.TRUNCATED})
    ),
    "truncated": ServerFault(_truncated, frozenset({RequestOutcome.TRUNCATED})),
    "slow": ServerFault(
        lambda wire, answer: wire.dribble(answer.raw), frozenset({RequestOutcome.OK, RequestOutcome.TIMEOUT})
    ),
    "hang": ServerFault(lambda _wire, _: None, frozenset({RequestOutcome.TIMEOUT})),
    "long": ServerFault(_long, frozenset({RequestOutcome.MALFORMED})),
    "garbage": ServerFault(_garbage, frozenset({RequestOutcome.MALFORMED})),
    "bad-chunk": ServerFault(_bad_chunk, frozenset({RequestOutcome.MALFORMED})),
    "close-after": ServerFault(_close_after, frozenset({RequestOutcome.OK})),
    "429-later": ServerFault(_later(429, dated=False), frozenset({RequestOutcome.REJECTED})),
    "503-later": ServerFault(_later(503, dated=True), frozenset({RequestOutcome.REJECTED})),
    "stream-error": ServerFault(_stream_error, frozenset({RequestOutcome.SERVER_ERROR})),
}
NUMBERS = {name: number for number, name in enumerate(FAULTS)}
"""Numbers of the faults in the ledger."""


def set_to_reset(transport: Any) -> None:
    """Make the system reset the connection on close, without waiting for sent data."""
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

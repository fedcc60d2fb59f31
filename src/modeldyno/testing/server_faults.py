"""What a faulty server does instead of answering, by name, and how a client should classify it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from modeldyno.core.load.request_log import Outcome
from modeldyno.testing.server_protocols import Answer, problem


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
class Fault:
    """A fault: how it acts, and how clients may classify it."""

    act: Callable[[Wire, Answer], None]
    outcomes: frozenset[Outcome]
    """Outcomes that a client may report."""


def _half(answer: Answer) -> bytes:
    """Return the head and half of the body, at least one byte too few."""
    raw, head = answer.raw, len(answer.head)
    return raw[: head + (len(raw) - head) // 2]


def _status(status: int) -> Callable[[Wire, Answer], None]:
    def act(wire: Wire, _: Answer) -> None:
        wire.write(problem(status, "as asked for").raw)
        wire.over()

    return act


def _reset_before(wire: Wire, _: Answer) -> None:
    wire.reset()


def _reset_after(wire: Wire, answer: Answer) -> None:
    wire.write(_half(answer))
    wire.reset()


def _close_before(wire: Wire, _: Answer) -> None:
    wire.close()


def _truncated(wire: Wire, answer: Answer) -> None:
    wire.write(_half(answer))
    wire.close()


def _slow(wire: Wire, answer: Answer) -> None:
    wire.dribble(answer.raw)


def _hang(_wire: Wire, _: Answer) -> None:
    pass


def _long(wire: Wire, answer: Answer) -> None:
    wire.write(answer.raw + b"more than was said")
    wire.over()


def _garbage(wire: Wire, answer: Answer) -> None:
    wire.write(b"HTTQ/one point one, very well\r\n" + answer.raw.partition(b"\r\n")[2])
    wire.over()


def _bad_chunk(wire: Wire, answer: Answer) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % answer.kind
    wire.write(head + b"2\r\nok\r\nnot hexadecimal\r\nok\r\n0\r\n\r\n")
    wire.over()


def _close_after(wire: Wire, answer: Answer) -> None:
    wire.write(answer.raw)
    wire.close()


def _stream_error(wire: Wire, answer: Answer) -> None:
    event = b'data: {"error": {"message": "as asked for", "code": 500}}\n\n'
    some = Answer(kind=b"text/event-stream", pieces=(*answer.pieces[:1], (0, event)))
    wire.write(some.raw)
    wire.over()


FAULTS = {
    "429": Fault(_status(429), frozenset({Outcome.REJECTED})),
    "503": Fault(_status(503), frozenset({Outcome.REJECTED})),
    "500": Fault(_status(500), frozenset({Outcome.SERVER_ERROR})),
    "400": Fault(_status(400), frozenset({Outcome.CLIENT_ERROR})),
    "reset-before": Fault(_reset_before, frozenset({Outcome.RESET})),
    "reset-after": Fault(_reset_after, frozenset({Outcome.RESET})),
    "close-before": Fault(_close_before, frozenset({Outcome.RESET, Outcome.TRUNCATED})),
    "truncated": Fault(_truncated, frozenset({Outcome.TRUNCATED})),
    "slow": Fault(_slow, frozenset({Outcome.OK, Outcome.TIMEOUT})),
    "hang": Fault(_hang, frozenset({Outcome.TIMEOUT})),
    "long": Fault(_long, frozenset({Outcome.MALFORMED})),
    "garbage": Fault(_garbage, frozenset({Outcome.MALFORMED})),
    "bad-chunk": Fault(_bad_chunk, frozenset({Outcome.MALFORMED})),
    "close-after": Fault(_close_after, frozenset({Outcome.OK})),
    "stream-error": Fault(_stream_error, frozenset({Outcome.SERVER_ERROR})),
}
NUMBERS = {name: number for number, name in enumerate(FAULTS)}
"""Numbers of the faults in the ledger."""


def set_to_reset(transport: Any) -> None:
    """Make the system reset the connection on close, without waiting for sent data."""
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

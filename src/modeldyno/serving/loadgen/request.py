"""A request in flight, and the interfaces of connections, of their owners and of connection pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from modeldyno.engine.interfaces.request_target import Reply, decompress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.result.request_outcome import RequestOutcome

    Raw = tuple[int, bytes, bytes | tuple[bytes, ...]]
    """Status, head and body of a reply; converted to a Reply only when needed."""

    Done = Callable[["Call", RequestOutcome, int, Raw | None], None]
    """Callback, once per request: its outcome, end time (nanoseconds), and the reply if complete."""


class AgentSession(Protocol):
    """The session of an agent, whose requests are those of several sequences."""

    under_way: int
    """Requests in flight, and those that are about to be sent."""

    def end(self, branch: OpenSequence, *, answered: bool) -> tuple[list[OpenSequence], list[OpenSequence]]:
        """End the request of a sequence; return those whose next one may be sent, and those that ended."""


class OpenSequence:
    """A sequence of requests that has not ended."""

    __slots__ = (
        "connection", "graph", "history", "left", "message", "messages", "number", "pause", "server", "turn",
    )  # fmt: skip

    def __init__(self, number: int, messages: Iterator[int], length: int) -> None:
        self.number = number
        self.messages = messages
        self.message = next(messages)
        """That of its next request."""
        self.left = length
        """Requests still to be answered."""
        self.turn = 1
        """Number of its next request, or of that in flight."""
        self.pause = 0
        """Nanoseconds between the last answer and when that request is due."""
        self.history = b""
        """Of a chat: what its next request says before its own message."""
        self.graph: AgentSession | None = None
        """The session of an agent that it is a branch of."""
        self.connection: ClientConnection | None = None
        """That of its requests, if they keep one; None before the first."""
        self.server = -1
        """Which of the target's servers has it; -1 before its first request."""

    def go_on(self) -> None:
        """Pass on to the next request."""
        self.turn += 1
        self.message = next(self.messages)


class Call:
    """A request in flight; times are nanoseconds of the monotonic clock. Mutable for speed (hot path)."""

    __slots__ = (
        "abandon_at", "begun", "carrier", "due", "failures", "first", "mark", "message", "pieces",
        "reasoning", "received", "retries", "sent", "sequence", "server",
    )  # fmt: skip

    def __init__(self, message: int, due: int) -> None:
        self.mark = b""
        """Of its sequence, written into its message; empty outside of one."""
        self.sequence: OpenSequence | None = None
        self.failures = 0
        """Number of consecutive failures of the slot before this request."""
        self.begin(message, due)

    def begin(self, message: int, due: int) -> None:
        """Start another request with this object."""
        self.message = message
        self.due = due
        self.retries = 0
        self.abandon_at = 0
        """When the client gives it up; 0 for never."""
        self.server = 0
        """Which of the target's servers it is sent to."""
        self.begun: Callable[[Call], None] | None = None
        """What is called once, with the first piece of a streamed answer, if that is waited for."""
        self.reset()

    def reset(self) -> None:
        """Clear the results of the last attempt."""
        self.sent = 0
        self.first = 0
        self.received = 0
        self.pieces: list[int] = []
        self.reasoning = 0
        self.carrier: ClientConnection | None = None
        """Its connection; None while it waits for one."""


class ClientConnection(Protocol):
    """A connection to a server."""

    full: bool
    """Whether it accepts no more requests at present."""

    def send(self, call: Call) -> None:
        """Write a request now; set `sent` and `carrier`. The connection must not be full."""

    def drop(self, call: Call) -> None:
        """Abandon a request without reporting it."""

    def close(self) -> None:
        """Close the connection without reporting its requests."""


class ConnectionOwner(Protocol):
    """The owner of connections, which is notified of their events."""

    @property
    def done(self) -> Done:
        """Callback for the end of a request."""

    def connection_ready(self, connection: ClientConnection) -> None:
        """Handle a connection that accepts its first request now."""

    def connection_free(self, connection: ClientConnection) -> None:
        """Handle a connection that is no longer full."""

    def connection_closed(self, connection: ClientConnection) -> None:
        """Handle a connection that accepts no more requests, ever."""

    def connection_failed(self, outcome: RequestOutcome) -> None:
        """Handle a connection that never became ready."""

    def resend(self, call: Call) -> None:
        """Send a request, which its connection certainly did not process, on another one."""


class Carrier(Protocol):
    """A way to a server that opens connections as needed."""

    @property
    def opened(self) -> int:
        """Number of connections opened."""

    def send(self, call: Call, now: int) -> None:
        """Send a request now, or as soon as there is a connection; set `call.sent`."""

    def drop(self, call: Call) -> None:
        """Abandon a request without reporting it."""

    def leave(self, sequence: OpenSequence) -> None:
        """Give the connection of a sequence that has ended to others."""


class Compressed(bytes):
    """A compressed message of a reply, which is decompressed only if it is read."""


def make_reply(message: int, raw: Raw) -> Reply:
    """Return a Reply made of its raw parts."""
    status, head, body = raw
    joined = body if isinstance(body, bytes) else b"".join(map(_plain, body))
    return Reply(message=message, status=status, head=head, body=joined)


def _plain(part: bytes) -> bytes:
    """Return a part of a body as it was before any compression; as it is if it cannot be decompressed."""
    if not isinstance(part, Compressed):
        return part
    try:
        return decompress(part)
    except ValueError:
        return bytes(part)

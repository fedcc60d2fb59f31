"""A request on its way, what carries it, and whom that serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from modeldyno.core.load.request_target import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.load.request_log import Outcome

    Raw = tuple[int, bytes, bytes | tuple[bytes, ...]]
    """Status, head, and body: what makes a Reply, put together only for those that are looked at."""

    Done = Callable[["Call", Outcome, int, Raw | None], None]
    """Told once of each request: how and when (nanoseconds) it ended, and what came if all did."""

    Bearing = Callable[[bytes], bool]
    """Says whether an event of a stream holds something generated."""


class Call:
    """A request on its way; times are nanoseconds of the monotonic clock. Not frozen: the hot path."""

    __slots__ = ("carrier", "due", "failures", "first", "message", "pieces", "received", "retries", "sent")

    def __init__(self, message: int, due: int) -> None:
        self.failures = 0
        """Requests of the same slot that failed in a row before this one."""
        self.begin(message, due)

    def begin(self, message: int, due: int) -> None:
        """Become another request."""
        self.message = message
        self.due = due
        self.retries = 0
        self.again()

    def again(self) -> None:
        """Forget what came of the last try."""
        self.sent = 0
        self.first = 0
        self.received = 0
        self.pieces: list[int] = []
        self.carrier: Connected | None = None
        """The connection that it is on; None while it waits for one."""


class Connected(Protocol):
    """A connection to a server."""

    full: bool
    """Whether it takes no further request at present."""

    def send(self, call: Call) -> None:
        """Write a request now; set `sent` and `carrier`. It must not be full."""

    def drop(self, call: Call) -> None:
        """Give up a request, telling nobody."""

    def close(self) -> None:
        """Break the connection, telling nobody of its requests."""


class Owner(Protocol):
    """Whom connections serve."""

    @property
    def done(self) -> Done:
        """What hears how a request ended."""

    def ready(self, connection: Connected) -> None:
        """Hear that a connection takes its first request now."""

    def free(self, connection: Connected) -> None:
        """Hear that a connection is no longer full."""

    def gone(self, connection: Connected) -> None:
        """Hear that a connection takes no further requests, ever."""

    def stillborn(self, outcome: Outcome) -> None:
        """Hear that a connection never became ready."""

    def unanswered(self, call: Call) -> None:
        """Send on another connection what this one surely did not answer."""


class Carrier(Protocol):
    """A way to a server: opens connections as they are needed."""

    opened: int
    """Connections that were made."""

    def send(self, call: Call, now: int) -> None:
        """Put it on the wire now, or as soon as there is a connection; set `call.sent`."""

    def drop(self, call: Call) -> None:
        """Give it up, telling nobody."""


def reply(message: int, raw: Raw) -> Reply:
    """Put a reply together."""
    status, head, body = raw
    whole = body if isinstance(body, bytes) else b"".join(body)
    return Reply(message=message, status=status, head=head, body=whole)

"""A pool of connections to one server: as many as the requests in flight need.

A sequence may keep a connection to itself until it ends, as a user's client does, so that a balancer of
connections before the servers sends all of its requests to the same one.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import monotonic_ns
from modeldyno.base.result.request_outcome import RequestOutcome

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from modeldyno.serving.loadgen.request import (
        Call,
        ClientConnection,
        ConnectionOwner,
        Done,
        OpenSequence,
    )


class ConnectionPool:
    """Gives each request a connection with capacity, or opens one."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        done: Done,
        make: Callable[[ConnectionOwner], asyncio.Protocol],
        place: dict[str, Any],
        *,
        share: int = 1,
        keeps: bool = False,
    ) -> None:
        """Connect to `place` (arguments of `create_connection`); `share` requests per connection.

        With `keeps` a sequence has a connection of its own.
        """
        self.opened = 0
        self._loop = loop
        self.done = done
        self._make = make
        self._address_options = place
        self._requests_each = share
        self._available: dict[ClientConnection, None] = {}
        """Connections with capacity, used last in, first out, so that few connections stay warm."""
        self._keeps = keeps
        self._kept: dict[ClientConnection, OpenSequence] = {}
        """Connections that only the requests of a sequence use."""
        self._waiting: deque[Call] = deque()
        self._connecting = 0
        """Number of connections being opened."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def send(self, call: Call, now: int) -> None:
        """Send a request now, or as soon as there is a connection."""
        own = None if call.sequence is None else call.sequence.connection
        if own is not None and not own.full:
            own.send(call)
        elif self._available:
            connection = next(reversed(self._available))
            self._begin(connection, call)
            if connection.full:
                del self._available[connection]
        else:
            call.sent = now
            self._wait(call)

    def drop(self, call: Call) -> None:
        """Abandon a request without reporting it."""
        if call.carrier is not None:
            call.carrier.drop(call)
        else:
            self._waiting.remove(call)

    def leave(self, sequence: OpenSequence) -> None:
        """Give the connection of a sequence that has ended to others."""
        connection, sequence.connection = sequence.connection, None
        if connection is not None:
            del self._kept[connection]
            self.connection_free(connection)

    def _begin(self, connection: ClientConnection, call: Call) -> None:
        """Send a request on a connection that no sequence keeps."""
        connection.send(call)
        if self._keeps and (sequence := call.sequence) is not None:
            if sequence.connection is not None:  # it was closed
                del self._kept[sequence.connection]
            sequence.connection = connection
            self._kept[connection] = sequence

    def connection_ready(self, connection: ClientConnection) -> None:
        """Add a new connection."""
        self.opened += 1
        self._connecting -= 1
        self.connection_free(connection)

    def connection_free(self, connection: ClientConnection) -> None:
        """Use a connection that has capacity, unless a sequence keeps it."""
        if connection in self._kept:
            return
        while self._waiting and not connection.full:
            self._begin(connection, self._waiting.popleft())
        if not connection.full:
            self._available[connection] = None

    def connection_closed(self, connection: ClientConnection) -> None:
        """Remove a connection."""
        self._available.pop(connection, None)
        if (sequence := self._kept.pop(connection, None)) is not None:
            sequence.connection = None

    def connection_failed(self, outcome: RequestOutcome) -> None:
        """Fail one waiting request for each connection that could not be opened."""
        self._connecting -= 1
        if self._waiting:
            self.done(self._waiting.popleft(), outcome, monotonic_ns(), None)
        self._open()

    def resend(self, call: Call) -> None:
        """Send a request again that the server certainly did not process."""
        call.retries += 1
        call.reset()
        self.send(call, monotonic_ns())

    def _wait(self, call: Call) -> None:
        self._waiting.append(call)
        self._open()

    def _open(self) -> None:
        """Open a connection, unless enough are being opened."""
        if self._connecting * self._requests_each >= len(self._waiting):
            return
        self._connecting += 1
        task = self._loop.create_task(
            self._loop.create_connection(lambda: self._make(self), **self._address_options)
        )
        self._tasks.add(task)  # keep a reference, or it may be garbage collected
        task.add_done_callback(self._connection_done)

    def _connection_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.connection_failed(RequestOutcome.REFUSED)

    def close(self) -> None:
        """Close the idle connections, and open no more."""
        for task in self._tasks:
            task.cancel()
        for connection in [*self._available, *self._kept]:
            connection.close()

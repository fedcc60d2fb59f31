"""Connections to one server: as many as the requests on their way need, and no more."""

from __future__ import annotations

from collections import deque
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from modeldyno.core.load.request_log import Outcome

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from modeldyno.loadgen.request import Call, Connected, Done, Owner


class Pool:
    """Gives each request a connection with room, or makes one."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        done: Done,
        make: Callable[[Owner], asyncio.Protocol],
        place: dict[str, Any],
        *,
        share: int = 1,
    ) -> None:
        """Connect to `place`, see the loop's `create_connection`; `share` requests on each connection."""
        self.opened = 0
        self._loop = loop
        self.done = done
        self._make = make
        self._place = place
        self._share = share
        self._room: dict[Connected, None] = {}
        """Last in, first out: as few connections as will do stay warm."""
        self._waiting: deque[Call] = deque()
        self._coming = 0
        """Connections that are being made."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def send(self, call: Call, now: int) -> None:
        """Put it on the wire now, or as soon as there is a connection."""
        if self._room:
            connection = next(reversed(self._room))
            connection.send(call)
            if connection.full:
                del self._room[connection]
        else:
            call.sent = now
            self._wait(call)

    def drop(self, call: Call) -> None:
        """Give it up, telling nobody."""
        if call.carrier is not None:
            call.carrier.drop(call)
        else:
            self._waiting.remove(call)

    def ready(self, connection: Connected) -> None:
        """Use a new connection."""
        self.opened += 1
        self._coming -= 1
        self.free(connection)

    def free(self, connection: Connected) -> None:
        """Use the room on a connection."""
        while self._waiting and not connection.full:
            connection.send(self._waiting.popleft())
        if not connection.full:
            self._room[connection] = None

    def gone(self, connection: Connected) -> None:
        """Use a connection no more."""
        self._room.pop(connection, None)

    def stillborn(self, outcome: Outcome) -> None:
        """Have one request pay for a connection that could not be made."""
        self._coming -= 1
        if self._waiting:
            self.done(self._waiting.popleft(), outcome, monotonic_ns(), None)
        self._open()

    def unanswered(self, call: Call) -> None:
        """Send again what was surely not answered."""
        call.retries += 1
        call.again()
        self.send(call, monotonic_ns())

    def _wait(self, call: Call) -> None:
        self._waiting.append(call)
        self._open()

    def _open(self) -> None:
        """Make a connection, if those that are being made are too few."""
        if self._coming * self._share >= len(self._waiting):
            return
        self._coming += 1
        task = self._loop.create_task(self._loop.create_connection(lambda: self._make(self), **self._place))
        self._tasks.add(task)  # or nobody would hold it
        task.add_done_callback(self._made)

    def _made(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.stillborn(Outcome.REFUSED)

    def close(self) -> None:
        """Break the connections that are idle, and make no more."""
        for task in self._tasks:
            task.cancel()
        for connection in [*self._room]:
            connection.close()

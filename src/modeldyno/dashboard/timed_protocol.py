"""HTTP of the dashboard with a time for each request to arrive, so that nobody holds its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

ARRIVAL = 10.0
"""Seconds for the head and the body of a request, from the connection or its first byte on."""
_ARRIVING = frozenset({h11.IDLE, h11.SEND_BODY})
"""States of a client whose request is not complete."""


class TimedProtocol(H11Protocol):
    """uvicorn's protocol, which by itself limits how long a connection is idle, not how slow it is."""

    def connection_made(self, transport: Any) -> None:
        """Give the first request its time."""
        self._late: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        self._watch_arrival()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._watch_arrival()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time."""
        super().connection_lost(exc)
        self._forget()

    def _watch_arrival(self) -> None:
        if self.conn.their_state not in _ARRIVING:
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(ARRIVAL, self.transport.abort)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

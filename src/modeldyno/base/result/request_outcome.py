"""How a request to a server ended."""

from __future__ import annotations

from enum import IntEnum


class RequestOutcome(IntEnum):
    """How a request ended."""

    OK = 0
    TIMEOUT = 1
    """No whole answer within the timeout."""
    REFUSED = 2
    """No connection could be made."""
    RESET = 3
    """The connection broke before the answer was whole, or in the middle of sending."""
    TRUNCATED = 4
    """The server closed the connection in an orderly way before the answer was whole."""
    MALFORMED = 5
    """The answer violates the protocol: a bad status line, a bad chunk, a wrong length."""
    REJECTED = 6
    """The server reported overload: 429, 503; gRPC 8 and 14."""
    CLIENT_ERROR = 7
    """Any other 4xx, or its gRPC equivalent."""
    SERVER_ERROR = 8
    """Any other 5xx, or its gRPC equivalent; or an error within a stream."""
    CANCELLED = 9
    """Cancelled by the client at the end of the load."""
    ABANDONED = 10
    """Given up by the client while the load went on, as the load asks of a share of requests."""

    @property
    def word(self) -> str:
        """The name in lower case with hyphens."""
        return self.name.lower().replace("_", "-")

    @property
    def is_failure(self) -> bool:
        """Whether the request was neither answered well nor ended by the client."""
        return self not in {RequestOutcome.OK, RequestOutcome.CANCELLED, RequestOutcome.ABANDONED}

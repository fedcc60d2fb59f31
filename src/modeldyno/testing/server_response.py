"""A response of the ground-truth server, as bytes of HTTP/1.1."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

_REASONS = {
    200: b"OK", 400: b"Bad Request", 404: b"Not Found", 429: b"Too Many Requests",
    500: b"Internal Server Error", 503: b"Service Unavailable",
}  # fmt: skip


@dataclass(frozen=True)
class ServerResponse:
    """A response, in pieces if it is a stream."""

    body: bytes = b""
    status: int = 200
    kind: bytes = b"application/json"
    extra: bytes = b""
    """Header lines, each with its line end."""
    pieces: tuple[tuple[int, bytes], ...] = ()
    """Tokens and text of each piece."""
    begin: bytes = b""
    """What a stream sends at once, before its first piece."""
    turn: str = ""
    """Of a chat whose order is checked: by what its session is known to go on."""

    @cached_property
    def head(self) -> bytes:
        """Return the head, with the empty line."""
        length = b"Transfer-Encoding: chunked" if self.pieces else b"Content-Length: %d" % len(self.body)
        line = b"HTTP/1.1 %d %b\r\n" % (self.status, _REASONS[self.status])
        return b"%bContent-Type: %b\r\n%b%b\r\n\r\n" % (line, self.kind, self.extra, length)

    @cached_property
    def raw(self) -> bytes:
        """Return the whole response."""
        if self.pieces:
            texts = filter(None, (self.begin, *(text for _, text in self.pieces)))
            return self.head + b"".join(map(chunk, texts)) + END
        return self.head + self.body


def chunk(text: bytes) -> bytes:
    """Return a chunk in chunked transfer encoding."""
    return b"%x\r\n%b\r\n" % (len(text), text)


END = b"0\r\n\r\n"


def problem(status: int, message: str) -> ServerResponse:
    """Return an error response."""
    return ServerResponse(json.dumps({"error": message}).encode(), status)

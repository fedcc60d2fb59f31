"""Answers that arrive within a time and a size, whatever the peer sends.

The timeout of a socket begins anew with each byte, so that a peer that drips bytes, or sends interim answers
or trailers without end, holds whoever waits for it. Here the whole answer has one. All that waits for a peer
reads from a `TimedSocket`: single requests of a load (loadgen), and everything else by `exchange`.
"""

from __future__ import annotations

import http.client
import io
from contextlib import closing
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from modeldyno.base.clock import monotonic

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

_PIECE = 1 << 16
MOST = 1 << 26
"""Bytes of an answer, its head and all that comes before it included."""


class TimedSocket:
    """A connected socket whose peer has some seconds, from now on, for all that it sends and takes."""

    def __init__(self, link: socket.socket, seconds: float, most: int = MOST) -> None:
        self._link = link
        self._seconds = seconds
        self._end = monotonic() + seconds
        self._most = most
        self._received = 0
        self._read_as_file = False

    def recv(self, size: int) -> bytes:
        """Receive up to `size` bytes, none at the end.

        Raises:
            TimeoutError: the time is over.
            OSError: the connection broke, or the answer is too large.
        """
        self._link.settimeout(self._left())
        data = self._link.recv(size)
        self._received += len(data)
        if self._received > self._most:
            raise OSError(f"the answer has more than {self._most:,} bytes")
        return data

    def sendall(self, data: Any) -> None:
        """Send all data; raise as `recv` does."""
        self._link.settimeout(self._left())
        self._link.sendall(data)

    def makefile(self, *_: Any) -> io.BufferedReader:
        """Return what `http.client` reads answers from; closing it closes the socket."""
        self._read_as_file = True
        return io.BufferedReader(_AnswerFile(self))

    def close(self) -> None:
        """Close the socket; one that is read as a file is closed with that."""
        if not self._read_as_file:
            self.end()

    def end(self) -> None:
        """Close the socket."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _left(self) -> float:
        left = self._end - monotonic()
        if left <= 0:
            raise TimeoutError(f"no complete answer within {self._seconds:g} s")
        return left


class _AnswerFile(io.RawIOBase):
    def __init__(self, link: TimedSocket) -> None:
        super().__init__()
        self._link = link

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._link.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        super().close()
        self._link.end()


class TimedHttp(http.client.HTTPConnection):
    """A connection of HTTP whose timeout is that of everything after its start."""

    def connect(self) -> None:
        """Connect."""
        super().connect()
        self.sock: Any = TimedSocket(self.sock, self.timeout or MOST)


class TimedHttps(http.client.HTTPSConnection):
    """The same with TLS."""

    def connect(self) -> None:
        """Connect."""
        super().connect()
        self.sock: Any = TimedSocket(self.sock, self.timeout or MOST)


def read_body(response: http.client.HTTPResponse) -> bytes:
    """Read the body of an answer piece by piece, as its head may promise more than there is memory for.

    Raises:
        OSError: it is cut off, or does not come in time.
    """
    body = b"".join(iter(lambda: response.read(_PIECE), b""))
    if response.length:
        raise OSError("the connection was closed before the answer was complete")
    return body


def exchange(
    method: str,
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    seconds: float,
) -> tuple[int, bytes]:
    """Send a request of HTTP and return the status and the body of its answer; no redirection is followed.

    Raises:
        OSError: no complete answer came within the time; its message is a phrase.
    """
    parts = urlsplit(url)
    kind = TimedHttps if parts.scheme == "https" else TimedHttp
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        with closing(kind(parts.hostname or "", parts.port, timeout=seconds)) as connection:
            connection.request(method, path, body, {**(headers or {}), "Connection": "close"})
            with connection.getresponse() as response:
                return response.status, read_body(response)
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(str(error) or type(error).__name__) from error

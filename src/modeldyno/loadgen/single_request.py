"""One request, waited for: a first call, a look at a server's health."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from modeldyno.core.load.request_log import Outcome
from modeldyno.core.load.request_target import Transport
from modeldyno.errors import RequestError
from modeldyno.loadgen import tls
from modeldyno.loadgen.http1 import Connection
from modeldyno.loadgen.request import Call, reply

if TYPE_CHECKING:
    from modeldyno.core.load.request_target import Reply, Target
    from modeldyno.loadgen.http2 import Channel
    from modeldyno.loadgen.request import Connected, Raw

_CHUNK = 1 << 16
_LOOK_TIME = 2.0
"""Seconds to find out which of a host's addresses answers."""
_SAID = {
    Outcome.TRUNCATED: "the server closed the connection before its answer was whole",
    Outcome.MALFORMED: "what came is no answer of the protocol",
    Outcome.RESET: "the connection broke",
    Outcome.REFUSED: "the server takes no requests",
}


def once(target: Target, message: int = 0, timeout: float = 60.0) -> Reply:
    """Send a message and give the answer, whatever its status.

    Raises TimeoutError, or another OSError in a phrase, where no whole answer came.
    """
    deadline = time.monotonic() + timeout
    waiter = _Waiter(Call(message, time.monotonic_ns()))
    try:
        with _connected(target, timeout) as link:
            waiter.speak(target, link, timeout)
            waiter.listen(link, deadline)
    except TimeoutError:
        raise TimeoutError(f"{target.host}:{target.port} did not answer within {timeout:g} s") from None
    except OSError as error:
        raise OSError(error.errno, f"{target.host}:{target.port}: {error.strerror or error}") from error
    if waiter.raw is None:
        raise OSError(f"{target.host}:{target.port}: {_SAID.get(waiter.outcome, waiter.outcome.word)}")
    return reply(message, waiter.raw)


class _Waiter:
    """Owns one connection, and waits for the end of its one request."""

    def __init__(self, call: Call) -> None:
        self.over = False
        self.outcome = Outcome.OK
        self.raw: Raw | None = None
        self._call = call
        self._connection: Connection | Channel

    def speak(self, target: Target, link: socket.socket, timeout: float) -> None:
        """Begin to speak."""
        if target.transport is Transport.GRPC:
            from modeldyno.loadgen.http2 import Channel  # noqa: PLC0415 - the other transport needs none
            from modeldyno.loadgen.http2_sender import Script  # noqa: PLC0415 - see above

            self._connection = Channel(self, Script(target, timeout), 1)
        else:
            self._connection = Connection(self, target)
        self._connection.connection_made(_Link(link))

    def listen(self, link: socket.socket, deadline: float) -> None:
        """Read until the request has ended."""
        while not self.over:
            link.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = link.recv(_CHUNK)
            except ConnectionError as error:
                self._connection.connection_lost(error)
                break
            if not data:
                self._connection.connection_lost(None)
                break
            self._connection.data_received(data)

    def done(self, call: Call, outcome: Outcome, end: int, raw: Raw | None) -> None:  # noqa: ARG002
        """Hear how it ended."""
        self.over, self.outcome, self.raw = True, outcome, raw

    def ready(self, connection: Connected) -> None:
        """Send the request."""
        connection.send(self._call)

    def free(self, connection: Connected) -> None:
        """Need no more of it."""

    def gone(self, connection: Connected) -> None:
        """Need no more of it."""

    def stillborn(self, outcome: Outcome) -> None:
        """Hear that the server speaks another protocol, or none."""
        self.over, self.outcome = True, outcome

    def unanswered(self, call: Call) -> None:  # noqa: ARG002
        """Hear that the server would not answer on this connection."""
        self.over, self.outcome = True, Outcome.REFUSED


class _Link:
    """A socket, as much of it as a protocol needs."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def set_write_buffer_limits(self, high: int) -> None:
        """Have no buffer."""

    def write(self, data: bytes) -> None:
        """Write all."""
        self._link.sendall(data)

    def get_write_buffer_size(self) -> int:
        """Have no buffer."""
        return 0

    def abort(self) -> None:
        """Leave the closing to the owner of the socket."""


def _connected(target: Target, timeout: float) -> socket.socket:
    """Connect, and speak TLS where that is asked for."""
    link = socket.create_connection((target.host, target.port), timeout)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    protocols = ("h2",) if target.transport is Transport.GRPC else ()
    if (made := tls.context(target, protocols=protocols)) is None:
        return link
    try:
        return made.wrap_socket(link, server_hostname=tls.name(target))
    except BaseException:
        link.close()
        raise


def address(target: Target) -> str:
    """Give the address of the target's host that takes connections, or its first one.

    Raises RequestError for a host that has none.
    """
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise RequestError(f"The host {target.host} is not known: {error.strerror}.") from error
    for _, _, _, _, place in found if len(found) > 1 else ():
        try:
            socket.create_connection((str(place[0]), target.port), _LOOK_TIME).close()
        except OSError:
            continue
        return str(place[0])
    return str(found[0][4][0])

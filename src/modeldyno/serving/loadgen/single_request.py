"""Sends a single request and waits for the reply, for first calls and health checks."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from modeldyno.base.clock import monotonic, monotonic_ns
from modeldyno.base.errors import RequestError
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.system.deadline import latest_answer
from modeldyno.base.system.timed_answer import MOST, TimedSocket
from modeldyno.engine.interfaces.request_target import Transport
from modeldyno.serving.loadgen import tls
from modeldyno.serving.loadgen.http1 import KEPT_BODY, Http1Connection
from modeldyno.serving.loadgen.request import Call, make_reply

if TYPE_CHECKING:
    from modeldyno.engine.interfaces.request_target import Reply, Target
    from modeldyno.serving.loadgen.http2 import Http2Connection
    from modeldyno.serving.loadgen.request import ClientConnection, Raw

STATISTICS_TIMEOUT = 10.0
"""Seconds that a server may take to return its statistics, its metrics or its list of models."""
_CHUNK = 1 << 16
_LEAST = 1e-3
"""Seconds of a timeout at least; 0 would mean not to wait."""
_CONNECT_TIMEOUT = 2.0
"""Seconds to try each of a host's addresses."""
_ERRORS = {
    RequestOutcome.TRUNCATED: "the server closed the connection before its answer was complete",
    RequestOutcome.MALFORMED: "the answer is not valid in this protocol",
    RequestOutcome.RESET: "the connection was reset",
    RequestOutcome.REFUSED: "the server refuses requests",
}


_SHORTEST = 0.5
"""Seconds that a server is given for an answer, however late it is."""


def send_once(target: Target, message: int = 0, timeout: float = 60.0) -> Reply:
    """Send a message and return the reply, whatever its status.

    Raises TimeoutError, TlsError, or another OSError (a phrase), if no complete reply came.
    """
    begin = monotonic()
    timeout = min(timeout, max(_SHORTEST, latest_answer.get() - begin))
    waiter = _RequestWaiter(Call(message, monotonic_ns()))
    try:
        with _connect(target, timeout) as link:
            waiter.open(target, link, timeout)
            waiter.wait(link)
    except tls.TlsError:
        raise
    except TimeoutError:
        raise TimeoutError(
            f"{target.host}:{target.port} did not answer within {round(timeout, 1) or timeout:g} s"
        ) from None
    except OSError as error:
        if (failed := tls.tls_error(error, target)) is not None:
            raise failed from error
        raise OSError(error.errno, f"{target.host}:{target.port}: {error.strerror or error}") from error
    if waiter.raw is None:
        if (failed := tls.missing_tls(target)) is not None:
            raise failed
        raise OSError(f"{target.host}:{target.port}: {_ERRORS.get(waiter.outcome, waiter.outcome.word)}")
    return make_reply(message, waiter.raw)


class _RequestWaiter:
    """The owner of one connection, which waits for the end of its one request."""

    def __init__(self, call: Call) -> None:
        self.over = False
        self.outcome = RequestOutcome.OK
        self.raw: Raw | None = None
        self._call = call
        self._connection: Http1Connection | Http2Connection

    def open(self, target: Target, link: TimedSocket, timeout: float) -> None:
        """Open the connection and send the request."""
        if target.transport is Transport.GRPC:
            from modeldyno.serving.loadgen.http2 import Http2Connection  # the other transport needs none
            from modeldyno.serving.loadgen.http2_sender import CallTemplate  # see above

            self._connection = Http2Connection(self, CallTemplate(target, timeout), 1)
        else:
            self._connection = Http1Connection(self, target)
        self._connection.connection_made(_SocketTransport(link))

    def wait(self, link: TimedSocket) -> None:
        """Read until the request has ended, whatever the server sends until then."""
        while not self.over:
            try:
                data = link.recv(_CHUNK)
            except ConnectionError as error:
                self._connection.connection_lost(error)
                break
            if not data:
                self._connection.connection_lost(None)
                break
            self._connection.data_received(data)

    def done(self, call: Call, outcome: RequestOutcome, end: int, raw: Raw | None) -> None:  # noqa: ARG002
        """Store how the request ended."""
        self.over, self.outcome, self.raw = True, outcome, raw

    def connection_ready(self, connection: ClientConnection) -> None:
        """Send the request."""
        connection.send(self._call)

    def connection_free(self, connection: ClientConnection) -> None:
        """Do nothing: the connection is used only once."""

    def connection_closed(self, connection: ClientConnection) -> None:
        """Do nothing: the connection is used only once."""

    def connection_failed(self, outcome: RequestOutcome) -> None:
        """Store the outcome: the server uses another protocol, or none."""
        self.over, self.outcome = True, outcome

    def resend(self, call: Call) -> None:  # noqa: ARG002
        """Store the outcome: the server would not answer on this connection."""
        self.over, self.outcome = True, RequestOutcome.REFUSED


class _SocketTransport:
    """A blocking socket with the transport methods that the protocols need."""

    def __init__(self, link: TimedSocket) -> None:
        self._link = link

    def set_write_buffer_limits(self, high: int) -> None:
        """Do nothing: there is no write buffer."""

    def write(self, data: bytes) -> None:
        """Send all data."""
        self._link.sendall(data)

    def get_write_buffer_size(self) -> int:
        """Return 0: there is no write buffer."""
        return 0

    def abort(self) -> None:
        """Do nothing: the owner of the socket closes it."""


def _connect(target: Target, timeout: float) -> TimedSocket:
    """Connect, with TLS if the target has it."""
    end = monotonic() + timeout
    link = socket.create_connection((target.host, target.port), timeout)
    link.settimeout(max(_LEAST, end - monotonic()))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    protocols = ("h2",) if target.transport is Transport.GRPC else ()
    try:
        if (tls_context := tls.make_ssl_context(target, protocols=protocols)) is not None:
            link = tls_context.wrap_socket(link, server_hostname=tls.server_name(target))
    except TimeoutError:
        link.close()
        raise tls.no_handshake(target) from None
    except BaseException:
        link.close()
        raise
    return TimedSocket(link, end - monotonic(), KEPT_BODY + MOST)


def resolve_address(target: Target) -> str:
    """Return the first address of the target's host that accepts connections, or else its first one.

    Raises RequestError for an unknown host.
    """
    try:
        candidates = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise RequestError(f"The host {target.host} cannot be resolved: {error.strerror}.") from error
    for _, _, _, _, socket_address in candidates if len(candidates) > 1 else ():
        try:
            socket.create_connection((str(socket_address[0]), target.port), _CONNECT_TIMEOUT).close()
        except OSError:
            continue
        return str(socket_address[0])
    return str(candidates[0][4][0])

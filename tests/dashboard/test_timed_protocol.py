"""Requests that come slowly, and connections that nobody uses."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

uvicorn = pytest.importorskip("uvicorn")

from modeldyno.dashboard import timed_protocol
from modeldyno.dashboard.server import listen

if TYPE_CHECKING:
    from collections.abc import Iterator

WHOLE = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def application(_scope: Any, receive: Any, send: Any) -> None:
    """Answer once the request is complete, after longer than a request may take to arrive."""
    while (await receive()).get("more_body"):
        pass
    time.sleep(0.6)  # noqa: ASYNC251 - one request at a time is enough
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Give the port of a server that has little time."""
    monkeypatch.setattr(timed_protocol, "ARRIVAL", 0.4)
    with listen(0) as listener:
        config = uvicorn.Config(
            application, http=timed_protocol.TimedProtocol, lifespan="off", log_level="error"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"", b""),
        (b"GET / HT", b""),
        (b"GET / HTTP/1.1\r\n", b"X: 1\r\n"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n", b"x"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
    ids=["silent", "half a line", "dripped head", "dripped body", "dripped chunks"],
)
def test_a_request_that_does_not_arrive_is_given_up(port: int, first: bytes, then: bytes) -> None:
    """Its connection is closed, whatever it sends meanwhile."""
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), 5) as link, suppress(OSError):
        link.sendall(first)
        link.settimeout(0.05)
        while time.monotonic() - begin < 5:
            with suppress(TimeoutError):
                if not link.recv(1000):
                    break
            link.sendall(then)
    assert 0.3 < time.monotonic() - begin < 1.4


@pytest.mark.slow
def test_a_request_that_arrived_is_answered_however_long_it_takes(port: int) -> None:
    """And so is the next one on its connection."""
    with socket.create_connection(("127.0.0.1", port), 5) as link:
        for _ in range(2):
            link.sendall(WHOLE)
            assert link.recv(1000).startswith(b"HTTP/1.1 200")

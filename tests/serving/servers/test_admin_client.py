from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.serving.servers.admin_client import AdminClient, AdminRequestRefused

if TYPE_CHECKING:
    from collections.abc import Iterator


class Echo(BaseHTTPRequestHandler):
    """Answers with what it was asked, or as the path says."""

    protocol_version = "HTTP/1.1"

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Answer."""
        if self.path.endswith("/text"):
            self._answer(200, b"no json")
        elif self.path.endswith("/wrong"):
            self._answer(400, json.dumps({"error": "it is\n  wrong"}).encode())
        elif self.path.endswith("/bare"):
            self._answer(500, b"")
        elif self.path.endswith("/drop"):
            self._answer(200, b"{}")
            self.close_connection = True  # and says nothing of it
        else:
            self._answer(200, json.dumps([self.path, self.headers["X-Token"]]).encode())

    def do_POST(self) -> None:
        """Give back what was sent."""
        self._answer(200, self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def control() -> Iterator[AdminClient]:
    """A control of a server that echoes."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    client = AdminClient.at(f"http://127.0.0.1:{server.server_port}/base/", {"X-Token": "secret"})
    yield client
    server.shutdown()
    thread.join()
    server.server_close()


def test_paths_and_headers(control: AdminClient) -> None:
    """The path of the address comes first, headers go with each request, and are shown nowhere."""
    assert control.get("/v2") == ["/base/v2", "secret"]
    assert control.post("/v2", {"a": 1}) == {"a": 1}
    assert control.post("/v2") == {}
    assert "secret" not in repr(control)


def test_an_answer_that_is_an_error(control: AdminClient) -> None:
    """The server's own words are in the error."""
    with pytest.raises(AdminRequestRefused, match=r"^400: it is wrong$"):
        control.get("/wrong")
    with pytest.raises(AdminRequestRefused, match="500: no message"):
        control.get("/bare")
    with pytest.raises(OSError, match="not JSON: 'no json'"):
        control.get("/text")


def test_a_server_that_closes_the_connection_is_asked_again(control: AdminClient) -> None:
    """Each request has a connection of its own."""
    assert control.get("/drop") == {}
    assert control.get("/v2") == ["/base/v2", "secret"]


def test_nobody_there() -> None:
    """A server that does not answer is an OSError."""
    with pytest.raises(OSError, match=r"127\.0\.0\.1:1 does not answer"):
        AdminClient(port=1, timeout=5).get("/v2")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("host:8000", ("host", 8000, False)),
        ("http://host", ("host", 80, False)),
        ("https://host/x/", ("host", 443, True)),
    ],
)
def test_addresses(url: str, address: tuple[str, int, bool]) -> None:
    """An address may leave out what is usual."""
    control = AdminClient.at(url)
    assert (control.host, control.port, control.secure) == address


@pytest.mark.parametrize("url", ["", "ftp://host", "http://", "http://host:word"])
def test_what_is_no_address(url: str) -> None:
    """Anything else is refused."""
    with pytest.raises(RequestError, match="is not a server's address"):
        AdminClient.at(url)

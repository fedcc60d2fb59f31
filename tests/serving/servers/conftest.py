"""What tests of engines share: a directory of engines of their own, and a server that costs nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from modeldyno.serving.servers.server_process import Launch, http_ready

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SERVER = """
import http.server, os, signal, sys, time
port, daemons = int(sys.argv[1]), int(sys.argv[2])
for number in range(daemons):
    if not os.fork():
        os.setsid()
        if not os.fork():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        os._exit(0)
    os.wait()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ.get("WORD", "").encode())
        if self.path == "/end":
            os._exit(3)
    def log_message(self, *words):
        pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
"""Answers everything, and leaves processes behind that have daemonised and ignore SIGTERM."""


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of engines, empty; temporary files lie beside it."""
    folder = tmp_path / "engines"
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("MODELDYNO_ENGINES", str(folder))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


@pytest.fixture
def fake(engines: Path) -> Callable[..., Launch]:
    """A launch of the server that costs nothing."""
    del engines

    def launch(code: str = SERVER, daemons: int = 0, port: int = 0, patience: float = 60.0) -> Launch:
        return Launch(
            name="fake",
            command=lambda _folder, ports: [sys.executable, "-c", code, str(ports["http"]), str(daemons)],
            ports={"http": port},
            ready=lambda ports: http_ready(ports["http"], "/"),
            environment={"WORD": "hello", "HOME": ""},
            patience=patience,
            grace=0.5,
        )

    return launch

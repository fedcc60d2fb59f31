"""How the dashboard is started and ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RequestError
from modeldyno.dashboard import server

if TYPE_CHECKING:
    from pathlib import Path


def test_it_answers_and_ends_quietly(tmp_path: Path) -> None:
    """It says where it is and what it reads, makes no store, and Ctrl-C ends it at once, streams and all."""
    store = tmp_path / "store.db"
    process = subprocess.Popen(
        [sys.executable, "-m", "modeldyno", "ui", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "MODELDYNO_STORE": f"sqlite:///{store}"},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    address = line.split()[4]
    with urllib.request.urlopen(f"{address}/", timeout=30) as answer:
        assert "The store is empty" in answer.read().decode()
    stream = urllib.request.urlopen(f"{address}/changes", timeout=30)
    assert stream.readline() == b"event: change\n"

    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)

    assert str(store) in line
    assert not store.exists()
    assert process.returncode == 0
    assert errors == ""


def test_a_port_in_use_is_said_in_a_sentence() -> None:
    """With what to do."""
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(RequestError) as caught:
        server.serve(port=other.getsockname()[1])

    assert "cannot be used" in str(caught.value)
    assert "`port`" in str(caught.value)


def test_a_port_is_a_number_of_16_bits() -> None:
    """Anything else is refused."""
    with pytest.raises(RequestError, match="no port 70000"):
        server.serve(port=70000)


def test_without_its_packages_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is opened."""
    monkeypatch.setattr(plugins, "missing", lambda _modules: ("fastapi", "uvicorn"))

    with pytest.raises(MissingExtra, match=r"needs fastapi, uvicorn; .* pip install fastapi uvicorn$"):
        server.serve()

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from modeldyno.engine.environment.listening import serving_process

if TYPE_CHECKING:
    from collections.abc import Iterator

FORKING = """
import os, socket, time
server = socket.create_server(("127.0.0.1", 0))
if os.fork():
    print(server.getsockname()[1], flush=True)
time.sleep(600)
"""


@pytest.fixture
def listening() -> Iterator[tuple[int, int]]:
    """Run a server whose child shares its socket; give its process and port."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKING], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        os.killpg(process.pid, 9)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_process_that_serves_a_port_is_the_one_that_started_the_others(
    listening: tuple[int, int],
) -> None:
    """By any name of this machine."""
    pid, port = listening
    for host in ("127.0.0.1", "localhost", "::1", "127.0.1.1"):
        assert serving_process(host, port) == pid


def test_a_server_elsewhere_or_none_has_no_process_here() -> None:
    """A port of another machine is not looked for here."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert serving_process("example.org", port) is None
        assert serving_process("10.0.0.7", port) is None
    assert serving_process("127.0.0.1", port) is None

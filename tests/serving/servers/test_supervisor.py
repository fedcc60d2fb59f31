from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from modeldyno.base.system.process_tree import list_process_tree, start_ticks

STARTER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from conftest import SERVER
from modeldyno.serving.servers.server_process import Launch, http_ready, run_server
launch = Launch(
    name="fake",
    command=lambda folder, ports: [sys.executable, "-c", SERVER, str(ports["http"]), "2"],
    ports={"http": 0},
    ready=lambda ports: http_ready(ports["http"], "/"),
    grace=0.5,
)
with run_server(launch) as server:
    print(server.pid, server.folder, flush=True)
    time.sleep(600)
"""


def started(engines: Path) -> tuple[subprocess.Popen[str], int, Path]:
    """Start a process that starts a server; give it, the guard's number and the server's directory."""
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(Path(__file__).parent)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "MODELDYNO_ENGINES": str(engines)},
    )
    assert starter.stdout is not None
    pid, folder = starter.stdout.readline().split()
    starter.stdout.close()
    return starter, int(pid), Path(folder)


def left_after(family: dict[int, int], patience: float = 60.0) -> list[int]:
    """Wait until all of these processes are gone; give those that are not."""
    deadline = time.monotonic() + patience
    while left := [pid for pid, born in family.items() if start_ticks(pid) == born]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return []


def family_of(guard: int) -> dict[int, int]:
    """Give the guard and all that descends from it, with their births."""
    return {pid: start_ticks(pid) for pid in list_process_tree(guard)}


def kill_the_starter(engines: Path) -> None:
    """Kill a starter in a way that it cannot see, and check that nothing of its server is left."""
    starter, guard, folder = started(engines)
    family = family_of(guard)
    assert len(family) == 4, "the guard, the server, and two that have daemonised"
    starter.kill()
    starter.wait()
    assert left_after(family) == []
    assert not folder.exists()


def test_nothing_is_left_when_the_starter_is_killed(engines: Path) -> None:
    """After kill -9 of the starter no process of the server is left, nor its directory."""
    kill_the_starter(engines)


@pytest.mark.slow
def test_nothing_is_left_fifty_times(engines: Path) -> None:
    """After kill -9 of the starter, 50 times, no process is left."""
    for _ in range(50):
        kill_the_starter(engines)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_guard_that_is_asked_to_end_ends_the_server_first(engines: Path, number: signal.Signals) -> None:
    """A signal to the guard ends the server and all that came of it."""
    starter, guard, folder = started(engines)
    family = family_of(guard)
    os.kill(guard, number)
    del family[guard]  # its parent has yet to collect it
    try:
        assert left_after(family) == []
    finally:
        starter.kill()
        starter.wait()
    assert left_after({guard: start_ticks(guard)}) == []
    assert not folder.exists()


def test_the_server_does_not_outlive_a_guard_that_is_killed(engines: Path) -> None:
    """When the guard itself is killed, the system ends the server with it."""
    starter, guard, _ = started(engines)
    server = next(
        pid
        for pid in list_process_tree(guard)[1:]
        if b"BaseHTTPRequestHandler" in cmdline(pid) and parent(pid) == guard
    )
    born = start_ticks(server)
    rest = [pid for pid in list_process_tree(guard) if pid not in {guard, server}]
    os.kill(guard, signal.SIGKILL)
    try:
        assert left_after({server: born}) == []
    finally:
        starter.kill()
        starter.wait()
        for pid in rest:
            if b"BaseHTTPRequestHandler" in cmdline(pid):
                os.kill(pid, signal.SIGKILL)


def cmdline(pid: int) -> bytes:
    """Give the words that a process was started with; none for one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def parent(pid: int) -> int:
    """Give the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


OWNED = STARTER.replace(
    "    time.sleep(600)\n", "    server.hand_over(int(sys.argv[2]) or None)\n    print('kept', flush=True)\n"
)


def handed_over(engines: Path, owner: int) -> dict[int, int]:
    """Start a server by a process that hands it over and ends; give the server's processes."""
    starter = subprocess.Popen(
        [sys.executable, "-c", OWNED, str(Path(__file__).parent), str(owner)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "MODELDYNO_ENGINES": str(engines)},
    )
    assert starter.stdout is not None
    guard = int(starter.stdout.readline().split()[0])
    assert starter.stdout.read() == "kept\n"
    starter.stdout.close()
    assert starter.wait() == 0
    return family_of(guard)


def sleeper() -> subprocess.Popen[bytes]:
    """Start a process that owns a server and does nothing."""
    return subprocess.Popen(["sleep", "600"])


def kill_the_owner(engines: Path) -> None:
    """Hand a server over, kill its new owner, and check that nothing of it is left."""
    owner = sleeper()
    family = handed_over(engines, owner.pid)
    assert len(family) == 4, "the server lives on when its starter has ended"
    owner.kill()
    owner.wait()
    assert left_after(family) == []


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_server_ends_with_the_process_that_it_was_handed_over_to(engines: Path, times: int) -> None:
    """It outlives its starter, and no process of it is left after kill -9 of its owner."""
    for _ in range(times):
        kill_the_owner(engines)


@pytest.mark.slow
def test_a_server_ends_with_its_owner_a_hundred_times(engines: Path) -> None:
    """After kill -9 of the owner, 100 times, no process is left."""
    for _ in range(100):
        kill_the_owner(engines)


def test_a_server_without_an_owner_stays_until_its_guard_is_asked_to_end(engines: Path) -> None:
    """Handed over to nobody, it outlives its starter, and SIGTERM to the guard ends all of it."""
    family = handed_over(engines, 0)
    assert len(family) == 4
    os.kill(next(iter(family)), signal.SIGTERM)
    assert left_after(family) == []

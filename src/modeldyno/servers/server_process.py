"""A server that we start: its ports, its readiness, the cause when it fails, its clean end.

It runs under a guard, so that nothing of it outlives us.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.environment.process_tree import tree
from modeldyno.servers.paths import log_file
from modeldyno.servers.startup_error import cause, excerpt
from modeldyno.servers.tcp_ports import LOOPBACK, free_ports, taken

if TYPE_CHECKING:
    from collections.abc import Iterator

Ports = dict[str, int]
"""What listens there (``http``, ``grpc``, ``metrics``), and the port."""

_GRACE = 10.0
"""Seconds that a server has to end by itself."""
_PAUSE = 0.05
"""Seconds between two questions whether it is ready."""
_ATTEMPTS = 4
"""Times that it is started where a failure may pass: another may take a free port before the server does."""
_LOOK = 0.5
"""Seconds between two looks at the log for what makes waiting hopeless."""
_TAIL = 1 << 20
"""Bytes of the end of a log in which the cause is looked for."""
_TAKEN = re.compile(r"address (is )?already in use|failed to bind|port .{0,20}(in use|taken)", re.IGNORECASE)


class ServerFailed(Exception):
    """A server did not start, or ended: an outcome, no wrong request. Its text is one sentence."""

    def __init__(self, sentence: str, log: str = "") -> None:
        """Say what happened.

        Args:
            sentence: how it ended, the cause, and where the whole log is.
            log: the lines of it that speak of a failure.
        """
        super().__init__(sentence)
        self.log = log


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a server."""

    name: str
    command: Callable[[Path, Ports], list[str]]
    """Gives the command for its ports, after it has written what the server reads into its own directory.

    That is the server's working directory, and is removed with it, also where we do not live to see it;
    so is shared memory whose name begins with the directory's.
    """
    ports: Mapping[str, int]
    """0 stands for a free one."""
    ready: Callable[[Ports], bool]
    """Whether it can be sent requests; asked again and again, and not to raise."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set beside what we have ourselves; ``""`` takes a variable away."""
    hopeless: re.Pattern[str] | None = None
    """A line of the log after which it will never be ready, whatever it tries."""
    passing: re.Pattern[str] | None = None
    """A line of the log of one that failed by no fault of what it was given: it is started again."""
    patience: float = 120.0
    """Seconds until it must be ready."""
    grace: float = _GRACE
    """Seconds that it has to end by itself; at 0 it is killed, which suits one that has nothing to save."""


@dataclass(slots=True)
class Server:
    """A server at work; `pid` is that of its guard, from which all of its processes descend."""

    name: str
    ports: Ports
    log: Path
    folder: str
    """Its working directory."""
    guard: subprocess.Popen[bytes]
    line: socket.socket
    """To the guard and back."""
    grace: float
    said: bytes = b""

    @property
    def pid(self) -> int:
        """The process from which those of the server descend."""
        return self.guard.pid

    def ended(self) -> str:
        """Say how it ended by itself; empty while it runs."""
        self._listen(0.0)
        for word, rest in self._words():
            if word == "failed":
                return f"could not be started: {rest}"
            if word == "ended":
                return how_it_ended(int(rest))
        return "" if self.guard.poll() is None else "lost its guard"

    def failed(self, how: str) -> ServerFailed:
        """Make an error of it, with what the log tells of the cause."""
        log = tail(self.log)
        why = cause(log)
        return ServerFailed(f"{self.name} {how}{why and f': {why}'}; its log is {self.log}", excerpt(log))

    def stop(self) -> None:
        """End it and wait until nothing of it is left."""
        with suppress(OSError):
            self.line.shutdown(socket.SHUT_WR)
        try:
            self.guard.wait(self.grace + 12.0)
        except subprocess.TimeoutExpired:  # pragma: no cover - a guard that hangs
            for pid in reversed(tree(self.guard.pid)):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self.guard.wait()
        self.line.close()

    def _words(self) -> Iterator[tuple[str, str]]:
        for line in self.said.decode(errors="replace").splitlines():
            word, _, rest = line.partition(" ")
            yield word, rest

    def _listen(self, seconds: float) -> None:
        if self.line.fileno() < 0:
            return
        while select.select([self.line], [], [], seconds)[0]:
            data = self.line.recv(4096)
            if not data:
                return
            self.said += data


@contextmanager
def running(launch: Launch) -> Iterator[Server]:
    """Start a server, wait until it is ready, and end it on leaving.

    Raises:
        ServerFailed: it ended, or was not ready in time, or a port that it must have is taken.
    """
    fixed = [port for port in launch.ports.values() if port]
    if busy := taken(fixed):
        raise ServerFailed(
            f"{launch.name} cannot have port {', '.join(map(str, busy))}: another program listens there."
        )
    for attempt in range(_ATTEMPTS):
        server = _start(launch)
        try:
            how = _awaited(server, launch)
            if not how:
                yield server
                return
            error = server.failed(how)
        finally:
            server.stop()
        if attempt + 1 == _ATTEMPTS or not _may_pass(launch, f"{error}\n{error.log}"):
            raise error


def _may_pass(launch: Launch, said: str) -> bool:
    """Say whether another start, with other free ports where it has any, may go well."""
    if launch.passing and launch.passing.search(said):
        return True
    return not all(launch.ports.values()) and bool(_TAKEN.search(said))


def http_ready(port: int, path: str) -> bool:
    """Ask for a path of the loopback; say whether the answer is 200."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=2)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return False
    else:
        return answer.status == http.HTTPStatus.OK
    finally:
        connection.close()


def how_it_ended(code: int) -> str:
    """Say it in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def tail(path: Path, size: int = _TAIL) -> str:
    """Read the last lines of a log, of so many bytes at most; empty where there is none."""
    try:
        with path.open("rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - size)
            file.seek(begin)
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return (text.partition("\n")[2] if begin else text).strip()


def _start(launch: Launch) -> Server:
    free = [name for name, port in launch.ports.items() if not port]
    ports = {**launch.ports, **dict(zip(free, free_ports(len(free)), strict=True))}
    log = log_file(launch.name)
    folder = tempfile.mkdtemp(prefix=f"modeldyno-{launch.name}-")
    ours, theirs = socket.socketpair()
    with theirs, log.open("ab") as out:
        guard = subprocess.Popen(
            [sys.executable, "-m", "modeldyno.servers.supervisor", folder],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=out,
            start_new_session=True,
        )
    server = Server(
        name=launch.name, ports=ports, log=log, folder=folder, guard=guard, line=ours, grace=launch.grace
    )
    try:
        order = {
            "command": launch.command(Path(folder), ports), "parent": os.getpid(), "grace": launch.grace,
            "log": str(log), "environment": _environment(launch),
        }  # fmt: skip
        ours.sendall(json.dumps(order).encode() + b"\n")
    except BaseException:
        server.stop()
        raise
    return server


def _environment(launch: Launch) -> dict[str, str]:
    changed = {**os.environ, **launch.environment}
    return {name: value for name, value in changed.items() if value or name not in launch.environment}


def _awaited(server: Server, launch: Launch) -> str:
    """Wait until it is ready; say what happened instead, or nothing."""
    deadline = time.monotonic() + launch.patience
    look = time.monotonic() + _LOOK
    while (now := time.monotonic()) < deadline:
        if how := server.ended():
            return how
        if launch.ready(server.ports):
            return server.ended()
        if launch.hopeless and now > look:
            look = now + _LOOK
            if launch.hopeless.search(tail(server.log)):
                return "will not be ready"
        time.sleep(_PAUSE)
    return f"was not ready after {launch.patience:g} s"

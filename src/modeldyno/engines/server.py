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

from modeldyno.engines.places import log_file
from modeldyno.engines.ports import LOOPBACK, free_ports, taken
from modeldyno.processes import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

Ports = dict[str, int]
"""What listens there (``http``, ``grpc``, ``metrics``), and the port."""

_GRACE = 10.0
"""Seconds that a server has to end by itself."""
_PAUSE = 0.05
"""Seconds between two questions whether it is ready."""
_ATTEMPTS = 4
"""Times that free ports are looked for, as another may take one before the server does."""
_TAIL = 6000
"""Bytes of the end of a log that an error shows."""
_WHOLE = 1 << 20
"""Bytes of the end of a log in which the cause is looked for."""
_LINE = 300
_TAKEN = re.compile(r"address (is )?already in use|failed to bind|port .{0,20}(in use|taken)", re.IGNORECASE)
_TELLING = (
    re.compile(r"error parsing|unrecognized option|load failed for model", re.IGNORECASE),
    re.compile(r"^[\w.]*(Error|Exception)\b|^fatal|address already in use", re.IGNORECASE),
    re.compile(r"error|exception|fail|cannot|refus|invalid|not found|denied", re.IGNORECASE),
)
"""Marks of a line that tells the cause, the surest first."""
_ENVELOPE = re.compile(
    r"^(\d{4}-\d\d-\d\d[ T])?\S*\d{2}:\d{2}:\d{2}\S*\s+|^[EWI]\d{4} \S+ \d+ \S+\] |\x1b\[[0-9;]*m"
)
"""Time and colour of a line, which say nothing of the cause."""


class ServerFailed(Exception):
    """A server did not start, or ended: an outcome, no wrong request.

    The first line of its text is the sentence, the rest is the end of the server's log.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a server."""

    name: str
    command: Callable[[Path, Ports], list[str]]
    """Gives the command for its ports, after it has written what the server reads into its own directory.

    That is the server's working directory, and is removed with it, also where we do not live to see it.
    """
    ports: Mapping[str, int]
    """0 stands for a free one."""
    ready: Callable[[Ports], bool]
    """Whether it can be sent requests; asked again and again, and not to raise."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set beside what we have ourselves; ``""`` takes a variable away."""
    patience: float = 120.0
    """Seconds until it must be ready."""
    grace: float = _GRACE


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
        cause = telling(tail(self.log, _WHOLE))
        told = f"; its log says: {cause}" if cause else ""
        return ServerFailed(f"{self.name} {how}{told} (log: {self.log})\n{log}".rstrip())

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
        again = attempt + 1 < _ATTEMPTS and len(fixed) < len(launch.ports)
        if not (again and _TAKEN.search(str(error))):
            raise error


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


def telling(log: str) -> str:
    """Pick the line of a log that is likeliest to tell the cause: the last with a mark of failure."""
    lines = [line for line in map(_bare, log.splitlines()) if line]
    telling = (line for mark in _TELLING for line in reversed(lines) if mark.search(line))
    chosen = next(telling, lines[-1] if lines else "")
    return chosen if len(chosen) <= _LINE else f"{chosen[: _LINE - 1]}…"


def _bare(line: str) -> str:
    return _ENVELOPE.sub("", line).strip().strip("|+-").strip()


def _start(launch: Launch) -> Server:
    free = [name for name, port in launch.ports.items() if not port]
    ports = {**launch.ports, **dict(zip(free, free_ports(len(free)), strict=True))}
    log = log_file(launch.name)
    folder = tempfile.mkdtemp(prefix=f"modeldyno-{launch.name}-")
    ours, theirs = socket.socketpair()
    with theirs, log.open("ab") as out:
        guard = subprocess.Popen(
            [sys.executable, "-m", "modeldyno.engines.guard", folder],
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
    while time.monotonic() < deadline:
        if how := server.ended():
            return how
        if launch.ready(server.ports):
            return server.ended()
        time.sleep(_PAUSE)
    return f"was not ready after {launch.patience:g} s"

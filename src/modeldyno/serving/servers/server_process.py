"""Runs an inference server: its ports, readiness, cause of failure, and clean end.

It runs under a supervisor process, so that no process of it outlives us.
"""

from __future__ import annotations

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
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.clock import monotonic
from modeldyno.base.errors import ServerFailed
from modeldyno.base.system.process_tree import list_process_tree, start_ticks
from modeldyno.base.system.timed_answer import exchange
from modeldyno.serving.servers.paths import new_log_file
from modeldyno.serving.servers.tcp_ports import LOOPBACK, free_ports, ports_in_use

if TYPE_CHECKING:
    from collections.abc import Iterator

Ports = dict[str, int]
"""Interface (``http``, ``grpc``, ``metrics``) to its port."""

_GRACE = 10.0
"""Seconds that a server has to exit by itself."""
_READY_CHECK = 0.05
"""Seconds between two readiness checks."""
_ATTEMPTS = 4
"""Maximum starts after transient failures, for example when another program takes the free port first."""
_HAND_OVER_TIME = 10.0
"""Seconds in which a supervisor accepts another owner."""
_LOG_CHECK = 0.5
"""Seconds between two searches of the log for fatal errors."""
_TAIL = 1 << 20
"""Bytes at the end of a log that are searched for the cause."""
_PORT_IN_USE = re.compile(
    r"address (is )?already in use|failed to bind|couldn't bind|port .{0,20}(in use|taken)", re.IGNORECASE
)
_LINE_LIMIT = 400
"""Characters of a line that are quoted."""
_EXCERPT_LINES = 8
"""Lines of an excerpt."""
_MARKS = (
    re.compile(
        r"error parsing|unrecognized option|invalid argument for|invalid configuration:|address (is )?already"
        r" in use|error occurred during initialization|error loading model: |llama_init_from_model: ",
        re.IGNORECASE,
    ),
    re.compile(r"failed to load '|poll failed for", re.IGNORECASE),
    re.compile(r"\b\w*(Error|Exception|InvalidGraph|NotImplemented|InvalidArgument|Fail): |^fatal", re.ASCII),
    re.compile(r"\b\w*(Error|Exception)\b|^error|load failed for model", re.IGNORECASE | re.ASCII),
    re.compile(r"error|exception|fail|cannot|refus|invalid|not found|denied|killed", re.IGNORECASE),
)
"""Patterns of a line with the cause, the most specific first."""
_NOISE = re.compile(r"CudaDriverHelper|NVML|DCGM|nvidia-smi|error message: \"\"|Exception Group Traceback")
"""Messages about a missing GPU, and others that are not the cause."""
_LOG_PREFIX = re.compile(
    r"\x1b\[[0-9;]*m"
    r"|^(\d{4}-\d\d-\d\d[ T])?\S*\d{2}:\d{2}:\d{2}\S*\s+"  # the time
    r"|^[EWIF]\d{4} \S+ \d+ \S+\] "  # the head of a line of glog
    r"|^\[[A-Z ]+\] \S+ \S+ - "  # the head of a line of log4j, with thread and logger
    r"|^\[libprotobuf \w+ \S+\] "
    r"|^error: creating server: "
    r"|^\d+\.\d\d\.\d{3}\.\d{3} [DIWE] (\w+ +(?=\w+: ))?"  # the head of a line of llama.cpp, and its part
    r"|^Exception in thread \"\S+\" "
    r"|^/\S+/(?=[^/\s]+: )"  # the directory of a program that names itself
)
_TREE = re.compile(r"^\s*[|+][\s|+-]*")
"""Tree lines of printed exception groups."""
_MODULE = re.compile(r"(?:^|(?<=: ))(?:[a-z_]\w*\.)+(?=[A-Z]\w*(?:: |$))")
"""Module path of an exception's class."""
_ESCAPES = {'"': '"', "\\": "\\", "t": " "}
_CONTINUED = {
    re.compile(r"\bvalidation errors? for \S+$"): 2,
    re.compile(r"during initialization of VM$"): 1,
}
"""Lines whose details are in the lines below, and how many of those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a server."""

    name: str
    command: Callable[[Path, Ports], list[str]]
    """Returns the command for its ports, after writing the server's files into its own directory.

    That is the server's working directory. It is removed when the server ends, even if we are killed; so is
    shared memory whose name begins with the directory's.
    """
    ports: Mapping[str, int]
    """0 means any free port."""
    ready: Callable[[Ports], bool]
    """Returns whether it accepts requests; called repeatedly, and must not raise."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to our own environment; ``""`` removes a variable."""
    hopeless: re.Pattern[str] | None = None
    """A log line after which the server will never be ready."""
    passing: re.Pattern[str] | None = None
    """A log line of a transient failure: the server is started again."""
    patience: float = 120.0
    """Seconds until it must be ready."""
    grace: float = _GRACE
    """Seconds that it has to exit by itself; with 0 it is killed, for servers that have nothing to save."""


@dataclass(slots=True)
class ServerProcess:
    """A running server."""

    name: str
    ports: Ports
    log: Path
    folder: str
    """Its working directory."""
    guard: subprocess.Popen[bytes]
    line: socket.socket
    """Socket to the supervisor."""
    grace: float
    received: bytes = b""
    kept: bool = False
    """Whether it was handed over, so that it is not ours to stop."""

    @property
    def pid(self) -> int:
        """Process id of the supervisor, from which all of the server's processes descend."""
        return self.guard.pid

    def ended(self) -> str:
        """Return how the server exited by itself; empty while it runs."""
        self._receive(0.0)
        for word, rest in self._reports():
            if word == "failed":
                return f"could not be started: {rest}"
            if word == "ended":
                return describe_exit_code(int(rest))
        return "" if self.guard.poll() is None else "lost its supervisor"

    def failed(self, how: str) -> ServerFailed:
        """Return an error with the cause from the log."""
        log = read_tail(self.log)
        why = find_cause(log)
        return ServerFailed(
            f"{self.name} {how}{why and f': {why}'}; its log is {self.log}", error_excerpt(log)
        )

    def hand_over(self, owner: int | None) -> None:
        """Let the server stay when this process is gone, and end with another, or with none.

        Args:
            owner: process id; None for a server that runs until its supervisor gets SIGTERM.

        Raises:
            ServerFailed: the server or the owner has ended, or an owner cannot be watched on this system.
        """
        with suppress(OSError):
            self.line.sendall(f"owner {owner or 0} {start_ticks(owner) if owner else 0}\n".encode())
        deadline = monotonic() + _HAND_OVER_TIME
        while not any(word == "kept" for word, _ in self._reports()):
            self._receive(_READY_CHECK)
            if how := self.ended():
                raise self.failed(how)
            if monotonic() > deadline:  # pragma: no cover - a supervisor that hangs
                raise self.failed("could not be handed over")
        self.kept = True

    def stop(self) -> None:
        """Stop the server and wait until all of its processes have ended, unless it was handed over."""
        if self.kept:
            self.line.close()
            return
        with suppress(OSError):
            self.line.shutdown(socket.SHUT_WR)
        try:
            self.guard.wait(self.grace + 12.0)
        except subprocess.TimeoutExpired:  # pragma: no cover - a supervisor that hangs
            for pid in reversed(list_process_tree(self.guard.pid)):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self.guard.wait()
        self.line.close()

    def _reports(self) -> Iterator[tuple[str, str]]:
        for line in self.received.decode(errors="replace").splitlines():
            word, _, rest = line.partition(" ")
            yield word, rest

    def _receive(self, seconds: float) -> None:
        if self.line.fileno() < 0:
            return
        while select.select([self.line], [], [], seconds)[0]:
            data = self.line.recv(4096)
            if not data:
                return
            self.received += data


@contextmanager
def run_server(launch: Launch) -> Iterator[ServerProcess]:
    """Start a server, wait until it is ready, and stop it on leaving.

    Raises:
        ServerFailed: it exited, was not ready in time, or a fixed port is in use.
    """
    fixed = [port for port in launch.ports.values() if port]
    if busy := ports_in_use(fixed):
        raise ServerFailed(
            f"{launch.name} cannot use port {', '.join(map(str, busy))}: another program listens there."
        )
    for attempt in range(_ATTEMPTS):
        server = _start(launch)
        try:
            how = _wait_until_ready(server, launch)
            if not how:
                yield server
                return
            error = server.failed(how)
        finally:
            server.stop()
        if attempt + 1 == _ATTEMPTS or not _is_transient(launch, f"{error}\n{error.log}"):
            raise error


def _is_transient(launch: Launch, output: str) -> bool:
    """Return whether another start, with other free ports if it has any, may succeed."""
    if launch.passing and launch.passing.search(output):
        return True
    return not all(launch.ports.values()) and bool(_PORT_IN_USE.search(output))


_READY_TIMEOUT = 2.0
"""Seconds that a server has to say whether it is ready."""


def http_ready(port: int, path: str) -> bool:
    """Return whether a path on the loopback answers with status 200."""
    try:
        status, _ = exchange("GET", f"http://{LOOPBACK}:{port}{path}", seconds=_READY_TIMEOUT)
    except OSError:
        return False
    return status == HTTPStatus.OK


def describe_exit_code(code: int) -> str:
    """Describe an exit code in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def read_tail(path: Path, size: int = _TAIL) -> str:
    """Return the last lines of a log, of `size` bytes at most; empty if there is no log."""
    try:
        with path.open("rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - size)
            file.seek(begin)
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return (text.partition("\n")[2] if begin else text).strip()


def _start(launch: Launch) -> ServerProcess:
    free = [name for name, port in launch.ports.items() if not port]
    ports = {**launch.ports, **dict(zip(free, free_ports(len(free)), strict=True))}
    log = new_log_file(launch.name)
    folder = tempfile.mkdtemp(prefix=f"modeldyno-{launch.name}-")
    ours, theirs = socket.socketpair()
    with theirs, log.open("ab") as out:
        guard = subprocess.Popen(
            [sys.executable, "-m", "modeldyno.serving.servers.supervisor", folder],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=out,
            start_new_session=True,
        )
    server = ServerProcess(
        name=launch.name, ports=ports, log=log, folder=folder, guard=guard, line=ours, grace=launch.grace
    )
    try:
        command = {
            "command": launch.command(Path(folder), ports), "parent": os.getpid(), "grace": launch.grace,
            "log": str(log), "environment": _environment(launch),
        }  # fmt: skip
        ours.sendall(json.dumps(command).encode() + b"\n")
    except BaseException:
        server.stop()
        raise
    return server


def _environment(launch: Launch) -> dict[str, str]:
    merged = {**os.environ, **launch.environment}
    return {name: value for name, value in merged.items() if value or name not in launch.environment}


def _wait_until_ready(server: ServerProcess, launch: Launch) -> str:
    """Wait until the server is ready; return what happened instead, or an empty text."""
    deadline = monotonic() + launch.patience
    next_log_check = monotonic() + _LOG_CHECK
    while (now := monotonic()) < deadline:
        if how := server.ended():
            return how
        if launch.ready(server.ports):
            return server.ended()
        if launch.hopeless and now > next_log_check:
            next_log_check = now + _LOG_CHECK
            if launch.hopeless.search(read_tail(server.log)):
                return "will not be ready"
        time.sleep(_READY_CHECK)
    return f"was not ready after {launch.patience:g} s"


def find_cause(log: str) -> str:
    """Return the likeliest cause of a failure; empty if no line looks like one."""
    lines = list(_lines(log))
    index = next((line for mark in _MARKS for line in _matching(lines, mark)), None)
    if index is None:
        return ""
    more = next((count for mark, count in _CONTINUED.items() if mark.search(lines[index][0])), 0)
    return _short(": ".join(line for line, _ in lines[index : index + more + 1]).rstrip(" .;,"))


def error_excerpt(log: str) -> str:
    """Return the last distinct lines about a failure."""
    lines = list(_lines(log))
    failures = dict.fromkeys(_short(lines[index][0]) for index in _matching(lines, _MARKS[-1]))
    return "\n".join(reversed(list(failures)[:_EXCERPT_LINES]))


def _matching(lines: list[tuple[str, bool]], mark: re.Pattern[str]) -> Iterator[int]:
    """Yield the indices of matching lines, last first; not of indented lines (details, help texts)."""
    for index in range(len(lines) - 1, -1, -1):
        line, indented = lines[index]
        if not indented and mark.search(line) and not _NOISE.search(line):
            yield index


def _lines(log: str) -> Iterator[tuple[str, bool]]:
    """Yield the lines without their log prefix, and whether each is indented."""
    for raw in log.splitlines():
        bare = raw
        while (stripped := _LOG_PREFIX.sub("", bare, count=1)) != bare:
            bare = stripped
        tree = _TREE.match(bare)
        line = bare[tree.end() :] if tree else bare
        indented = line[:1].isspace()
        if line := _MODULE.sub("", _unquote(line.strip())).strip("|+- "):
            yield line, indented


def _unquote(line: str) -> str:
    """Return the first line of a quoted text."""
    if len(line) < 2 or not line[0] == line[-1] == '"':
        return line
    first = line[1:-1].partition(r"\n")[0]
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), first)


def _short(line: str) -> str:
    return line if len(line) <= _LINE_LIMIT else f"{line[: _LINE_LIMIT - 1]}…"

"""Supervises a server process and ends all of its descendants.

``python -m modeldyno.serving.servers.supervisor FOLDER``: standard input is a socket whose other end the
starter holds. The starter may write files for the server into FOLDER, which is always removed at the end,
together with the shared memory whose names begin with FOLDER's name. Then the starter sends a line of JSON (a
`SupervisorCommand`), and gets a line when the server has started (``started PID``), could not be started
(``failed WHY``), or exited by itself (``ended CODE``). The server and all of its descendants are ended when
the starter sends anything more, or dies, by whatever signal; when the server's own process exits; and when
a signal asks us to stop. When we exit, nothing is left.

One line more the starter may send: ``owner PID TICKS`` hands the server over to that process, which started
at that time, and ``owner 0 0`` to nobody. It is answered by ``kept``. The server then stays when the starter
is gone, and ends with its owner.

Daemonised processes become our children, because we are a child subreaper (Linux; elsewhere only processes
that stay in the tree are found). Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from modeldyno.base.clock import monotonic
from modeldyno.base.system.process_tree import end_with_parent, list_process_tree, start_ticks

_PR_SET_CHILD_SUBREAPER = 36
_POLL = 0.02
"""Seconds between two checks of ending processes."""
_PATIENCE = 10.0
"""Seconds after SIGKILL before a process that does not die is given up."""
_SHARED = Path("/dev/shm")  # noqa: S108 - fixed by the system
"""Directory of named shared memory (Linux); killed processes leave theirs behind."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorCommand:
    """What to start, and how to end it."""

    command: list[str]
    parent: int
    """Process id of the starter; the server ends with it."""
    grace: float
    """Seconds that the server has to exit by itself."""
    log: str
    """File for its output."""
    environment: dict[str, str]
    """The complete environment."""


@dataclass(slots=True)
class _Supervisor:
    """The supervised server, and the events on which it is ended."""

    starter: socket.socket
    server: subprocess.Popen[bytes]
    wake: int
    """Descriptor that becomes readable on a signal."""
    parent: int | None
    """Descriptor that becomes readable when the starter ends; None if the system has no pidfd."""
    stop_signals: list[int]
    """Signals received that ask us to stop."""
    code: int | None = None
    """Exit code of the server's own process, as in Popen; None while it runs."""

    def wait(self) -> None:
        """Wait until it is time to end the server."""
        self.reap()
        watched = [self.starter.fileno(), *(() if self.parent is None else (self.parent,))]
        while self._wait_for(watched) == [self.starter.fileno()]:
            owner = self._new_owner()
            if owner is None:
                return
            watched = owner

    def _wait_for(self, watched: list[int]) -> list[int]:
        """Return which descriptors became readable; none once the server has exited or a signal has come."""
        poll = select.poll()
        for descriptor in (self.wake, *watched):
            poll.register(descriptor, select.POLLIN)
        while self.code is None and not self.stop_signals:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self.wake in ready:
                os.read(self.wake, 512)
                self.reap()
            if others := ready - {self.wake}:
                return sorted(others)
        return []

    def _new_owner(self) -> list[int] | None:
        """Return what tells the end of the process to which the server is handed over; None to end it now."""
        word, pid, ticks = [*self.starter.recv(256).split(), b"", b"", b""][:3]
        if word != b"owner":
            return None
        owner, watched = int(pid), list[int]()
        if owner:
            descriptor = _parent_descriptor(owner)
            if descriptor is None or start_ticks(owner) != int(ticks):  # it has ended, or cannot be watched
                return None
            watched = [descriptor]
        _report(self.starter, "kept")
        return watched

    def reap(self) -> None:
        """Reap exited children: the server itself, and its orphaned descendants."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid == self.server.pid:
                    self.code = self.server.returncode = os.waitstatus_to_exitcode(status)

    def end(self, grace: float) -> None:
        """End the server, then its descendants: first with SIGTERM, after the grace with SIGKILL."""
        deadline = monotonic() + grace
        _signal([self.server.pid] if self.code is None else [], signal.SIGTERM)
        while self.code is None and monotonic() < deadline:
            time.sleep(_POLL)
            self.reap()
        _signal(self.descendants(), signal.SIGTERM)
        while self.descendants() and monotonic() < deadline:
            time.sleep(_POLL)
            self.reap()
        while (remaining := self.descendants()) and monotonic() < deadline + _PATIENCE:
            _signal(remaining, signal.SIGKILL)
            time.sleep(_POLL)
            self.reap()

    def descendants(self) -> list[int]:
        """Return the ids of all descendants."""
        return list_process_tree(os.getpid())[1:]


def main(folder: str) -> None:
    """Read the command, start the server, wait until it is time to end it, and end it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    starter = socket.socket(fileno=os.dup(0))
    wake, stop_signals = _wakeup_descriptor(), _record_signals()
    try:
        with starter.makefile("rb", buffering=0) as lines:
            line = lines.readline()
        if line.endswith(b"\n"):
            _supervise(starter, SupervisorCommand(**json.loads(line)), folder, wake, stop_signals)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for segment in _SHARED.glob(f"{Path(folder).name}*"):
            with suppress(OSError):
                segment.unlink()


def _supervise(
    starter: socket.socket, command: SupervisorCommand, folder: str, wake: int, stop_signals: list[int]
) -> None:
    try:
        server = _start(command, folder)
    except OSError as error:
        _report(starter, f"failed {error.strerror or error}: {command.command[0]}")
        return
    supervisor = _Supervisor(starter, server, wake, _parent_descriptor(command.parent), stop_signals)
    _report(starter, f"started {server.pid}")
    if os.getppid() == command.parent:  # else the starter died before we could watch it
        supervisor.wait()
    if supervisor.code is not None:
        _report(starter, f"ended {supervisor.code}")
    supervisor.end(command.grace)


def _start(command: SupervisorCommand, folder: str) -> subprocess.Popen[bytes]:
    with open(command.log, "ab", buffering=0) as out:  # noqa: PTH123 - a file for Popen
        return subprocess.Popen(
            command.command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=command.environment,
            cwd=folder,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - safe with one thread; it dies with us
        )


def _wakeup_descriptor() -> int:
    """Return a descriptor that becomes readable when a child exits or a signal arrives."""
    read_end, write_end = os.pipe()
    for end in (read_end, write_end):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return read_end


def _record_signals() -> list[int]:
    """Record stop signals in a list instead of dying from them."""
    received: list[int] = []
    for number in _SIGNALS:
        signal.signal(number, lambda number, _frame: received.append(number))
    return received


def _parent_descriptor(parent: int) -> int | None:
    try:
        return os.pidfd_open(parent)
    except (OSError, AttributeError):
        return None


def _report(starter: socket.socket, line: str) -> None:
    """Send a line to the starter if it is still there."""
    with suppress(OSError):
        starter.sendall(f"{line}\n".encode())


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


if __name__ == "__main__":
    main(sys.argv[1])

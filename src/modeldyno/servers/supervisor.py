"""A process that supervises a server, and leaves nothing of it behind.

``python -m modeldyno.servers.supervisor FOLDER``: standard input is a socket whose other end the starter
holds. The starter may write files for the server into FOLDER, which is removed at the end in any case, and
with it the shared memory whose names begin with its name. Then it
sends a line of JSON (an `Order`), and gets a line when the server has started (``started PID``), could
not be (``failed WHY``), or ended by itself (``ended CODE``). The server and everything that descends from
it is ended when the starter says anything more, or dies, by whatever signal; when the server's own
process ends; and when a signal asks us to. Our own end tells that nothing is left.

What a server daemonises comes back to us, for we are the reaper of our descendants (Linux; elsewhere
only what stays in the tree is found). Standard library only.
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

from modeldyno.environment.process_tree import end_with_parent, tree

_PR_SET_CHILD_SUBREAPER = 36
_POLL = 0.02
"""Seconds between two looks at what is ending."""
_PATIENCE = 10.0
"""Seconds after SIGKILL after which a process that will not die is left to the system."""
_SHARED = Path("/dev/shm")  # noqa: S108 - the very place
"""Where shared memory has names (Linux); what is killed leaves it behind."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to start, and how to end it."""

    command: list[str]
    parent: int
    """The starter: when it is gone, the server goes."""
    grace: float
    """Seconds that the server has to end by itself."""
    log: str
    """File that takes what it prints."""
    environment: dict[str, str]
    """The whole of it."""


@dataclass(slots=True)
class _Guard:
    """The server, and the ways to learn that it is time to end it."""

    starter: socket.socket
    server: subprocess.Popen[bytes]
    wake: int
    """Becomes readable at a signal."""
    parent: int | None
    """Becomes readable when the starter ends; None where there is no such thing."""
    asked: list[int]
    """Signals that asked us to end."""
    code: int | None = None
    """How the server's own process ended, as Popen tells it."""

    def wait(self) -> None:
        """Sleep until it is time to end."""
        self.reap()
        poll = select.poll()
        watched = [self.starter.fileno(), *(() if self.parent is None else (self.parent,))]
        for descriptor in (self.wake, *watched):
            poll.register(descriptor, select.POLLIN)
        while self.code is None and not self.asked:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self.wake in ready:
                os.read(self.wake, 512)
                self.reap()
            if ready - {self.wake}:
                return

    def reap(self) -> None:
        """Collect whoever has ended: the server itself, and what it left to us."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid == self.server.pid:
                    self.code = self.server.returncode = os.waitstatus_to_exitcode(status)

    def end(self, grace: float) -> None:
        """End the server, then what is left of it: first they are asked, and after the grace killed."""
        deadline = time.monotonic() + grace
        _signal([self.server.pid] if self.code is None else [], signal.SIGTERM)
        while self.code is None and time.monotonic() < deadline:
            time.sleep(_POLL)
            self.reap()
        _signal(self.rest(), signal.SIGTERM)
        while self.rest() and time.monotonic() < deadline:
            time.sleep(_POLL)
            self.reap()
        while (left := self.rest()) and time.monotonic() < deadline + _PATIENCE:
            _signal(left, signal.SIGKILL)
            time.sleep(_POLL)
            self.reap()

    def rest(self) -> list[int]:
        """List all descendants."""
        return tree(os.getpid())[1:]


def main(folder: str) -> None:
    """Wait for the order, start the server, wait until it is time to end it, and end it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    starter = socket.socket(fileno=os.dup(0))
    wake, asked = _wake(), _asked()
    try:
        with starter.makefile("rb", buffering=0) as lines:
            line = lines.readline()
        if line.endswith(b"\n"):
            _supervise(starter, Order(**json.loads(line)), folder, wake, asked)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for left in _SHARED.glob(f"{Path(folder).name}*"):
            with suppress(OSError):
                left.unlink()


def _supervise(starter: socket.socket, order: Order, folder: str, wake: int, asked: list[int]) -> None:
    try:
        server = _start(order, folder)
    except OSError as error:
        _tell(starter, f"failed {error.strerror or error}: {order.command[0]}")
        return
    guard = _Guard(starter, server, wake, _watched(order.parent), asked)
    _tell(starter, f"started {server.pid}")
    if os.getppid() == order.parent:  # else it died before we could watch it
        guard.wait()
    if guard.code is not None:
        _tell(starter, f"ended {guard.code}")
    guard.end(order.grace)


def _start(order: Order, folder: str) -> subprocess.Popen[bytes]:
    with open(order.log, "ab", buffering=0) as out:  # noqa: PTH123 - as Popen wants it
        return subprocess.Popen(
            order.command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=order.environment,
            cwd=folder,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - we have one thread: should we be killed, so is it
        )


def _wake() -> int:
    """Give a descriptor that becomes readable when a child ends or a signal comes."""
    read_end, write_end = os.pipe()
    for end in (read_end, write_end):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return read_end


def _asked() -> list[int]:
    """Note signals that ask us to end, instead of dying of them."""
    seen: list[int] = []
    for number in _SIGNALS:
        signal.signal(number, lambda number, _frame: seen.append(number))
    return seen


def _watched(parent: int) -> int | None:
    try:
        return os.pidfd_open(parent)
    except (OSError, AttributeError):
        return None


def _tell(starter: socket.socket, line: str) -> None:
    """Say it to the starter, if there still is one."""
    with suppress(OSError):
        starter.sendall(f"{line}\n".encode())


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


if __name__ == "__main__":
    main(sys.argv[1])

"""The process between the profiler and the child that runs a model: it ends everything the child started.

``python -I -S reaper.py PARENT [--leave-servers] COMMAND...`` starts COMMAND in a session of its own, on the
descriptors that it was given, and ends as that ends: with the same exit code, or by the same signal. By then
everything the command had started is gone, including processes that left its tree: as a subreaper this one
adopts double-forked orphans (Linux; elsewhere only what stays in the tree is ended). The caller cannot
be the subreaper itself: it would adopt the orphans of all its descendants, and it may have others.

SIGINT is passed on. SIGTERM, which the kernel sends when the caller dies, ends the command at once. The
supervisors of servers (`modeldyno.serving.servers.supervisor`) get some seconds to end theirs; with
``--leave-servers`` they stay if the command ended with exit code 0, and nothing else does. What tracks the
shared memory of Python's `multiprocessing` gets a moment to remove it. Standard library only.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import time
from contextlib import suppress

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SIGNALS = {signal.SIGCHLD, signal.SIGINT, signal.SIGTERM}
_SUPERVISOR = "modeldyno.serving.servers.supervisor"
_SUPERVISOR_TIME = 15.0
"""Seconds that supervisors may take to end their servers and remove their files."""
_TRACKER = "from multiprocessing.resource_tracker import main"
"""How the code begins that removes shared memory once the processes that use it have ended."""
_TRACKER_TIME = 2.0
"""Seconds that it may take."""
_KILL_TIME = 10.0
"""Seconds after SIGKILL after which a process that does not die is left to the system."""
_POLL = 0.005
"""Seconds between two checks of processes that are ending."""
_MOST_DESCRIPTORS = 1 << 16
"""Descriptors that are closed where the system does not list them."""
_NOT_STARTED = 127
"""Exit code when the command could not be started, as of a shell."""


def main(parent: int, command: list[str], *, leave_servers: bool = False) -> None:
    """Start the command, wait until it ends or must be ended, end what it left, and exit like it."""
    signal.signal(
        signal.SIGCHLD, signal.SIG_DFL
    )  # if the caller ignored it, no child's end would be reported
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died before PDEATHSIG was set
        os._exit(1)
    child = _start(command, mask)
    _close_all()
    sys.path.insert(0, os.path.abspath(f"{__file__}/../../../.."))
    import modeldyno.base.system.process_tree  # noqa: F401 - for _end_all, while the command starts

    status = _wait(child)
    ended = _end_all(child, leave_servers=leave_servers and status == 0)
    _exit_like(ended if status is None else status)


def _start(command: list[str], mask: set[signal.Signals | int]) -> int:
    child = os.fork()
    if not child:
        try:
            os.setsid()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.execv(command[0], command)  # noqa: S606 - a list, no shell
        finally:
            os._exit(_NOT_STARTED)
    return child


def _close_all() -> None:
    """Close all descriptors, so that only the command holds its pipes and their end means its end."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    try:
        highest = max(map(int, os.listdir("/dev/fd")))
    except OSError:  # no /proc
        highest = min(os.sysconf("SC_OPEN_MAX"), _MOST_DESCRIPTORS)
    os.closerange(3, highest + 1)


def _wait(child: int) -> int | None:
    """Wait until the command ends; return its status, or None if it must be ended."""
    while True:
        number = signal.sigwait(_SIGNALS)
        if number == signal.SIGTERM:
            return None
        if number == signal.SIGINT:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGINT)
        elif (status := _reap().get(child)) is not None:
            return status


def _reap() -> dict[int, int]:
    """Collect processes that have ended; return the status of each."""
    statuses: dict[int, int] = {}
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            statuses[pid] = status
    return statuses


def _end_all(child: int, *, leave_servers: bool) -> int:
    """Kill all descendants, servers and their supervisors last or not at all; return the child's status."""
    from modeldyno.base.system.process_tree import (
        list_process_tree,
        runs_code,
        stat_fields,
    )  # the command is started first

    patience = {_SUPERVISOR: math.inf if leave_servers else _SUPERVISOR_TIME, _TRACKER: _TRACKER_TIME}
    begin, status = time.monotonic(), int(signal.SIGKILL)
    if not stat_fields(os.getpid()):  # no /proc: of its processes only the group of the command is known
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
    while True:
        status = _reap().get(child, status)
        descendants = list_process_tree(os.getpid())[1:]
        spent = time.monotonic() - begin
        spared_codes = [code for code, seconds in patience.items() if spent < seconds]
        spared_roots = [pid for pid in descendants if any(runs_code(pid, code) for code in spared_codes)]
        spared = {pid for root in spared_roots for pid in list_process_tree(root)}
        remaining = [pid for pid in descendants if pid not in spared]
        is_done = not remaining if leave_servers else not descendants
        if is_done or spent > _SUPERVISOR_TIME + _KILL_TIME:
            return status
        for pid in remaining:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL)


def _exit_like(status: int) -> None:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        import resource  # only a crash needs it

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core that matters is the command's own
        with suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    os._exit(max(code, 0))


if __name__ == "__main__":
    _leaves = sys.argv[2] == "--leave-servers"
    main(int(sys.argv[1]), sys.argv[3 if _leaves else 2 :], leave_servers=_leaves)

"""The process between ours and the child that runs a model: it leaves nothing behind that came of the child.

``python -I -S keeper.py PARENT COMMAND...`` starts COMMAND in a session of its own, on the descriptors that
it was given, and ends as that ends: with the same exit code, or by the same signal. By then everything that
the command had started is gone, whatever left its tree: as the reaper of its descendants this process is
given what a double fork makes an orphan (Linux; elsewhere only what stays in the tree is ended). The caller
could not be that itself: a reaper is given the orphans of all its descendants, and it may have others.

SIGINT is passed on. SIGTERM, which the kernel sends when the caller dies, ends the command at once. The
guards of servers (`modeldyno.servers.supervisor`) are left some seconds to end theirs. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_AWAITED = {signal.SIGCHLD, signal.SIGINT, signal.SIGTERM}
_GUARD = "modeldyno.servers.supervisor"
_TIDYING = 15.0
"""Seconds that guards may take to end their servers and to remove their files."""
_PATIENCE = 10.0
"""Seconds after SIGKILL after which a process that will not die is left to the system."""
_POLL = 0.005
"""Seconds between two looks at what is ending."""
_UNSTARTED = 127
"""Exit code where the command could not be started, as of a shell."""


def main(parent: int, command: list[str]) -> None:
    """Start the command, wait until it ends or is to end, end what it left, and end like it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored by the caller, no end of a child would be told
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died before we could ask to be told
        os._exit(1)
    child = _start(command, mask)
    _close_all()
    sys.path.insert(0, os.path.abspath(f"{__file__}/../../.."))  # noqa: PTH100 - likewise
    import modeldyno.environment.process_tree  # noqa: F401, PLC0415 - for _end_all, while the command starts

    status = _wait(child)
    ended = _end_all(child)
    _end_like(ended if status is None else status)


def _start(command: list[str], mask: set[signal.Signals | int]) -> int:
    child = os.fork()
    if not child:
        try:
            os.setsid()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.execv(command[0], command)  # noqa: S606 - a list, no shell
        finally:
            os._exit(_UNSTARTED)
    return child


def _close_all() -> None:
    """Leave all pipes to the command: their end is to tell of its end."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    for descriptor in map(int, os.listdir("/dev/fd")):  # noqa: PTH208 - pathlib is dear at start-up
        with suppress(OSError):  # that of the list itself is closed by now
            if descriptor > 2:  # noqa: PLR2004 - the standard ones
                os.close(descriptor)


def _wait(child: int) -> int | None:
    """Wait until the command ends; give its status, or None where it is to be ended."""
    while True:
        number = signal.sigwait(_AWAITED)
        if number == signal.SIGTERM:
            return None
        if number == signal.SIGINT:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGINT)
        elif (status := _reap().get(child)) is not None:
            return status


def _reap() -> dict[int, int]:
    """Collect whoever has ended; give the status of each."""
    found: dict[int, int] = {}
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            found[pid] = status
    return found


def _end_all(child: int) -> int:
    """Kill all descendants, guards and what these watch over last; give the status of the child."""
    from modeldyno.environment.process_tree import runs_module, tree  # noqa: PLC0415 - the command is started first

    begun, status = time.monotonic(), int(signal.SIGKILL)
    while True:
        status = _reap().get(child, status)
        rest = tree(os.getpid())[1:]
        spent = time.monotonic() - begun
        if not rest or spent > _TIDYING + _PATIENCE:
            return status
        guards = [pid for pid in rest if runs_module(pid, _GUARD)] if spent < _TIDYING else []
        spared = {pid for guard in guards for pid in tree(guard)}
        for pid in rest:
            if pid not in spared:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL)


def _end_like(status: int) -> None:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        import resource  # noqa: PLC0415 - only a crash needs it

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core that matters is the command's own
        with suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    os._exit(max(code, 0))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])

"""Processes of the operating system: their trees, their memory, and that none outlives us.

Standard library only: the side process that watches a measurement imports this and little else.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PAGE = os.sysconf("SC_PAGE_SIZE")


def end_with_parent() -> None:
    """Have the kernel end this process when the one that started it dies (Linux; elsewhere nothing)."""
    parent = os.getppid()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the request was made
        os._exit(1)


def tree(root: int) -> list[int]:
    """List a process and its living descendants."""
    found = [root]
    for pid in found:
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError):
                    found += map(int, (task / "children").read_text().split())
    return found


def proportional_size(pid: int) -> int:
    """Bytes of memory, shared pages divided among those who share them; resident size as fallback."""
    return _field(f"/proc/{pid}/smaps_rollup", "Pss:") or resident_size(pid)


def peak_size(pid: int) -> int:
    """Bytes of the highest resident size since it was last forgotten; 0 where it cannot be known."""
    return _field(f"/proc/{pid}/status", "VmHWM:")


def _field(path: str, name: str) -> int:
    """Read a line of kibibytes as bytes; 0 where there is none."""
    with suppress(OSError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return 0


def birth(pid: int) -> int:
    """When a process began, in ticks since the machine started; 0 for one that is gone.

    A number of a process may be given again; together with its birth it is its own.
    """
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0


def resident_size(pid: int) -> int:
    """Bytes of resident memory; 0 for a process that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0

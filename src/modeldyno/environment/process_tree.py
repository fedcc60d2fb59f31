"""Processes of the operating system: their trees, their memory, and that none outlives us.

Standard library only: the side process that watches a measurement imports this and little else.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_PR_SET_PDEATHSIG = 1
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


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


def ancestors(count: int) -> list[int]:
    """List the parent of this process, the parent of that, and so on: so many, or as many as can be seen."""
    found = [os.getppid()]
    with suppress(IndexError):
        while len(found) < count and found[-1] > 1:
            found.append(int(status(found[-1])[1]))
    return [pid for pid in found if pid > 1]


def family_size(pids: Iterable[int]) -> int:
    """Bytes of memory of several processes, what they share counted once.

    Anonymous memory is shared by forks alone: each has its part of it. Pages of files, such as libraries and
    mapped weights, are shared with strangers, too, and these are hardly to change what is told: they count
    at least as resident in the process that has most of them, which is exact where one has them all. Where
    the kernel tells no more, proportional sizes (before Linux 5.9), or resident ones.
    """
    alone = files = most = 0
    for pid in pids:
        found = _fields(f"/proc/{pid}/smaps_rollup")
        if "Pss_Anon" in found:
            alone += found["Pss_Anon"]
            files += found["Pss"] - found["Pss_Anon"]
            most = max(most, found["Rss"] - found["Anonymous"])
        elif "Pss" in found:
            alone += found["Pss"]
        else:
            alone += resident_size(pid)
    return alone + max(files, most)


def peak_size(pid: int) -> int:
    """Bytes of the highest resident size since it was last forgotten; 0 where it cannot be known."""
    return _fields(f"/proc/{pid}/status").get("VmHWM", 0)


def _fields(path: str) -> dict[str, int]:
    """Read the lines of kibibytes as bytes; nothing of what cannot be read."""
    with suppress(OSError):
        lines = Path(path).read_text().splitlines()
        return {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith(" kB")}
    return {}


def birth(pid: int) -> int:
    """When a process began, in ticks since the machine started; 0 for one that is gone.

    A number of a process may be given again; together with its birth it is its own.
    """
    return int((status(pid) or ["0"] * 20)[19])


def processor_time(pid: int) -> float:
    """Seconds of user and system time of a process and of its ended children."""
    return sum(map(int, status(pid)[11:15])) / _TICK


def status(pid: int) -> list[str]:
    """Give the fields of ``stat`` behind the name; none for a process that is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def release_free_memory() -> None:
    """Give back to the system what this process has freed, so that its size is what it holds (glibc only).

    Without it, memory that we have used and freed would be reused by the model, and never be seen as the
    model's.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def runs_module(pid: int, name: str) -> bool:
    """Say whether a living process is Python that was started with ``-m`` and this module."""
    try:
        return name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def resident_size(pid: int) -> int:
    """Bytes of resident memory; 0 for a process that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0

"""What this process has of memory, descriptors, threads, processes and temporary files."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path

from modeldyno.base.system.process_tree import list_process_tree, open_memory_files, runs_code

_STATUS = {"RssAnon": "memory", "RssShmem": "memory", "VmSwap": "memory", "VmSize": "mapped"}
_SHARED = "/dev/shm"  # noqa: S108 - fixed by the system
_ENTRY_SIZE = 20
"""Size of a file's entry in a folder in memory (BOGO_DIRENT_SIZE of the kernel's mm/shmem.c)."""
_MOST_FILES = 2000
_REAPER = str(Path(__file__).parents[1] / "runtime" / "reaper.py")


def read_resources() -> dict[str, float]:
    """Return how much there is of `base.metrics.leak.RESOURCES`, as far as the system tells."""
    amounts: dict[str, float] = {"objects": float(sys.getallocatedblocks())}
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            field, _, rest = line.partition(":")
            if field in _STATUS:
                name = _STATUS[field]
                amounts[name] = amounts.get(name, 0.0) + int(rest.split()[0]) * 1024
            elif field == "Threads":
                amounts["threads"] = float(rest)
        amounts["descriptors"] = float(len(os.listdir("/proc/self/fd")))
        amounts["memory"] += open_memory_files([os.getpid()])
        amounts["processes"] = float(len(list_process_tree(_root())))
    with suppress(OSError):
        amounts["files"] = float(sum(map(_count_files, _folders())))
    return amounts


@lru_cache(maxsize=1)
def _folders() -> frozenset[str]:
    return frozenset({tempfile.gettempdir(), _SHARED})


def _count_files(folder: str) -> int:
    """Count files in a folder; in memory that takes no time, elsewhere at most `_MOST_FILES` are counted."""
    status = os.stat(folder)
    if status.st_dev == os.stat(_SHARED).st_dev:
        return status.st_size // _ENTRY_SIZE
    with os.scandir(folder) as entries:
        return sum(1 for _ in islice(entries, _MOST_FILES))


def _root() -> int:
    """Return the process from which all that the model starts descends: the reaper, if this is its child."""
    parent = os.getppid()
    return parent if runs_code(parent, _REAPER) else os.getpid()

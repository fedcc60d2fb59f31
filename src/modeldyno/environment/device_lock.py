"""One lock for each device of a machine: what is measured has it to itself, as far as ModelDyno goes.

The lock is on a file of the user's runtime directory, and ends with the process that holds it, however that
ends. Its content says who holds it.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POLL = 0.2


@contextmanager
def device_lock(
    device: str,
    who: str,
    *,
    patience: float = 0.0,
    waiting: Callable[[str], None] = lambda _holder: None,
    folder: Path | None = None,
) -> Iterator[str | None]:
    """Hold a device's lock during the block; yield who holds it instead, or None if it is held.

    Args:
        device: ``cpu``, or a GPU such as ``cuda:0``.
        who: what to write into the file for others to read.
        patience: seconds to wait for it.
        waiting: called once with who holds it, before waiting.
        folder: where the files are; by default the user's runtime directory.
    """
    path = (folder or _folder()) / f"{re.sub(r'[^A-Za-z0-9]+', '-', device)}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        holder = _acquire(descriptor, patience, waiting)
        if holder is None:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{who} (pid {os.getpid()})".encode(), 0)
        yield holder
        if holder is None:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, patience: float, waiting: Callable[[str], None]) -> str | None:
    """Return None once the lock is held, or who holds it when patience is over."""
    end, told = time.monotonic() + patience, False
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
        holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace") or "another process"
        if time.monotonic() >= end:
            return holder
        if not told:
            waiting(holder)
            told = True
        time.sleep(_POLL)


def _folder() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR")
    root = Path(base) if base and Path(base).is_dir() else Path(tempfile.gettempdir())
    folder = root / f"modeldyno-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder

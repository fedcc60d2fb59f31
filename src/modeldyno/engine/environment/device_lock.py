"""One lock for each device of a machine: what is measured has it to itself, as far as ModelDyno goes.

The lock is on a file of the user, and ends with the process that holds it, however that ends. Its content
says who holds it.
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

from modeldyno.base.clock import monotonic
from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POLL = 0.2
_held: set[int] = set()
"""Open files of locks; a forked child closes its copies, which would hold the lock longer than we live."""


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
        folder: where the files are; by default one of the user, the same for all sessions on this machine.

    Raises:
        RequestError: the file cannot be opened.
    """
    path = (folder or _folder()) / f"{re.sub(r'[^A-Za-z0-9]+', '-', device)}.lock"
    descriptor, holder = _acquire(path, patience, waiting)
    try:
        if holder is None:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{who} (pid {os.getpid()})".encode(), 0)
        yield holder
        if holder is None and descriptor in _held:
            os.ftruncate(descriptor, 0)
    finally:
        _close(descriptor)


def _acquire(path: Path, patience: float, waiting: Callable[[str], None]) -> tuple[int, str | None]:
    """Return the open file, and None once its lock is held, or who holds it when patience is over."""
    end, reported = monotonic() + patience, False
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace") or "another process"
            if monotonic() >= end:
                return descriptor, holder
            if not reported:
                waiting(holder)
                reported = True
            _close(descriptor)
            time.sleep(_POLL)
            continue
        if _is_at(path, descriptor):
            return descriptor, None
        _close(descriptor)  # a cleaner of old files has removed it; another process may have made a new one


def _open(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise RequestError(f"The lock {path} cannot be opened: {error.strerror}; remove it.") from error
    _held.add(descriptor)
    return descriptor


def _close(descriptor: int) -> None:
    if descriptor in _held:  # unless this is a child that was forked within the block
        _held.discard(descriptor)
        os.close(descriptor)


def _close_copies() -> None:
    for descriptor in tuple(_held):
        _close(descriptor)


os.register_at_fork(after_in_child=_close_copies)


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether a path still leads to an open file."""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False


def _folder() -> Path:
    """Return the user's folder; the same in a login, in a service and in a job of cron, unlike others."""
    root = Path("/tmp")  # noqa: S108 - the folder below it must be ours
    folder = (root if root.is_dir() else Path(tempfile.gettempdir())) / f"modeldyno-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        owner = folder.lstat().st_uid
    except OSError as error:
        raise RequestError(f"{folder} for the locks of devices cannot be made: {error.strerror}.") from error
    if owner != os.getuid():
        raise RequestError(f"{folder} for the locks of devices is another user's; remove it.")
    return folder

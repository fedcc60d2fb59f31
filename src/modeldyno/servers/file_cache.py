"""Files that were dear to make, kept for the next server that needs them.

A directory in the user's cache has an entry, itself a directory, for each key. An entry appears as a whole or
not at all, whoever else writes at the same time and wherever we are ended; when all take more than the bound,
those go that were not used for the longest time. Whatever cannot be read or written is not kept, no more.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

BOUND = 8 << 30
"""Bytes of all entries."""
_STALE = 86_400.0
"""Seconds after which what another has begun to write is taken to be abandoned."""
_NEW = ".new-"


def folder() -> Path | None:
    """Give the directory of all entries; None where there is no home for it."""
    from modeldyno.environment.peaks import cache_directory  # noqa: PLC0415 - imports what costs a backend too much

    cache = cache_directory()
    return None if cache is None else cache / "exports"


def find(key: str) -> Path | None:
    """Give the entry of a key, which is used now; None where there is none."""
    place = folder()
    if place is None or not (entry := place / key).is_dir():
        return None
    with suppress(OSError):
        os.utime(entry)
    return entry


def keep(key: str, files: Iterable[Path]) -> None:
    """Make an entry of copies of files; as links, where the system can."""
    place, files = folder(), list(files)
    with suppress(OSError):
        size = sum(path.stat().st_size for path in files)
        if place is None or size > BOUND:
            return
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_room(place, BOUND - size)
        made = Path(tempfile.mkdtemp(prefix=_NEW, dir=place))
        try:
            for path in files:
                link(path, made / path.name)
                _settle(made / path.name)
            made.rename(place / key)
        finally:  # where another was first, or the disk is full
            shutil.rmtree(made, ignore_errors=True)


def link(source: Path, target: Path) -> None:
    """Have a file at another place, without copying it where the system can."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def _settle(path: Path) -> None:
    """Have it on the disk before the entry appears, or a crash of the machine may leave it empty."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_room(place: Path, bound: int) -> None:
    """Remove what was not used for the longest time, until the rest is within the bound."""
    found = []
    for entry in place.iterdir():
        with suppress(OSError):
            used = entry.stat().st_mtime
            if entry.name.startswith(_NEW):
                if datetime.now(UTC).timestamp() - used > _STALE:
                    shutil.rmtree(entry, ignore_errors=True)
                continue
            found.append((used, entry, sum(path.stat().st_size for path in entry.iterdir())))
    total = sum(size for _, _, size in found)
    for _, entry, size in sorted(found):
        if total <= bound:
            return
        shutil.rmtree(entry, ignore_errors=True)
        total -= size

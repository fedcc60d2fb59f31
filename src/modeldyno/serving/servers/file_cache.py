"""A cache of files that are slow to make, kept for the next server that needs them.

A directory in the user's cache has one entry, itself a directory, per key. An entry is created atomically,
even if other processes write at the same time or ours is killed. If the total exceeds the bound, the entries
that were not used for longest are removed. If the cache cannot be read or written, nothing is cached.
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
"""Maximum bytes of all entries."""
_STALE = 86_400.0
"""Seconds after which an unfinished entry of another process counts as abandoned."""
_NEW = ".new-"


def cache_folder() -> Path | None:
    """Return the cache directory; None if the user has no cache directory."""
    from modeldyno.engine.environment.peaks import cache_directory  # imports what costs a backend too much

    cache = cache_directory()
    return None if cache is None else cache / "exports"


def find_cached(key: str) -> Path | None:
    """Return the entry of a key and mark it as used; None if there is none."""
    root = cache_folder()
    if root is None or not (entry := root / key).is_dir():
        return None
    with suppress(OSError):
        os.utime(entry)
    return entry


def cache_files(key: str, files: Iterable[Path]) -> None:
    """Create an entry from copies of files, as hard links if possible."""
    root, files = cache_folder(), list(files)
    with suppress(OSError):
        size = sum(path.stat().st_size for path in files)
        if root is None or size > BOUND:
            return
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _evict(root, BOUND - size)
        unfinished = Path(tempfile.mkdtemp(prefix=_NEW, dir=root))
        try:
            for path in files:
                link_or_copy(path, unfinished / path.name)
                _sync(unfinished / path.name)
            unfinished.rename(root / key)
        finally:  # if another process was first, or the disk is full
            shutil.rmtree(unfinished, ignore_errors=True)


def link_or_copy(source: Path, target: Path) -> None:
    """Create a hard link to a file, or a copy if links are not possible."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def _sync(path: Path) -> None:
    """Flush a file to disk before its entry appears, so that a crash of the machine cannot leave it empty."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _evict(root: Path, bound: int) -> None:
    """Remove the entries that were not used for longest, until the rest is within the bound."""
    entries = []
    for entry in root.iterdir():
        with suppress(OSError):
            used = entry.stat().st_mtime
            if entry.name.startswith(_NEW):
                if datetime.now(UTC).timestamp() - used > _STALE:
                    shutil.rmtree(entry, ignore_errors=True)
                continue
            entries.append((used, entry, sum(path.stat().st_size for path in entry.iterdir())))
    total = sum(size for _, _, size in entries)
    for _, entry, size in sorted(entries):
        if total <= bound:
            return
        shutil.rmtree(entry, ignore_errors=True)
        total -= size

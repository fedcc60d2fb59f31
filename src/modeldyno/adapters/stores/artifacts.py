"""Deletes and expires files that belong to Results; files outside the store's directory are never touched."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path, PurePath

_WALK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def relative_to_store(root: Path, path: str) -> PurePath | None:
    """Return a path relative to `root`; None if, as written, it leads elsewhere."""
    relative = PurePath(path)
    if relative.is_absolute():
        roots = [candidate for candidate in (root, root.resolve()) if relative.is_relative_to(candidate)]
        if not roots:
            return None
        relative = relative.relative_to(roots[0])
    if not relative.parts or ".." in relative.parts or "\0" in path:
        return None
    return relative


def erase(root: Path, path: str) -> bool:
    """Delete one regular file below `root`; return False if it is elsewhere, behind a link, or missing.

    Directories are opened one by one by descriptor, without following links, so that no other process can
    put a link there between the check and the deletion.
    """
    relative = relative_to_store(root, path)
    if relative is None:
        return False
    descriptors: list[int] = []
    try:
        descriptors.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY))
        for name in relative.parts[:-1]:
            descriptors.append(os.open(name, _WALK, dir_fd=descriptors[-1]))
        if not stat.S_ISREG(os.stat(relative.name, dir_fd=descriptors[-1], follow_symlinks=False).st_mode):
            return False
        os.unlink(relative.name, dir_fd=descriptors[-1])
    except OSError:
        return False
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return True


def is_expired(keep_until: str | None, now: datetime) -> bool:
    """Return whether a file's time is over; False if the time is missing or unreadable."""
    try:
        moment = datetime.fromisoformat(keep_until or "")
    except ValueError:
        return False
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) <= now

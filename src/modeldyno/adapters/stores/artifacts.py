"""Files that belong to Results; nothing outside of the store's own directory is ever deleted."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path, PurePath

_WALK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def belongs(root: Path, path: str) -> PurePath | None:
    """Give a path relative to `root`, or None if, as written, it leads elsewhere."""
    inner = PurePath(path)
    if inner.is_absolute():
        homes = [home for home in (root, root.resolve()) if inner.is_relative_to(home)]
        if not homes:
            return None
        inner = inner.relative_to(homes[0])
    if not inner.parts or ".." in inner.parts or "\0" in path:
        return None
    return inner


def erase(root: Path, path: str) -> bool:
    """Delete one regular file below `root`; False if it is elsewhere, behind a link, or not there.

    Directories are walked by descriptor, each without following links, so that nobody can put
    one there between the look and the deed.
    """
    inner = belongs(root, path)
    if inner is None:
        return False
    opened: list[int] = []
    try:
        opened.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY))
        for name in inner.parts[:-1]:
            opened.append(os.open(name, _WALK, dir_fd=opened[-1]))
        if not stat.S_ISREG(os.stat(inner.name, dir_fd=opened[-1], follow_symlinks=False).st_mode):
            return False
        os.unlink(inner.name, dir_fd=opened[-1])
    except OSError:
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return True


def expired(keep_until: str | None, now: datetime) -> bool:
    """Tell whether a file's time is over; one without a time, or with an unreadable one, is kept."""
    try:
        moment = datetime.fromisoformat(keep_until or "")
    except ValueError:
        return False
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) <= now

"""Directories of installed inference servers and of their logs."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from modeldyno.base.errors import RequestError

VARIABLE = "MODELDYNO_ENGINES"
INSIDE = Path(__file__).parent / "inside_server"
"""Files that are copied into servers."""
_LOG_COUNT = 20
"""Number of logs that are kept."""
_COUNT = itertools.count()


def servers_root() -> Path:
    """Return the directory of all installed servers: MODELDYNO_ENGINES, or one in the user's data directory.

    Raises:
        RequestError: there is no home directory, and the variable is not set.
    """
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).absolute()
    try:
        home = Path.home()
    except RuntimeError as error:
        raise RequestError(f"There is no home directory to keep engines in; set {VARIABLE}.") from error
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "modeldyno" / "engines"
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (data if data.is_absolute() else home / ".local" / "share") / "modeldyno" / "engines"


def new_log_file(name: str) -> Path:
    """Return the path of a new server log, and remove all but the newest 19 logs.

    It is in the directory of the installed servers, or among the temporary files if that is not writable.
    """
    folder = servers_root() / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        folder = Path(tempfile.gettempdir()) / "modeldyno-logs"
        folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("*.log"), key=_modification_time)[: -_LOG_COUNT + 1]:
        with suppress(OSError):
            old.unlink()
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return folder / f"{name}-{stamp}-{os.getpid()}-{next(_COUNT)}.log"


def _modification_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0

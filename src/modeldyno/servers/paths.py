"""Where engines are installed and their logs kept."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from modeldyno.errors import RequestError

VARIABLE = "MODELDYNO_ENGINES"
INSIDE = Path(__file__).parent / "inside_server"
"""Files that are copied into servers."""
_KEPT = 20
"""Logs of earlier servers that are kept."""
_COUNT = itertools.count()


def root() -> Path:
    """Give the directory of all engines: MODELDYNO_ENGINES, or one in the user's data directory.

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


def log_file(name: str) -> Path:
    """Give a new file for the log of a server, and remove the oldest beyond the last 20.

    It lies beside the engines, or where nothing can be written there, with the temporary files.
    """
    folder = root() / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        folder = Path(tempfile.gettempdir()) / "modeldyno-logs"
        folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("*.log"), key=_changed)[: -_KEPT + 1]:
        with suppress(OSError):
            old.unlink()
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return folder / f"{name}-{stamp}-{os.getpid()}-{next(_COUNT)}.log"


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0

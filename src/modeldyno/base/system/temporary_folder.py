"""Temporary folders that say whose they are: what a killed process left is removed by the next one."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from modeldyno.base.system.process_tree import start_ticks

_NAME = re.compile(r"modeldyno-[a-z]+-(\d+)-(\d+)-(\d+)-\w+")
"""What it is for; the namespace of process ids, the id and the start of its process."""


def own_folder(purpose: str) -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder of this process, which is removed when its context or the process ends.

    Those of processes that were killed are removed now.

    Args:
        purpose: a word for its name.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    pid = os.getpid()
    prefix = f"modeldyno-{purpose}-{_namespace()}-{pid}-{start_ticks(pid)}-"
    return tempfile.TemporaryDirectory(prefix=prefix)


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders whose process is gone; of other namespaces, such as containers, nothing is known."""
    with suppress(OSError):
        for folder in parent.iterdir():
            match = _NAME.fullmatch(folder.name)
            if match is None:
                continue
            namespace, pid, start = map(int, match.groups())
            if namespace == _namespace() and start_ticks(pid) != start:
                shutil.rmtree(folder, ignore_errors=True)


def _namespace() -> int:
    with suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino
    return 0

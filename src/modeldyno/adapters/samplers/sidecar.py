"""Starts and controls a side process.

It runs a module that reads commands from standard input: ``mark STAGE``, answered by a line, and ``stop``,
answered by a line of JSON, after which the process ends.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIMEOUT = 10.0
"""Seconds to wait for an answer or for the process to end."""


def launch(module: str, arguments: Sequence[object]) -> subprocess.Popen[bytes] | None:
    """Start a side process; None if no process can be started."""
    command = [sys.executable, "-W", "ignore", "-m", module, *map(str, arguments)]
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    except OSError:
        return None


def pids(side: subprocess.Popen[bytes] | None) -> tuple[int, ...]:
    """Return its pid, if it runs."""
    return () if side is None else (side.pid,)


def mark(side: subprocess.Popen[bytes] | None, stage: str) -> None:
    """Send it the mark of a stage and wait for its answer."""
    if side is None:
        return
    assert side.stdin is not None
    assert side.stdout is not None
    with suppress(OSError):
        side.stdin.write(f"mark {stage}\n".encode())
        ready, _, _ = select.select([side.stdout], [], [], _TIMEOUT)
        if ready:
            side.stdout.readline()


def end_and_read(side: subprocess.Popen[bytes] | None) -> Any:
    """End it and return its readings; None if it failed."""
    if side is None:
        return None
    try:
        output, _ = side.communicate(b"stop\n", timeout=_TIMEOUT)
        return json.loads(output.rpartition(b"\n")[2])  # an answer that came too late stands before it
    except (subprocess.TimeoutExpired, ValueError, OSError):
        side.kill()
        side.communicate()
        return None

"""Starts and controls a side process.

It runs a module that reads commands from standard input: ``mark STAGE``, answered by a line, and ``stop``,
answered by a line of JSON, after which the process ends.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Measurement

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SideWatch:
    """A running side process, or none, and what its readings mean."""

    side: subprocess.Popen[bytes] | None
    judge: Callable[[Any], Iterator[Measurement | Doubt]]
    """Yields what the readings say; they are None if the process failed."""

    def mark(self, stage: str) -> None:
        """Begin a stage; return when the side process has taken its first sample."""
        if self.side is None:
            return
        assert self.side.stdin is not None
        assert self.side.stdout is not None
        with suppress(OSError):
            self.side.stdin.write(f"mark {stage}\n".encode())
            ready, _, _ = select.select([self.side.stdout], [], [], _TIMEOUT)
            if ready:
                self.side.stdout.readline()

    @property
    def pids(self) -> tuple[int, ...]:
        """The side process, if it runs."""
        return () if self.side is None else (self.side.pid,)

    def stop(self) -> Iterator[Measurement | Doubt]:
        """End the side process and yield what it measured."""
        yield from self.judge(None if self.side is None else _end_and_read(self.side))


def _end_and_read(side: subprocess.Popen[bytes]) -> Any:
    try:
        output, _ = side.communicate(b"stop\n", timeout=_TIMEOUT)
        return json.loads(output.rpartition(b"\n")[2])  # an answer that came too late stands before it
    except (subprocess.TimeoutExpired, ValueError, OSError):
        side.kill()
        side.communicate()
        return None

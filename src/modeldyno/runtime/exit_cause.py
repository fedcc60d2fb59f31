"""Why a child ended, told no more surely than what was seen allows."""

from __future__ import annotations

import os
import resource
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from modeldyno.core.result.result import FailureKind
from modeldyno.core.stats.units import BYTES, format_quantity
from modeldyno.environment import machine

_CRASHES = {
    signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS,
    signal.SIGTRAP,
}  # fmt: skip
"""Signals that a process brings upon itself."""
_NEAR = 0.8
"""Share of the memory limit from which on want of memory is likely."""
UNTOLD = 121
"""Exit code of a child that can tell nothing any more."""
_TICK = os.sysconf("SC_CLK_TCK")
_SPENT = 0.7
"""Share of its limit of processor time that a process has used which is killed for that: it is looked at now
and then only."""


@dataclass(slots=True, kw_only=True)
class Witness:
    """What is noted of a child while it lives, to say why it was killed."""

    limit: int
    """Bytes that it may take."""
    kills: int | None
    """Processes that the kernel had killed for want of memory by its begin; None where it does not tell."""
    largest: int = 0
    """Bytes: the largest size that was seen."""
    processor_time: float = 0.0
    """Seconds."""
    processor_limit: float | None = None
    """Seconds that it is allowed; None for no limit."""

    @classmethod
    def begin(cls, limit: int) -> Witness:
        """Note what there was before."""
        return cls(limit=limit, kills=machine.memory_kills())

    def note(self, pid: int, size: int) -> None:
        """Note the size of the whole family, and what the process has used of its processor time."""
        self.largest = max(self.largest, size)
        with suppress(OSError, ValueError, IndexError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_CPU)
            self.processor_limit = None if hard == resource.RLIM_INFINITY else float(hard)
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            self.processor_time = sum(map(int, fields[11:13])) / _TICK

    def outcome(self, code: int) -> tuple[FailureKind, str]:
        """Say how a process ended whose code this is, as Popen gives it."""
        if code == UNTOLD:
            return FailureKind.CRASH, (
                "it changed what Python itself needs, such as builtins or sys.modules, and nothing "
                "more could be told of it"
            )
        if code >= 0:
            return FailureKind.EXIT, f"it ended the process with exit code {code}"
        name = _signal_name(-code)
        if -code in _CRASHES:
            return FailureKind.CRASH, f"it crashed ({name})"
        if -code == signal.SIGXCPU or (-code == signal.SIGKILL and self._used_up()):
            return FailureKind.KILLED, f"it used up its limit of processor time ({name}; see `ulimit -t`)"
        if -code == signal.SIGKILL:
            return self._killed()
        return FailureKind.KILLED, f"a signal from elsewhere ended it ({name})"

    def _used_up(self) -> bool:
        return self.processor_limit is not None and self.processor_time > _SPENT * self.processor_limit

    def _killed(self) -> tuple[FailureKind, str]:
        now = machine.memory_kills()
        if self.kills is not None and now is not None:
            if now > self.kills:
                return FailureKind.OOM, "the kernel killed it for want of memory (SIGKILL)"
        elif self.largest > _NEAR * self.limit:
            seen, limit = (format_quantity(size, BYTES) for size in (self.largest, self.limit))
            return FailureKind.OOM, (
                f"it was killed (SIGKILL) when it took {seen} of {limit}, most likely for want of memory"
            )
        return FailureKind.KILLED, (
            "something else killed it (SIGKILL), and not for want of memory, as far as can be seen"
        )


def too_large(size: int, limit: int, *, given: bool) -> tuple[FailureKind, str]:
    """Say that it took more memory than it may; the limit was given, or is what was free."""
    whence = "" if given else ", which is what was free when it started, less a reserve"
    return FailureKind.OOM, (
        f"it took {format_quantity(size, BYTES)} of memory, more than the limit of "
        f"{format_quantity(limit, BYTES)}{whence}; raise it with --memory-limit"
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

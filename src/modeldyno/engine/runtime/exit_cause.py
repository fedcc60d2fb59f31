"""Explain why a child process ended, without claiming more than was observed."""

from __future__ import annotations

import os
import resource
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from modeldyno.base.result.result import FailureKind
from modeldyno.base.stats.units import BYTES, format_quantity
from modeldyno.engine.environment import machine

_CRASHES = {
    signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS,
    signal.SIGTRAP,
}  # fmt: skip
"""Signals that a process causes itself."""
_NEAR_LIMIT = 0.8
"""Share of the memory limit above which running out of memory is likely."""
UNTOLD = 121
"""Exit code of a child that can no longer report anything."""
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_CPU_LIMIT_SHARE = 0.7
"""Share of its CPU time limit above which a kill is attributed to that limit: usage is sampled only now and
then."""


@dataclass(slots=True, kw_only=True)
class ExitObserver:
    """Observations of a running child, from which to explain why it was killed."""

    limit: int
    """Bytes it may use."""
    kills: int | None
    """Number of out-of-memory kills by the kernel before it started; None where unknown."""
    largest: int = 0
    """Largest observed size in bytes."""
    processor_time: float = 0.0
    """Seconds."""
    processor_limit: float | None = None
    """CPU seconds it may use; None for no limit."""

    @classmethod
    def begin(cls, limit: int) -> ExitObserver:
        """Start observing a child."""
        return cls(limit=limit, kills=machine.memory_kills())

    def note(self, pid: int, size: int) -> None:
        """Record the size of the whole process tree, and the CPU time the process has used."""
        self.largest = max(self.largest, size)
        with suppress(OSError, ValueError, IndexError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_CPU)
            self.processor_limit = None if hard == resource.RLIM_INFINITY else float(hard)
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            self.processor_time = sum(map(int, fields[11:13])) / _CLOCK_TICKS

    def outcome(self, code: int) -> tuple[FailureKind, str]:
        """Describe how a process ended, from its return code as Popen gives it."""
        if code == UNTOLD:
            return FailureKind.CRASH, (
                "it changed what Python itself needs, such as builtins or sys.modules, so that nothing "
                "more could be reported"
            )
        if code >= 0:
            return FailureKind.EXIT, f"it ended the process with exit code {code}"
        name = _signal_name(-code)
        if -code in _CRASHES:
            return FailureKind.CRASH, f"it crashed ({name})"
        if -code == signal.SIGXCPU or (-code == signal.SIGKILL and self._cpu_time_exhausted()):
            return FailureKind.KILLED, f"it used up its CPU time limit ({name}; see `ulimit -t`)"
        if -code == signal.SIGKILL:
            return self._explain_sigkill()
        return FailureKind.KILLED, f"a signal from another process ended it ({name})"

    def _cpu_time_exhausted(self) -> bool:
        return (
            self.processor_limit is not None and self.processor_time > _CPU_LIMIT_SHARE * self.processor_limit
        )

    def _explain_sigkill(self) -> tuple[FailureKind, str]:
        now = machine.memory_kills()
        if self.kills is not None and now is not None:
            if now > self.kills:
                return FailureKind.OOM, "the kernel killed it because memory ran out (SIGKILL)"
        elif self.largest > _NEAR_LIMIT * self.limit:
            used, limit = (format_quantity(size, BYTES) for size in (self.largest, self.limit))
            return FailureKind.OOM, (
                f"it was killed (SIGKILL) when it used {used} of {limit}, most likely because memory ran out"
            )
        return FailureKind.KILLED, ("another process killed it (SIGKILL); no lack of memory was observed")


def describe_over_limit(
    size: int, limit: int, *, set_by_user: bool, option: str = ""
) -> tuple[FailureKind, str]:
    """Describe a child over its memory limit, which was given or was the free memory; `option` sets it."""
    origin = "" if set_by_user else " (the memory free when it started, less a reserve)"
    advice = f"; raise it with {option}" if option else ""
    return FailureKind.OOM, (
        f"it used {format_quantity(size, BYTES)} of memory, more than the limit of "
        f"{format_quantity(limit, BYTES)}{origin}{advice}"
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""Start a process that loads a model, watch what it takes, and end it with everything that it started.

No other module starts one: whatever a model leaves behind, prints or takes is dealt with here. Between the
two runs a reaper process, which ends everything the model started. It leads a session of its own, and so does
the child: a terminal's Ctrl-C reaches the parent only. The child gets lines on its standard input, and writes
lines to a pipe; of what the model prints, the end is kept.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.clock import monotonic
from modeldyno.base.result.result import FailureKind
from modeldyno.base.system.process_tree import (
    is_stopped,
    list_process_tree,
    resident_size,
    shared_memory_in_use,
    start_ticks,
    tree_memory,
)
from modeldyno.engine.environment import machine
from modeldyno.engine.runtime.exit_cause import ExitObserver, describe_over_limit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

POLL_INTERVAL = 0.1
"""Seconds between two checks of a silent child."""
LOADING_TIME = 600.0
"""Seconds that loading a model may take unless the user says otherwise."""
_READ_SIZE = 1 << 16
_LOG_TAIL = 4000
"""Bytes kept from the end of the child's log."""
_LONGEST_LINE = 1 << 28
"""Bytes of a line: what is longer is no answer of ours."""
_LAST_READS = 32
"""Reads of what is left in a pipe once its writers have ended, which is more than a pipe holds."""
_EXIT_TIME, _CLOSED_TIME = 5.0, 1.0
"""Seconds that a child has to exit after its answer, and after it has closed its pipe without one."""
_REAPER_TIMEOUT = 30.0
"""Seconds the reaper may take to end what the child left behind, including servers and their files."""
_PIPE_CLOSED = "it closed the pipe for its measurements, or became another program, and went on"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLimits:
    """What a child may take."""

    seconds: float = LOADING_TIME
    memory: int | None = None
    """Bytes of all its processes; None for what is free when it gets to work, less a reserve."""
    memory_option: str = ""
    """The option that sets `memory`, if there is one."""
    side_count: int = 1
    """Children that share the free memory, this one included."""


@dataclass(slots=True, kw_only=True)
class SupervisedChild:
    """A process that runs a module of ours, which loads a model."""

    process: subprocess.Popen[bytes]
    """The reaper process, which exits the way the child does."""
    pipe: int
    log: int
    clock: Callable[[], float]
    """Clock whose seconds count towards the time limit."""
    family: dict[int, int] = field(default_factory=dict)
    """Every process seen in the child's tree, with its start time."""
    tail: bytearray = field(default_factory=bytearray)
    """The end of what it printed."""
    ended: tuple[FailureKind, str] | None = None
    """Why the parent ended it, if it did for a reason of the child's."""
    observer: ExitObserver | None = None
    """What was observed of it since it got its last order."""
    _rest: bytearray = field(default_factory=bytearray)

    @classmethod
    def start(
        cls,
        module: str,
        *arguments: str,
        pass_fds: Sequence[int] = (),
        clock: Callable[[], float] = monotonic,
        leaves_servers: bool = False,
    ) -> SupervisedChild:
        """Start a module with the descriptor of its pipe and further arguments.

        With `leaves_servers`, the servers that it has handed over stay when it has ended well.
        """
        read_end, write_end = os.pipe()
        log_read, log_write = os.pipe()
        reaper = [sys.executable, "-I", "-S", str(Path(__file__).with_name("reaper.py")), str(os.getpid())]
        options = ["--leave-servers"] if leaves_servers else []
        child = [sys.executable, "-X", "faulthandler", "-m", module, str(write_end), *arguments]
        with ExitStack() as failed:
            for end in (read_end, log_read):
                failed.callback(os.close, end)
            try:
                # Without site-packages the reaper starts in a few milliseconds.
                process = subprocess.Popen(
                    [*reaper, *options, *child],
                    stdin=subprocess.PIPE,
                    stdout=log_write,
                    stderr=log_write,
                    pass_fds=(write_end, *pass_fds),
                    start_new_session=True,
                )
            finally:
                os.close(write_end)
                os.close(log_write)
            failed.pop_all()
        return cls(process=process, pipe=read_end, log=log_read, clock=clock)

    def send(self, line: bytes, *, last: bool = False) -> None:
        """Write a line to its standard input, which is closed after the last."""
        assert self.process.stdin is not None
        self.tail.clear()
        with suppress(BrokenPipeError):
            self.process.stdin.write(line + b"\n")
            self.process.stdin.close() if last else self.process.stdin.flush()

    def close_input(self) -> None:
        """Tell it that there are no more lines."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def interrupt(self) -> None:
        """Ask it to finish what it does."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)

    @property
    def has_exited(self) -> bool:
        """Whether it has ended, and all that it started."""
        return self.process.poll() is not None

    def lines(self, limits: ChildLimits) -> Iterator[bytes | None]:
        """Yield each line that it writes, and None ten times a second, until it ends or breaks a limit.

        A limit that it broke is in `ended`.
        """
        held = tree_memory(self._update_family())  # a warm child's memory is available to it
        memory = limits.memory or machine.spare_memory(held) // limits.side_count
        self.observer, shared_before = ExitObserver.begin(memory), shared_memory_in_use()
        started, checked_at = self.clock(), monotonic()
        poll = select.poll()
        poll.register(self.pipe, select.POLLIN)
        poll.register(self.log, select.POLLIN)
        while self.ended is None:
            ready = dict(poll.poll(POLL_INTERVAL * 1000))
            if self.log in ready and not self._read_log():
                poll.unregister(self.log)
            if self.pipe in ready:
                data = os.read(self.pipe, _READ_SIZE)
                yield from self._complete_lines(data)
                if not data:
                    return
            # A fork of the model may hold the pipe open, so neither its end nor silence is waited for.
            elif not ready and self.has_exited:
                return
            yield None
            if self.clock() - started > limits.seconds:
                state = "stopped by a signal" if any(map(is_stopped, self.family)) else "running"
                self.ended = FailureKind.TIMEOUT, f"it was still {state} after {limits.seconds:g} s"
            elif len(self._rest) > _LONGEST_LINE:
                self.ended = FailureKind.CRASH, "it wrote without end where its answer was expected"
            elif monotonic() - checked_at >= POLL_INTERVAL:
                checked_at = monotonic()
                if (size := self._family_bytes(memory, shared_before)) > memory:
                    self.ended = describe_over_limit(
                        size, memory, set_by_user=limits.memory is not None, option=limits.memory_option
                    )

    def end(self, *, answered: bool, patience: float | None = None) -> None:
        """End everything the child started, and collect the rest of its log.

        Args:
            answered: whether it has said all that it was to say, so that it has only to exit.
            patience: seconds that it has to exit by itself; 0 to end it at once.
        """
        self._update_family()
        patience = (_EXIT_TIME if answered else _CLOSED_TIME) if patience is None else patience
        if patience and self.ended is None and not self._exits_within(patience) and not answered:
            self.ended = FailureKind.CRASH, _PIPE_CLOSED
        self.process.terminate()  # of one that has exited, nothing
        try:
            self.process.wait(_REAPER_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.returncode < 0:  # the reaper itself may have been killed
            self._kill_family()
        os.set_blocking(self.log, False)
        with suppress(BlockingIOError):
            for _ in range(_LAST_READS):
                if not self._read_log():
                    break
        os.close(self.pipe)
        os.close(self.log)
        self.close_input()

    def outcome(self) -> tuple[FailureKind, str]:
        """Describe how it ended, or which limit it broke."""
        assert self.observer is not None
        return self.ended or self.observer.outcome(self.process.returncode)

    @property
    def printed(self) -> str:
        """The end of what it printed since it got its last order."""
        return self.tail.decode(errors="replace")

    def _exits_within(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _kill_family(self) -> None:
        for pid, born in self.family.items():
            if born and start_ticks(pid) == born:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def _update_family(self) -> list[int]:
        """List the processes of the child's tree, the child first, and remember them."""
        pids = list_process_tree(self.process.pid)[1:]
        for pid in pids:
            if pid not in self.family:
                self.family[pid] = start_ticks(pid)
        return pids

    def _family_bytes(self, limit: int, shared_before: int) -> int:
        """Return the bytes of the whole tree, roughly as long as it is surely below the limit.

        Exactly, pages shared by forks count once, and files without a disk count even if they are not mapped.
        """
        family = self._update_family()
        size = sum(map(resident_size, family))
        if size + max(0, shared_memory_in_use() - shared_before) > limit:
            size = tree_memory(family)
        if family and self.observer is not None:
            self.observer.note(family[0], size)
        return size

    def _read_log(self) -> bool:
        data = os.read(self.log, _READ_SIZE)
        self.tail += data
        del self.tail[:-_LOG_TAIL]
        return bool(data)

    def _complete_lines(self, data: bytes) -> Iterator[bytes]:
        self._rest += data
        if b"\n" in data:
            *lines, rest = self._rest.split(b"\n")
            self._rest = bytearray(rest)
            yield from map(bytes, lines)

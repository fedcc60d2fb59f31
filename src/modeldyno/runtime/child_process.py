"""Run each Job in a child process, with a time limit, a memory watchdog and complete clean-up.

The parent sleeps in `poll` and wakes when the child writes, or ten times a second to check the
clock and the child's memory. Between the two runs a reaper process, which ends everything the model started.
It leads a session of its own, and so does the child: a terminal's Ctrl-C reaches the parent only.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sized
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno import codec, errors
from modeldyno.core.metrics.measurement import Distribution, Measurement
from modeldyno.core.result.result import (
    Ended,
    Event,
    Failure,
    FailureKind,
    Progressed,
    Refused,
    Result,
    SecondPassed,
    fold,
)
from modeldyno.environment import machine
from modeldyno.environment.process_tree import (
    is_stopped,
    list_process_tree,
    resident_size,
    start_ticks,
    tree_memory,
)
from modeldyno.errors import ModelDynoError, ProbeUnsupported, RequestError, UnreadableDocument
from modeldyno.runtime.events import INTERRUPTED, empty_result
from modeldyno.runtime.exit_cause import ExitObserver, describe_over_limit
from modeldyno.runtime.interrupts import counted_interrupts, sigterm_received
from modeldyno.runtime.measured_region import RegionGate
from modeldyno.runtime.time_limit import TimeLimit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.spec.job import Job
    from modeldyno.interfaces.executor import Executor
    from modeldyno.runtime.measured_region import Region
    from modeldyno.runtime.turn_token import TurnGranter

_MODULE = "modeldyno.runtime.worker"
_POLL_INTERVAL = 0.1
"""Seconds between two checks of a silent child."""
_READ_SIZE = 1 << 16
_LOG_TAIL = 4000
"""Bytes kept from the end of the child's log."""
_CLOSE_TIMEOUT = 60.0
"""Seconds a warm child may take to close what it kept open, such as a server that drains."""
_REAPER_TIMEOUT = 30.0
"""Seconds the reaper may take to end what the child left behind, including servers and their files."""
_SIGTERM_GRACE = 3.0
"""Seconds after SIGTERM in which a child may finish by itself: SIGKILL may follow soon."""
_PIPE_CLOSED = "it closed the pipe for its measurements, or became another program, and went on"
_LOADING_TIME = 600.0
"""Seconds for loading and first calls, on top of the measuring time, when the Plan gives no timeout."""


@contextmanager
def subprocess_executor(
    interrupts: Sized | None = None, guard: Region | None = None, limit: TimeLimit | None = None
) -> Iterator[Executor]:
    """Run each Job in a child process of its own.

    While it is open, the first Ctrl-C lets the child finish its current measurement, and the second
    ends it; either way the Result has all that was measured, and the doubt ``interrupted``. A caller that
    counts interruptions itself passes its own `interrupts`. With a `guard`, the child measures only while the
    parent is within it; what the guard raises ends the child, and is raised. With a `limit`, a child measures
    less to keep it, and is ended soon after it; if nothing was measured by then, that raises OutOfTime.
    """
    with counted_interrupts() if interrupts is None else nullcontext(interrupts) as counter:

        def execute(job: Job, *, watch: Callable[[Event], None] = lambda _event: None) -> Result:
            with nullcontext() if guard is None else RegionGate.opened(guard) as gate:
                child = ChildProcess.start(gate=gate, limit=limit)
                try:
                    child.run_job(job, watch, counter)
                finally:
                    child.end()
                return child.result(job, counter)

        yield execute


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    seconds: float
    memory: int
    set_by_user: bool
    """Whether the Plan sets the memory limit."""


def _limits(job: Job, side_count: int, held: int) -> _Limits:
    """Limit a child that runs interleaved with others to its share of the free memory.

    Bytes that it holds already, as a warm child does after its first Job, count as available to it.
    """
    plan = job.plan
    return _Limits(
        seconds=plan.timeout or _LOADING_TIME + 2 * plan.max_time * len(job.probes),
        memory=plan.memory_limit or machine.spare_memory(held) // side_count,
        set_by_user=plan.memory_limit is not None,
    )


@dataclass(slots=True, kw_only=True)
class ChildProcess:
    """One child process, the events received from it, and why the parent ended it, if it did."""

    process: subprocess.Popen[bytes]
    """The reaper process, which exits the way the child does."""
    pipe: int
    log: int
    warm: bool = False
    """Whether it waits for more Jobs after the first."""
    clock: Callable[[], float] = time.monotonic
    """Clock whose seconds count towards the time limit."""
    watch: Callable[[Event], None] = field(default=lambda _event: None)
    events: list[Event] = field(default_factory=list)
    stage: str = ""
    """What the child does at present; empty before its first event."""
    family: dict[int, int] = field(default_factory=dict)
    """Every process seen in the child's tree, with its start time."""
    rest: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    ended: tuple[FailureKind, str] | None = None
    witness: ExitObserver | None = None
    """What was observed of it since it got its last Job."""
    stopped: bool = False
    """Whether the user ended it."""
    gate: RegionGate | None = None
    """What it asks before it measures."""
    limit: TimeLimit | None = None
    """The time limit of the command that started it."""
    out_of_time: bool = False
    """Whether it was ended because that was exceeded."""

    @classmethod
    def start(
        cls,
        *,
        warm: bool = False,
        seat: TurnGranter | None = None,
        gate: RegionGate | None = None,
        limit: TimeLimit | None = None,
    ) -> ChildProcess:
        """Start a child that waits for a Job; a warm child waits for another one after each.

        A child with a `seat` works only while it holds the turn token; one with a `gate` asks it before it
        measures; one with a `limit` measures so little that it keeps it, and is ended soon after.
        """
        read_end, write_end = os.pipe()
        log_read, log_write = os.pipe()
        options = ["--warm"] if warm else []
        token_fds = () if seat is None else seat.theirs
        options += ["--baton", *map(str, token_fds)] if token_fds else []
        gate_fds = () if gate is None else (gate.theirs,)
        options += ["--region", str(gate.theirs)] if gate is not None else []
        options += ["--limit", *limit.arguments()] if limit is not None else []
        with ExitStack() as failed:
            for end in (read_end, log_read):
                failed.callback(os.close, end)
            try:
                process = subprocess.Popen(
                    [
                        *_reaper_command(),
                        sys.executable,
                        "-X",
                        "faulthandler",
                        "-m",
                        _MODULE,
                        str(write_end),
                        *options,
                    ],
                    stdin=subprocess.PIPE,
                    stdout=log_write,
                    stderr=log_write,
                    pass_fds=(write_end, *token_fds, *gate_fds),
                    start_new_session=True,
                )
            finally:
                os.close(write_end)
                os.close(log_write)
            failed.pop_all()
        if seat is None:
            return cls(process=process, pipe=read_end, log=log_read, warm=warm, gate=gate, limit=limit)
        seat.taken()
        return cls(process=process, pipe=read_end, log=log_read, warm=warm, clock=seat.clock, limit=limit)

    def run_job(
        self, job: Job, watch: Callable[[Event], None], interrupts: Sized, *, side_count: int = 1
    ) -> None:
        """Send it a Job and collect its events until the Job ends or the child is ended.

        Args:
            job: what to run.
            watch: called with each event.
            interrupts: grows with each interruption.
            side_count: number of children that take turns, this one included.
        """
        self.watch, self.events, self.stage = watch, [], ""
        self.tail.clear()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(codec.encode_job(job) + b"\n")
            self.process.stdin.flush() if self.warm else self.process.stdin.close()
        limits = _limits(job, side_count, held=tree_memory(self._update_family()))
        self.witness = ExitObserver.begin(limits.memory)
        try:
            self.collect_events(limits, interrupts)
        except BaseException:
            self.stopped = True  # the parent gave up waiting for it
            raise

    def close_session(self) -> None:
        """Make a warm child close what it keeps open before the next Job."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(b"\n")

    def result(self, job: Job, interrupts: Sized) -> Result:
        """Return the Result of the Job; raise the RequestError that the child found, if any."""
        self.raise_refusal()
        if self.out_of_time:
            assert self.limit is not None
            if not any(map(_is_timed, self.events)):
                raise self.limit.exceeded(self.stage)
            self.events.append(self.limit.left_out((f"all of '{self.stage}'",)))
        failure = self.failure()
        events = [*self.events, *([] if failure is None else [failure])]
        if interrupts:
            events.append(INTERRUPTED)
        return fold(empty_result(job), events)

    def collect_events(self, limits: _Limits, interrupts: Sized) -> None:
        """Collect the child's events until it ends, breaks a limit, or is interrupted twice."""
        started = self.clock()
        poll = select.poll()
        poll.register(self.pipe, select.POLLIN)
        poll.register(self.log, select.POLLIN)
        handled, signalled_at = 0, None
        checked_at = time.monotonic()
        while True:
            ready = dict(poll.poll(_POLL_INTERVAL * 1000))
            if self.log in ready and not self._read_log():
                poll.unregister(self.log)
            if self.pipe in ready and not self._read_events():
                break
            # A fork of the model may hold the pipe open, so neither its end nor silence is waited for.
            if self.has_reported_end() or (not ready and self.process.poll() is not None):
                break
            now = time.monotonic()
            if len(interrupts) > 1 or (
                signalled_at is not None and now - signalled_at > _SIGTERM_GRACE and sigterm_received()
            ):
                self.stopped = True
                break
            if (
                len(interrupts) > handled and self.stage
            ):  # before its first event the signal would kill the child
                handled, signalled_at = len(interrupts), now
                self.watch(Progressed(stage="finishing; Ctrl-C again stops now"))
                with suppress(ProcessLookupError):
                    self.process.send_signal(signal.SIGINT)
            if self._exceeds_time(limits, started):
                break
            if now - checked_at >= _POLL_INTERVAL:
                checked_at = now
                if (size := self._family_bytes(limits.memory)) > limits.memory:
                    self.ended = describe_over_limit(size, limits.memory, set_by_user=limits.set_by_user)
                    break

    def _exceeds_time(self, limits: _Limits, started: float) -> bool:
        """Return whether it is to be ended because of its own time limit, or of that of the command."""
        if self.limit is not None and self.limit.is_exhausted:
            self.stopped = self.out_of_time = True
        elif self.clock() - started > limits.seconds:
            state = "stopped by a signal" if any(map(is_stopped, self.family)) else "running"
            self.ended = FailureKind.TIMEOUT, f"it was still {state} after {limits.seconds:g} s"
        return self.stopped or self.ended is not None

    def end(self) -> None:
        """End everything the child started, and collect the rest of its log."""
        self._update_family()
        if self.warm and self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()  # no more Jobs: the child closes what it kept open
        if self.ended is not None or self.stopped:
            self.process.terminate()
        elif not self._wait_for_exit():
            if not self.has_reported_end():
                self.ended = FailureKind.CRASH, _PIPE_CLOSED
            self.process.terminate()
        try:
            self.process.wait(_REAPER_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid, born in self.family.items():  # if the reaper itself was killed
            if born and start_ticks(pid) == born:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        os.set_blocking(self.log, False)
        with suppress(BlockingIOError):
            while self._read_log():
                pass
        os.close(self.pipe)
        os.close(self.log)

    def raise_refusal(self) -> None:
        """Raise the RequestError that the child reported, if any."""
        for event in self.events:
            if isinstance(event, Refused):
                raise _refusal(event)

    def failure(self) -> Failure | None:
        """Describe how the child failed; None if it finished or was interrupted."""
        if self.stopped or any(isinstance(event, Ended) for event in self.events):
            return None
        assert self.witness is not None
        kind, message = self.ended or self.witness.outcome(self.process.returncode)
        log = self.tail.decode(errors="replace")
        return Failure(where=self.stage or "start", kind=kind, message=message, log=log)

    def _update_family(self) -> list[int]:
        """List the processes of the child's tree, the child first, and remember them."""
        pids = list_process_tree(self.process.pid)[1:]
        for pid in pids:
            if pid not in self.family:
                self.family[pid] = start_ticks(pid)
        return pids

    def _family_bytes(self, limit: int) -> int:
        """Return the bytes of the whole tree; pages shared by forks count once (expensive, so done late)."""
        family = self._update_family()
        size = sum(map(resident_size, family))
        size = tree_memory(family) if size > limit else size
        if family and self.witness is not None:
            self.witness.note(family[0], size)
        return size

    def _wait_for_exit(self) -> bool:
        """Wait a moment for a child that has closed its pipe to exit; return whether it did."""
        patience = _CLOSE_TIMEOUT if self.warm else 5 if self.has_reported_end() else 1
        try:
            self.process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            return False
        return True

    def has_reported_end(self) -> bool:
        """Return whether the child reported the end of the Job."""
        return any(isinstance(event, Ended | Refused) for event in self.events)

    def _read_log(self) -> bool:
        data = os.read(self.log, _READ_SIZE)
        self.tail += data
        del self.tail[:-_LOG_TAIL]
        return bool(data)

    def _read_events(self) -> bool:
        data = os.read(self.pipe, _READ_SIZE)
        self.rest += data
        if b"\n" in data:
            *lines, rest = self.rest.split(b"\n")
            self.rest = bytearray(rest)
            for line in lines:
                self._read_event(bytes(line))
        return bool(data)

    def _read_event(self, line: bytes) -> None:
        try:
            event = codec.decode_event(line)
        except UnreadableDocument:
            return  # the writer died in the middle of it, which is reported elsewhere
        if isinstance(event, Progressed):
            self.stage = event.stage
        elif not isinstance(event, SecondPassed):
            self.events.append(event)
        self.watch(event)
        if self.gate is not None:
            self.gate.follow(event)


def _is_timed(event: Event) -> bool:
    """Return whether an event has times of calls."""
    return isinstance(event, Measurement) and isinstance(event.value, Distribution)


def _reaper_command() -> list[str]:
    """Return the command prefix of the reaper; without site-packages it starts in a few milliseconds."""
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("reaper.py")), str(os.getpid())]


def _refusal(event: Refused) -> ModelDynoError:
    """Return the error that a child reported, whose traceback a debugger shows with that of this process."""
    kind = getattr(errors, event.error, RequestError)
    if event.probe:
        error: ModelDynoError = ProbeUnsupported(event.message, event.probe)
    else:
        error = kind(event.message) if issubclass(kind, ModelDynoError) else RequestError(event.message)
    if event.trace:
        error.add_note(f"In the child process:\n{event.trace}")
    return error

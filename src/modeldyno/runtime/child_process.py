"""A child process for each Job: with a time limit, a memory watchdog, and nothing left behind.

The parent sleeps in `poll` and wakes when the child writes, or ten times a second to look at the
clock and the child's memory. Between the two stands a keeper, which ends everything that the model started.
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
from modeldyno.core.result.result import (
    Doubted,
    Ended,
    Event,
    Failed,
    Failure,
    FailureKind,
    Progressed,
    Refused,
    Result,
    fold,
)
from modeldyno.environment import machine
from modeldyno.environment.process_tree import birth, family_size, resident_size, tree
from modeldyno.errors import ModelDynoError, RequestError, UnreadableDocument
from modeldyno.runtime.engine import INTERRUPTED, empty
from modeldyno.runtime.exit_cause import Witness, too_large
from modeldyno.runtime.interrupts import counted_interrupts, told_to_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.spec.job import Job
    from modeldyno.interfaces import Executor
    from modeldyno.runtime.turn_token import Seat

_MODULE = "modeldyno.runtime.worker"
_PAUSE = 0.1
"""Seconds between two looks at a silent child."""
_CHUNK = 1 << 16
_TAIL = 4000
"""Bytes of the end of the child's log that are kept."""
_RESERVE = 0.05
"""Share of the machine's memory that a child has to leave free when the Plan does not say."""
_CLOSING = 60.0
"""Seconds that a warm child may take to close what it kept open, such as a server that drains."""
_KEEPING = 30.0
"""Seconds that the keeper may take to end what the child left behind, servers and their files among it."""
_STOPPING = 3.0
"""Seconds after SIGTERM in which a child may come to its own end: who sent it may send SIGKILL soon."""
_DEAF = "it closed the pipe through which it tells what it measures, or became another program, and went on"
_LOADING_TIME = 600.0
"""Seconds for loading and first calls, beyond what measuring may take, when the Plan does not say."""


@contextmanager
def isolated(interrupts: Sized | None = None) -> Iterator[Executor]:
    """Run each Job in a child process of its own.

    While it is open, the first Ctrl-C lets the child finish its current measurement, and the second
    ends it; either way the Result has all that was measured, and the doubt ``interrupted``. Whoever
    counts them already gives what has grown by each.
    """
    with counted_interrupts() if interrupts is None else nullcontext(interrupts) as counted:

        def execute(job: Job, *, watch: Callable[[Event], None] = lambda _event: None) -> Result:
            return _execute(job, watch, counted)

        yield execute


def _execute(job: Job, watch: Callable[[Event], None], interrupts: Sized) -> Result:
    child = Child.start()
    try:
        child.carry_out(job, watch, interrupts)
    finally:
        child.end()
    return child.result(job, interrupts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    seconds: float
    memory: int
    given: bool
    """Whether the Plan says how much memory it may take."""


def _limits(job: Job, sides: int, held: int) -> _Limits:
    """Bound a child that lives beside others, which take turns, to its part of the memory that is free.

    The bytes that it holds already, as a warm one does after its first Job, are its own to use.
    """
    plan = job.plan
    free, reserve = machine.free_memory() + held, _RESERVE * machine.memory_limit()
    return _Limits(
        seconds=plan.timeout or _LOADING_TIME + 2 * plan.max_time * len(job.probes),
        memory=plan.memory_limit or int(max(0.0, free - reserve) / sides),
        given=plan.memory_limit is not None,
    )


@dataclass(slots=True, kw_only=True)
class Child:
    """One child process, the events that came from it, and why it was ended if it was."""

    process: subprocess.Popen[bytes]
    """Its keeper, which ends as the child does."""
    pipe: int
    log: int
    warm: bool = False
    """Whether it waits for more Jobs after one."""
    clock: Callable[[], float] = time.monotonic
    """Seconds that count towards its limit."""
    watch: Callable[[Event], None] = field(default=lambda _event: None)
    events: list[Event] = field(default_factory=list)
    stage: str = ""
    """What the child does at present; empty before its first word."""
    family: dict[int, int] = field(default_factory=dict)
    """Every process that was seen to come of the child, with its birth."""
    rest: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    ended: tuple[FailureKind, str] | None = None
    witness: Witness | None = None
    """What was noted of it since it got its last Job."""
    stopped: bool = False
    """Whether the user ended it."""

    @classmethod
    def start(cls, *, warm: bool = False, seat: Seat | None = None) -> Child:
        """Start a child that waits for a Job; a warm one waits for another after each.

        One with a seat works when it has the baton only.
        """
        read_end, write_end = os.pipe()
        log_read, log_write = os.pipe()
        options = ["--warm"] if warm else []
        ends = () if seat is None else seat.theirs
        options += ["--baton", *map(str, ends)] if ends else []
        with ExitStack() as failed:
            for end in (read_end, log_read):
                failed.callback(os.close, end)
            try:
                process = subprocess.Popen(
                    [
                        *_keeper(),
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
                    pass_fds=(write_end, *ends),
                    start_new_session=True,
                )
            finally:
                os.close(write_end)
                os.close(log_write)
            failed.pop_all()
        if seat is None:
            return cls(process=process, pipe=read_end, log=log_read, warm=warm)
        seat.taken()
        return cls(process=process, pipe=read_end, log=log_read, warm=warm, clock=seat.clock)

    def carry_out(
        self, job: Job, watch: Callable[[Event], None], interrupts: Sized, *, sides: int = 1
    ) -> None:
        """Hand it a Job, and take in what it says until it has ended it, or is ended itself.

        `sides` children take turns, this one among them.
        """
        self.watch, self.events, self.stage = watch, [], ""
        self.tail.clear()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(codec.encode_job(job) + b"\n")
            self.process.stdin.flush() if self.warm else self.process.stdin.close()
        limits = _limits(job, sides, held=family_size(self._meet_family()))
        self.witness = Witness.begin(limits.memory)
        try:
            self.follow(limits, interrupts)
        except BaseException:
            self.stopped = True  # nobody waits for it any more
            raise

    def renew(self) -> None:
        """Have a warm child close what it keeps open, before the next Job."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(b"\n")

    def result(self, job: Job, interrupts: Sized) -> Result:
        """Give what came of the Job; raise the wrong request that the child found in it."""
        self.refuse()
        failure = self.failure()
        events = [*self.events, *([] if failure is None else [Failed(failure=failure)])]
        if interrupts:
            events.append(Doubted(doubt=INTERRUPTED))
        return fold(empty(job), events)

    def follow(self, limits: _Limits, interrupts: Sized) -> None:
        """Take in what the child says until it ends, breaks a limit, or is interrupted twice."""
        begun = self.clock()
        poll = select.poll()
        poll.register(self.pipe, select.POLLIN)
        poll.register(self.log, select.POLLIN)
        told, asked = 0, None
        looked = time.monotonic()
        while True:
            ready = dict(poll.poll(_PAUSE * 1000))
            if self.log in ready and not self._take_log():
                poll.unregister(self.log)
            if self.pipe in ready and not self._take_events():
                break
            # What the model has forked may hold the pipe open: neither its end nor silence is waited for.
            if self.told_end() or (not ready and self.process.poll() is not None):
                break
            now = time.monotonic()
            if len(interrupts) > 1 or (asked is not None and now - asked > _STOPPING and told_to_end()):
                self.stopped = True
                break
            if len(interrupts) > told and self.stage:  # before its first word the child would die of it
                told, asked = len(interrupts), now
                self.watch(Progressed(stage="finishing; Ctrl-C again stops now"))
                with suppress(ProcessLookupError):
                    self.process.send_signal(signal.SIGINT)
            if self.clock() - begun > limits.seconds:
                self.ended = FailureKind.TIMEOUT, f"it was still running after {limits.seconds:g} s"
                break
            if now - looked >= _PAUSE:
                looked = now
                if (size := self._size(limits.memory)) > limits.memory:
                    self.ended = too_large(size, limits.memory, given=limits.given)
                    break

    def end(self) -> None:
        """End everything that the child started, and collect the rest of its log."""
        self._meet_family()
        if self.warm and self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()  # no more Jobs: it closes what it kept open
        if self.ended is not None or self.stopped:
            self.process.terminate()
        elif not self._finished():
            if not self.told_end():
                self.ended = FailureKind.CRASH, _DEAF
            self.process.terminate()
        try:
            self.process.wait(_KEEPING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid, born in self.family.items():  # if the keeper itself was killed
            if born and birth(pid) == born:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        os.set_blocking(self.log, False)
        with suppress(BlockingIOError):
            while self._take_log():
                pass
        os.close(self.pipe)
        os.close(self.log)

    def refuse(self) -> None:
        """Raise here the wrong request that the child found."""
        for event in self.events:
            if isinstance(event, Refused):
                kind = getattr(errors, event.error, RequestError)
                raise kind(event.message) if issubclass(kind, ModelDynoError) else RequestError(event.message)

    def failure(self) -> Failure | None:
        """Say how the child ended, unless it came to its own end or was interrupted."""
        if self.stopped or any(isinstance(event, Ended) for event in self.events):
            return None
        assert self.witness is not None
        kind, message = self.ended or self.witness.outcome(self.process.returncode)
        log = self.tail.decode(errors="replace")
        return Failure(where=self.stage or "start", kind=kind, message=message, log=log)

    def _meet_family(self) -> list[int]:
        """List the child and what came of it, the child first."""
        found = tree(self.process.pid)[1:]
        for pid in found:
            if pid not in self.family:
                self.family[pid] = birth(pid)
        return found

    def _size(self, limit: int) -> int:
        """Bytes of the whole tree; what forked processes share counts once, which is dear to find out."""
        family = self._meet_family()
        size = sum(map(resident_size, family))
        size = family_size(family) if size > limit else size
        if family and self.witness is not None:
            self.witness.note(family[0], size)
        return size

    def _finished(self) -> bool:
        """Give a child that has closed its pipe a moment to exit by itself."""
        patience = _CLOSING if self.warm else 5 if self.told_end() else 1
        try:
            self.process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            return False
        return True

    def told_end(self) -> bool:
        """Say whether the Job has come to its own end."""
        return any(isinstance(event, Ended | Refused) for event in self.events)

    def _take_log(self) -> bool:
        data = os.read(self.log, _CHUNK)
        self.tail += data
        del self.tail[:-_TAIL]
        return bool(data)

    def _take_events(self) -> bool:
        data = os.read(self.pipe, _CHUNK)
        self.rest += data
        if b"\n" in data:
            *lines, rest = self.rest.split(b"\n")
            self.rest = bytearray(rest)
            for line in lines:
                self._take_event(bytes(line))
        return bool(data)

    def _take_event(self, line: bytes) -> None:
        try:
            event = codec.decode_event(line)
        except UnreadableDocument:
            return  # its writer died in the middle of it, and that will be told
        if isinstance(event, Progressed):
            self.stage = event.stage
        else:
            self.events.append(event)
        self.watch(event)


def _keeper() -> list[str]:
    """Give the beginning of the command of a keeper: without site-packages it starts in some milliseconds."""
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("reaper.py")), str(os.getpid())]

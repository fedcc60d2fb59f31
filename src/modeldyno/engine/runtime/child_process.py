"""Run each Job in a supervised child process, and make a Result of what it reports."""

from __future__ import annotations

from collections.abc import Callable, Sized
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from modeldyno.base import codec, plugins
from modeldyno.base.clock import monotonic
from modeldyno.base.errors import UnreadableDocument, error_named, with_trace
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.result.result import (
    Ended,
    Event,
    Failure,
    Progressed,
    Refused,
    Result,
    SecondPassed,
    fold,
)
from modeldyno.engine.runtime.events import INTERRUPTED, empty_result
from modeldyno.engine.runtime.interrupts import counted_interrupts, sigterm_received
from modeldyno.engine.runtime.measured_region import RegionGate
from modeldyno.engine.runtime.measuring_turn import MEASURING
from modeldyno.engine.runtime.supervised_child import LOADING_TIME, ChildLimits, SupervisedChild
from modeldyno.engine.runtime.time_limit import TimeLimit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.job import Job
    from modeldyno.engine.interfaces.executor import Executor
    from modeldyno.engine.runtime.measured_region import Region
    from modeldyno.engine.runtime.turn_token import TurnGranter

_MODULE = "modeldyno.engine.runtime.worker"
_CLOSE_TIMEOUT = 60.0
"""Seconds a warm child may take to close what it kept open, such as a server that drains."""
_SIGTERM_GRACE = 3.0
"""Seconds after SIGTERM in which a child may finish by itself: SIGKILL may follow soon."""
_EXTENSION = 12
"""Answers, one after the other, by which a load may exceed its time if nobody wished for it."""


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
    Of several threads one has it open at a time.
    """
    with MEASURING, counted_interrupts() if interrupts is None else nullcontext(interrupts) as counter:

        def execute(job: Job, *, watch: Callable[[Event], None] = lambda _event: None) -> Result:
            with nullcontext() if guard is None else RegionGate.opened(guard) as gate:
                child = ChildProcess.start(gate=gate, limit=limit)
                try:
                    child.run_job(job, watch, counter)
                finally:
                    child.end()
                return child.result(job, counter)

        yield execute


def _limits(job: Job, side_count: int, limit: TimeLimit | None) -> ChildLimits:
    """Limit a child that runs interleaved with others to its share of the free memory.

    One that only analyses is left to the limit of the command, if there is one.
    """
    plan, longest = job.plan, job.plan.max_time
    if job.load is not None and plan.may_extend:
        longest += (job.load.requests or _EXTENSION) * job.load.timeout
    usual = inf if _only_analyses(job) and limit is not None else LOADING_TIME + 2 * longest * len(job.probes)
    return ChildLimits(
        seconds=plan.timeout or usual,
        memory=plan.memory_limit,
        memory_option="`memory_limit`",
        side_count=side_count,
    )


@dataclass(slots=True, kw_only=True)
class ChildProcess:
    """One child process, the events received from it, and why the parent ended it, if it did."""

    process: SupervisedChild
    warm: bool = False
    """Whether it waits for more Jobs after the first."""
    watch: Callable[[Event], None] = field(default=lambda _event: None)
    events: list[Event] = field(default_factory=list)
    stage: str = ""
    """What the child does at present; empty before its first event."""
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
        granter: TurnGranter | None = None,
        gate: RegionGate | None = None,
        limit: TimeLimit | None = None,
    ) -> ChildProcess:
        """Start a child that waits for a Job; a warm child waits for another one after each.

        A child with a `granter` works only while it holds the turn token; one with a `gate` asks it before it
        measures; one with a `limit` measures so little that it keeps it, and is ended soon after.
        """
        token_fds = () if granter is None else granter.child_ends
        gate_fds = () if gate is None else (gate.theirs,)
        process = SupervisedChild.start(
            _MODULE,
            *(["--warm"] if warm else []),
            *(["--turns", *map(str, token_fds)] if token_fds else []),
            *(["--region", *map(str, gate_fds)] if gate_fds else []),
            *(["--limit", *limit.arguments()] if limit is not None else []),
            pass_fds=(*token_fds, *gate_fds),
            clock=monotonic if granter is None else granter.clock,
        )
        if granter is not None:
            granter.close_child_ends()
        return cls(process=process, warm=warm, gate=gate, limit=limit)

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
        self.process.send(codec.encode_job(job), last=not self.warm)
        try:
            self._collect_events(_limits(job, side_count, self.limit), interrupts)
        except BaseException:
            self.stopped = True  # the parent gave up waiting for it
            raise

    def close_session(self) -> None:
        """Make a warm child close what it keeps open before the next Job."""
        self.process.send(b"")

    def result(self, job: Job, interrupts: Sized) -> Result:
        """Return the Result of the Job; raise the RequestError that the child found, if any."""
        self._raise_refusal()
        if self.out_of_time:
            assert self.limit is not None
            if not any(_is_worth_keeping(event, job) for event in self.events):
                raise self.limit.exceeded(self.stage)
            self.events.append(self.limit.left_out((f"all of '{self.stage}'",)))
        failure = self._failure()
        events = [*self.events, *([] if failure is None else [failure])]
        if interrupts:
            events.append(INTERRUPTED)
        return fold(empty_result(job), events)

    def _collect_events(self, limits: ChildLimits, interrupts: Sized) -> None:
        """Collect the child's events until it ends, breaks a limit, or is interrupted twice."""
        handled, signalled_at = 0, None
        for line in self.process.lines(limits):
            if line is not None:
                self._read_event(line)
                continue
            if self.has_reported_end():
                break
            now = monotonic()
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
                self.process.interrupt()
            if self.limit is not None and self.limit.is_exhausted:
                self.stopped = self.out_of_time = True
                break

    def end(self) -> None:
        """End everything the child started, and collect the rest of its log."""
        if self.warm:
            self.process.close_input()  # no more Jobs: the child closes what it kept open
        patience = 0.0 if self.stopped else _CLOSE_TIMEOUT if self.warm else None
        self.process.end(answered=self.has_reported_end(), patience=patience)

    def has_reported_end(self) -> bool:
        """Return whether the child reported the end of the Job."""
        return any(isinstance(event, Ended | Refused) for event in self.events)

    def _raise_refusal(self) -> None:
        """Raise the RequestError that the child reported, if any."""
        for event in self.events:
            if isinstance(event, Refused):
                raise with_trace(error_named(event.error, event.message, event.probe), event.trace)

    def _failure(self) -> Failure | None:
        """Describe how the child failed; None if it finished or was interrupted."""
        if self.stopped or any(isinstance(event, Ended) for event in self.events):
            return None
        kind, message = self.process.outcome()
        return Failure(where=self.stage or "start", kind=kind, message=message, log=self.process.printed)

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


def _is_worth_keeping(event: Event, job: Job) -> bool:
    """Return whether an event has times of calls, or of a Job that only analyses, any figure."""
    return isinstance(event, Measurement) and (isinstance(event.value, Distribution) or _only_analyses(job))


def _only_analyses(job: Job) -> bool:
    """Return whether none of its probes calls the model."""
    return all(plugins.probe(name).needs is None for name in job.probes)

"""Run several Jobs in fresh processes at the same time; they measure in turns, slice by slice.

A machine's speed varies more from minute to minute than from process to process. Two processes that live
at the same time and measure in turns of a fraction of a second meet the same conditions, so their ratio
is known far more exactly than either of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import ModelDynoError
from modeldyno.base.job.devices import is_cpu
from modeldyno.base.result.result import Event, FailureKind, Result
from modeldyno.base.stats.schedule import ALTERNATING, INTERLEAVED
from modeldyno.engine.environment import machine
from modeldyno.engine.runtime.child_process import ChildProcess
from modeldyno.engine.runtime.time_limit import UNLIMITED, TimeLimit
from modeldyno.engine.runtime.turn_token import TurnGranter

if TYPE_CHECKING:
    from concurrent.futures import Future

    from modeldyno.base.job.job import Job

Watch = Callable[[Event], None]
_ANY = "auto"
"""Device of a Job that may use any device it finds, such as a user's function."""


@dataclass(slots=True, kw_only=True)
class InterleavedRunner:
    """Runs the Jobs of a round interleaved where possible."""

    interrupts: Sized
    limit: TimeLimit = UNLIMITED
    """What the runs must end by."""
    apart: bool = False
    """Whether two at a time did not fit into memory."""
    shared: bool = False
    """Whether a round was interleaved."""

    @property
    def order(self) -> str:
        """Name of the layout of the rounds."""
        return INTERLEAVED if self.shared and not self.apart else ALTERNATING

    def __call__(self, jobs: Sequence[Job], watches: Sequence[Watch]) -> list[Result | ModelDynoError] | None:
        """Return a Result or error for each, in order, up to the first failure; None if they cannot share."""
        if self.apart or len(jobs) == 1 or not all(map(can_share, jobs)):
            return None
        results = _run_interleaved(jobs, watches, self.interrupts, self.limit)
        if any(map(_out_of_memory, results)):
            self.apart = True
            return None
        self.shared = True
        return results


def can_share(job: Job) -> bool:
    """Return whether a Job may run beside another: it is no server and uses no shared device."""
    if job.model.live or plugins.serves(job.backend):
        return False
    device = str(job.config.get("device", _ANY))
    return not machine.may_have_device() if device == _ANY else is_cpu(device)


def _out_of_memory(result: Result | ModelDynoError) -> bool:
    return isinstance(result, Result) and any(failure.kind is FailureKind.OOM for failure in result.failures)


def is_over(result: Result | ModelDynoError) -> bool:
    """Return whether a Job failed or was refused."""
    return not isinstance(result, Result) or bool(result.failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StopSignal:
    """Counts interruptions; counts as two when the parent itself gives up."""

    interrupts: Sized
    over: threading.Event = field(default_factory=threading.Event)

    def __len__(self) -> int:
        return 2 if self.over.is_set() else len(self.interrupts)


def _run_interleaved(
    jobs: Sequence[Job], watches: Sequence[Watch], interrupts: Sized, limit: TimeLimit
) -> list[Result | ModelDynoError]:
    stopped, lock = _StopSignal(interrupts=interrupts), threading.Lock()
    limit = replace(limit, side_count=len(jobs))
    granters = [TurnGranter.create() for _ in jobs]
    futures: list[Future[Result | ModelDynoError]] = []
    live: list[TurnGranter] = []
    with ExitStack() as stack:
        for granter in granters:
            stack.callback(granter.close)  # last: a child whose granter is closed would go on by itself
        pool = stack.enter_context(ThreadPoolExecutor(len(jobs)))
        stack.callback(stopped.over.set)
        for granter, job, watch in zip(granters, jobs, watches, strict=True):
            child = ChildProcess.start(granter=granter, limit=limit)
            locked_watch = _synchronized(watch, lock)
            futures.append(pool.submit(_run_child, child, job, locked_watch, stopped, len(jobs)))
        for granter in granters:
            granter.wait()
        begun: list[Future[Result | ModelDynoError]] = []
        for granter, future in zip(granters, futures, strict=True):
            begun.append(future)
            if granter.grant(0):  # it loads alone; its next turn comes when all have loaded
                live.append(granter)
            elif is_over(future.result()):
                break
        while live:
            for granter in tuple(live):
                if not granter.grant(min(waiting.finished_phase for waiting in live)):
                    live.remove(granter)
        return [future.result() for future in begun]


def _synchronized(watch: Watch, lock: threading.Lock) -> Watch:
    def locked_watch(event: Event) -> None:
        with lock:
            watch(event)

    return locked_watch


def _run_child(
    child: ChildProcess, job: Job, watch: Watch, interrupts: Sized, side_count: int
) -> Result | ModelDynoError:
    try:
        try:
            child.run_job(job, watch, interrupts, side_count=side_count)
        finally:
            child.end()
        return child.result(job, interrupts)
    except ModelDynoError as error:
        return error

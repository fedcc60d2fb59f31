"""Several Jobs in fresh processes at the same time, of which one measures at a time: slice by slice.

What a machine does differs more from minute to minute than from process to process. Two processes that
live at the same time and measure in turns of a fraction of a second meet the same machine, so that their
ratio is known far better than either of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modeldyno.core.comparison.schedule import ALTERNATING, INTERLEAVED
from modeldyno.core.result.result import Event, FailureKind, Result
from modeldyno.environment import machine
from modeldyno.errors import ModelDynoError
from modeldyno.runtime.child_process import Child
from modeldyno.runtime.engine import serves
from modeldyno.runtime.turn_token import Seat

if TYPE_CHECKING:
    from concurrent.futures import Future

    from modeldyno.core.spec.job import Job

Watch = Callable[[Event], None]
_ANY = "auto"
"""The device of a Job that takes what it finds, as a function of the user's may."""


@dataclass(slots=True, kw_only=True)
class Together:
    """Runs the sides of a round interleaved, where that can be."""

    interrupts: Sized
    apart: bool = False
    """Whether two at a time did not fit into the memory."""
    shared: bool = False
    """Whether a round was interleaved."""

    @property
    def order(self) -> str:
        """What the layout of the rounds is called."""
        return INTERLEAVED if self.shared and not self.apart else ALTERNATING

    def __call__(self, jobs: Sequence[Job], watches: Sequence[Watch]) -> list[Result | ModelDynoError] | None:
        """Give what came of each, in order, up to the first that failed; None where they must be apart.

        A wrong request is given as its error.
        """
        if self.apart or len(jobs) == 1 or not all(map(can_share, jobs)):
            return None
        found = _interleaved(jobs, watches, self.interrupts)
        if any(map(_out_of_memory, found)):
            self.apart = True
            return None
        self.shared = True
        return found


def can_share(job: Job) -> bool:
    """Say whether a Job's process may live beside another: neither a server, nor what shares a device."""
    if job.model.scheme == "object" or serves(job.backend):
        return False
    device = str(job.config.get("device", _ANY))
    return not machine.may_have_device() if device == _ANY else device.startswith("cpu")


def _out_of_memory(found: Result | ModelDynoError) -> bool:
    return isinstance(found, Result) and any(each.kind is FailureKind.OOM for each in found.failures)


def is_over(found: Result | ModelDynoError) -> bool:
    """Say whether what came of a Job is nothing to go on with."""
    return not isinstance(found, Result) or bool(found.failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stopped:
    """Interruptions, and all at once when the parent itself gives up."""

    interrupts: Sized
    over: threading.Event = field(default_factory=threading.Event)

    def __len__(self) -> int:
        return 2 if self.over.is_set() else len(self.interrupts)


def _interleaved(
    jobs: Sequence[Job], watches: Sequence[Watch], interrupts: Sized
) -> list[Result | ModelDynoError]:
    stopped, lock = _Stopped(interrupts=interrupts), threading.Lock()
    seats = [Seat.made() for _ in jobs]
    futures: list[Future[Result | ModelDynoError]] = []
    live: list[Seat] = []
    with ExitStack() as stack:
        for seat in seats:
            stack.callback(seat.close)  # at last: a child that is alone would go on by itself
        pool = stack.enter_context(ThreadPoolExecutor(len(jobs)))
        stack.callback(stopped.over.set)
        for seat, job, watch in zip(seats, jobs, watches, strict=True):
            child = Child.start(seat=seat)
            told = _one_at_a_time(watch, lock)
            futures.append(pool.submit(_followed, child, job, told, stopped, len(jobs)))
        for seat in seats:
            seat.wait()
        begun: list[Future[Result | ModelDynoError]] = []
        for seat, future in zip(seats, futures, strict=True):
            begun.append(future)
            if seat.grant(0):  # it loads alone, and has its next turn when all have loaded
                live.append(seat)
            elif is_over(future.result()):
                break
        while live:
            for seat in tuple(live):
                if not seat.grant(min(each.enough for each in live)):
                    live.remove(seat)
        return [future.result() for future in begun]


def _one_at_a_time(watch: Watch, lock: threading.Lock) -> Watch:
    def told(event: Event) -> None:
        with lock:
            watch(event)

    return told


def _followed(child: Child, job: Job, watch: Watch, interrupts: Sized, sides: int) -> Result | ModelDynoError:
    try:
        try:
            child.carry_out(job, watch, interrupts, sides=sides)
        finally:
            child.end()
        return child.result(job, interrupts)
    except ModelDynoError as error:
        return error

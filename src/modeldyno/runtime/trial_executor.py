"""Where the trials of a sweep are run: a server is kept for all its loads, and fresh for what verifies."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

from modeldyno.runtime.child_process import isolated
from modeldyno.runtime.engine import serves
from modeldyno.runtime.interrupts import Insisted
from modeldyno.runtime.warm_worker import House, housed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.core.spec.job import Job
    from modeldyno.interfaces import Executor


class Rooms(Protocol):
    """Gives what runs a Job; what ran the one before may end for it."""

    def __call__(self, job: Job, *, fresh: bool) -> Executor:
        """Give what runs a Job.

        Args:
            job: what is to be run.
            fresh: whether it wants a process or a server that was started for it.
        """


@contextmanager
def children(interrupted: Callable[[], int]) -> Iterator[Rooms]:
    """Run Jobs in child processes: of a server in one that keeps it open while only the load changes.

    What is to be fresh gets a process of its own, or a server that was started for it; the one that was kept
    is ended before, for of two servers at once neither is measured well. The first interruption lets a Job
    come to its own end, and the second ends it.
    """
    seen = Insisted(interrupted)
    with ExitStack() as kept, isolated(seen) as alone:
        houses: list[House] = []

        def room(job: Job, *, fresh: bool) -> Executor:
            if not serves(job.backend):
                houses.clear()
                kept.close()
                return alone
            if not houses:
                houses.append(kept.enter_context(housed(seen)))
            return houses[0].afresh if fresh else houses[0].execute

        yield room

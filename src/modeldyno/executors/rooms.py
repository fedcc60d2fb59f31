"""Where the trials of a sweep are run: kept warm while a server stays as it is, fresh for what verifies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from modeldyno.core.job import Job
from modeldyno.core.study import Stage
from modeldyno.executors.interrupts import Insisted
from modeldyno.executors.isolated import isolated
from modeldyno.executors.warm import warm
from modeldyno.ports import Executor
from modeldyno.run import serves

if TYPE_CHECKING:
    from collections.abc import Iterator

Rooms = Callable[[Job, Stage], Executor]
"""Gives what runs a Job; what ran the one before may end for it."""


@contextmanager
def children(interrupted: Callable[[], int]) -> Iterator[Rooms]:
    """Run Jobs in child processes: of a server in one that keeps it open while only the load changes.

    What verifies gets a process, and a server, of its own; the one that was kept is ended before, for of two
    servers at once neither is measured well. The first interruption lets a Job come to its own end, and
    the second ends it.
    """
    seen = Insisted(interrupted)
    with ExitStack() as kept, isolated(seen) as fresh:
        open_: list[Executor] = []

        def room(job: Job, stage: Stage) -> Executor:
            if serves(job.backend) and stage is not Stage.VERIFY:
                if not open_:
                    open_.append(kept.enter_context(warm(seen)))
                return open_[0]
            open_.clear()
            kept.close()
            return fresh

        yield room

"""Choose the process that runs a trial of a sweep: a server is reused across loads, and fresh to verify."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

from modeldyno.base import plugins
from modeldyno.engine.runtime.child_process import subprocess_executor
from modeldyno.engine.runtime.interrupts import ForcedInterrupts
from modeldyno.engine.runtime.time_limit import UNLIMITED
from modeldyno.engine.runtime.warm_worker import WarmWorker, open_warm_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.job.job import Job
    from modeldyno.engine.interfaces.executor import Executor
    from modeldyno.engine.runtime.time_limit import TimeLimit


class TrialExecutor(Protocol):
    """Returns an executor for a Job; the process of the previous Job may be ended for it."""

    def __call__(self, job: Job, *, fresh: bool) -> Executor:
        """Return the executor for a Job.

        Args:
            job: what to run.
            fresh: whether it needs a process or server started for it.
        """


@contextmanager
def subprocess_executors(
    interrupted: Callable[[], int], limit: TimeLimit | None = None
) -> Iterator[TrialExecutor]:
    """Run Jobs in child processes; a child with a server stays open while only the load changes.

    A fresh Job gets a process of its own, or a server started for it; the one kept open is ended first,
    because two servers at once would disturb each other. The first interruption lets a Job finish, the
    second ends it. A child is ended soon after the `limit`.
    """
    insisted, limit = ForcedInterrupts(interrupted), limit or UNLIMITED
    with ExitStack() as stack, subprocess_executor(insisted, limit=limit) as isolated_executor:
        workers: list[WarmWorker] = []

        def executor_for(job: Job, *, fresh: bool) -> Executor:
            if not plugins.serves(job.backend):
                workers.clear()
                stack.close()
                return isolated_executor
            if not workers:
                workers.append(stack.enter_context(open_warm_worker(insisted, limit)))
            return workers[0].execute_fresh if fresh else workers[0].execute

        yield executor_for

"""A child process that keeps its model or server open while only the load and the Plan change.

A load ladder or search puts one server under many loads; starting the server for each would take most of
the time, and would measure its start. For another server configuration the child stays, with the model
loaded, and restarts the server, unless the server runs in the child itself. A Job that differs in anything
else gets a fresh child, and so does the one after a failure.
"""

from __future__ import annotations

from collections.abc import Sized
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.job.job import Job
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.engine.runtime.child_process import ChildProcess
from modeldyno.engine.runtime.interrupts import counted_interrupts
from modeldyno.engine.runtime.time_limit import TimeLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.result.result import Event, Result
    from modeldyno.engine.interfaces.executor import Executor


@contextmanager
def warm_executor(interrupts: Sized | None = None, limit: TimeLimit | None = None) -> Iterator[Executor]:
    """Yield an executor that keeps one child process while Jobs differ only in load, Plan or server knobs.

    Another seed or CPU pinning needs a fresh child: these are set before the model is opened. Ctrl-C and
    `interrupts` and `limit` work as for the isolated executor.
    """
    with open_warm_worker(interrupts, limit) as worker:
        yield worker.execute


@contextmanager
def open_warm_worker(interrupts: Sized | None = None, limit: TimeLimit | None = None) -> Iterator[WarmWorker]:
    """Yield a worker that can also run a Job on a fresh server."""
    with counted_interrupts() if interrupts is None else nullcontext(interrupts) as counter:
        worker = WarmWorker(interrupts=counter, limit=limit)
        try:
            yield worker
        finally:
            worker.close()


@dataclass(slots=True, kw_only=True)
class WarmWorker:
    """Runs Jobs in at most one child, which keeps its model or server open."""

    interrupts: Sized
    limit: TimeLimit | None = None
    child: ChildProcess | None = None
    holds: Job | None = None

    def execute(self, job: Job, *, watch: Callable[[Event], None] = lambda _event: None) -> Result:
        """Run a Job in the child that has its model open, or in a fresh child."""
        shared = _shared_part(job)
        if self.child is None or self.holds != shared or self.child.process.has_exited:
            self.close()
            self.child, self.holds = ChildProcess.start(warm=True, limit=self.limit), shared
        child = self.child
        with ExitStack() as stack:
            stack.callback(self.close)
            child.run_job(job, watch, self.interrupts)
            if not child.has_reported_end():
                self.close()  # its exit cause is known only after it has ended
            result = child.result(job, self.interrupts)
            if not result.failures:
                stack.pop_all()
        return result

    def execute_fresh(self, job: Job, *, watch: Callable[[Event], None] = lambda _event: None) -> Result:
        """Run a Job on a server started for it, after closing what is open."""
        if self.holds is not None and _is_within(self.holds):
            self.close()
        if self.child is not None:
            self.child.close_session()
        return self.execute(job, watch=watch)

    def close(self) -> None:
        """End the child and what it kept open."""
        child, self.child = self.child, None
        if child is not None:
            child.end()


def _is_within(job: Job) -> bool:
    """Return whether the server of a Job runs in the child itself."""
    backend = plugins.backend(job.backend)
    return backend.serves_within(job.config)


def _shared_part(job: Job) -> Job:
    """Return the part of a Job that must be equal for all Jobs of one child."""
    config = {} if plugins.serves(job.backend) and not _is_within(job) else job.config
    shared = replace(job, load=None, plan=Plan(seed=job.plan.seed, pin=job.plan.pin), config=config)
    return replace(shared, beside=tuple(map(_shared_part, job.beside)))

"""A child process that keeps its model, or its server, open while only the load and the Plan change.

What a ladder or a search measures is one server under many loads; starting it for each would take most
of the time, and would measure its start. For another configuration of a server the child stays, which has
loaded the model already, and the server is another one. A Job that differs in anything else gets a fresh
child, and so does the one after a failure: what went wrong once is not used again.
"""

from __future__ import annotations

from collections.abc import Sized
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.core.metrics.measurement_plan import Plan
from modeldyno.core.spec.job import Job
from modeldyno.runtime.child_process import Child
from modeldyno.runtime.engine import serves
from modeldyno.runtime.interrupts import counted_interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.core.result.result import Event, Result
    from modeldyno.interfaces import Executor


@contextmanager
def warm(interrupts: Sized | None = None) -> Iterator[Executor]:
    """Run Jobs in one child process while they differ only in load and Plan, or in the server's knobs.

    A seed or processors to stay on are no such difference: they are set before the model is opened. While
    it is open, Ctrl-C does what it does for the isolated executor, and so does `interrupts`.
    """
    with housed(interrupts) as house:
        yield house.execute


@contextmanager
def housed(interrupts: Sized | None = None) -> Iterator[House]:
    """Do the same, for whoever wants a fresh server now and then."""
    with counted_interrupts() if interrupts is None else nullcontext(interrupts) as counted:
        house = House(interrupts=counted)
        try:
            yield house
        finally:
            house.close()


@dataclass(slots=True, kw_only=True)
class House:
    """The one child, if there is one, and what it keeps open."""

    interrupts: Sized
    child: Child | None = None
    holds: Job | None = None

    def execute(self, job: Job, *, watch: Callable[[Event], None] = lambda _event: None) -> Result:
        """Run a Job in the child that has its model open, or else in a fresh one."""
        kept = _kept(job)
        if self.child is None or self.holds != kept or self.child.process.poll() is not None:
            self.close()
            self.child, self.holds = Child.start(warm=True), kept
        child = self.child
        with ExitStack() as stack:
            stack.callback(self.close)
            child.carry_out(job, watch, self.interrupts)
            if not child.told_end():
                self.close()  # how it ended is known once it has
            result = child.result(job, self.interrupts)
            if not result.failures:
                stack.pop_all()
        return result

    def afresh(self, job: Job, *, watch: Callable[[Event], None] = lambda _event: None) -> Result:
        """Run a Job on a server that was started for it; what is open is closed before."""
        if self.child is not None:
            self.child.renew()
        return self.execute(job, watch=watch)

    def close(self) -> None:
        """End the child, and with it whatever it kept open."""
        child, self.child = self.child, None
        if child is not None:
            child.end()


def _kept(job: Job) -> Job:
    """Give the part of a Job in which those of one child are alike."""
    config = {} if serves(job.backend) else job.config
    kept = replace(job, load=None, plan=Plan(seed=job.plan.seed, pin=job.plan.pin), config=config)
    return replace(kept, beside=tuple(map(_kept, job.beside)))

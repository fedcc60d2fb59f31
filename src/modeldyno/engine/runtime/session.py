"""Run many measurements, each in a fresh process, as one piece of work that a user may interrupt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base.errors import ModelDynoError, OutOfTime
from modeldyno.base.result.cost import Price, with_cost
from modeldyno.base.result.result import Event, Progressed, Result
from modeldyno.engine.interfaces.executor import Executor
from modeldyno.engine.runtime.child_process import subprocess_executor
from modeldyno.engine.runtime.interleaved import InterleavedRunner, is_over
from modeldyno.engine.runtime.interrupts import ForcedInterrupts, counted_interrupts
from modeldyno.engine.runtime.time_limit import UNLIMITED, TimeLimit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.job import Job

Watch = Callable[[Event], None]
_LAST_RUN = "last run, Ctrl-C again stops now; "


def ignore_event(_event: Event) -> None:
    """Ignore an event."""


def no_interruptions() -> int:
    """Return 0: no interruptions are counted."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSession:
    """What a series of runs needs: how to run Jobs, where to report progress, and whether to go on."""

    execute: Executor
    """Runs one Job, in a process of its own."""
    watch: Watch = ignore_event
    """Called with every event."""
    interrupted: Callable[[], int] = no_interruptions
    """How often the user has interrupted so far; after the first, the current run is the last."""
    together: InterleavedRunner | None = None
    """Runs the Jobs of a round at the same time, slice by slice; without it, and where they cannot share the
    machine, they run one after another."""
    limit: TimeLimit | None = None
    """What the runs must end by."""
    price: Price | None = None
    """Of the machine: with it the Results of a round have their cost."""

    def label_progress(self, label: str, share: float = 0.0) -> Watch:
        """Return a watch that prefixes progress with the label of the run, and says if it is the last.

        Args:
            label: what is run.
            share: share of all runs that were done before it.
        """

        def relabel(event: Event) -> None:
            if isinstance(event, Progressed):
                last = _LAST_RUN if self.interrupted() else ""
                event = replace(event, stage=f"{last}{label}: {event.stage}", share=share)
            self.watch(event)

        return relabel

    def run_round(
        self, labelled: Sequence[tuple[str, Job]], share: float = 0.0
    ) -> list[Result | ModelDynoError]:
        """Run the Jobs of a round, each with its label for the progress line.

        Args:
            labelled: the label and the Job of each side, in their order.
            share: share of all rounds that were done before it.

        Returns:
            A Result for each, in order, up to the first that failed or was interrupted; for a wrong request,
            its error.

        Raises:
            OutOfTime: the limit cut one of them off before it had measured anything.
        """
        results = self._run_sides(labelled, share)
        for result in results:
            if isinstance(result, OutOfTime):
                raise result  # what the others measured has nothing beside it
        return [with_cost(each, self.price) if isinstance(each, Result) else each for each in results]

    def _run_sides(self, labelled: Sequence[tuple[str, Job]], share: float) -> list[Result | ModelDynoError]:
        jobs = [job for _, job in labelled]
        watches = [self.label_progress(label, share) for label, _ in labelled]
        if self.together is None:
            return self._run_sequentially(jobs, watches)
        results = self.together(jobs, watches)
        if results is None:  # once interrupted, nothing new is begun
            return [] if self.interrupted() else self._run_sequentially(jobs, watches)
        return results

    def _run_sequentially(
        self, jobs: Sequence[Job], watches: Sequence[Watch]
    ) -> list[Result | ModelDynoError]:
        results: list[Result | ModelDynoError] = []
        for job, watch in zip(jobs, watches, strict=True):
            try:
                results.append(self.execute(job, watch=watch))
            except ModelDynoError as error:
                results.append(error)
            if is_over(results[-1]) or self.interrupted():
                break
        return results


@contextmanager
def open_run_session(watch: Watch = ignore_event, limit: TimeLimit | None = None) -> Iterator[RunSession]:
    """Yield a session that counts Ctrl-C: the first lets the current measurement end, the second ends it.

    What still runs soon after the `limit` is ended.
    """
    with counted_interrupts() as interrupts:

        def interrupted() -> int:
            return len(interrupts)

        insisted = ForcedInterrupts(interrupted)
        with subprocess_executor(insisted, limit=limit or UNLIMITED) as execute:
            together = InterleavedRunner(interrupts=insisted, limit=limit or UNLIMITED)
            yield RunSession(
                execute=execute, watch=watch, interrupted=interrupted, together=together, limit=limit
            )

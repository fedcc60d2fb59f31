"""Many measurements, each in a fresh process: one piece of work that a user may interrupt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.core.result.result import Event, Progressed, Result
from modeldyno.errors import ModelDynoError
from modeldyno.interfaces import Executor
from modeldyno.runtime.child_process import isolated
from modeldyno.runtime.interleaved import Together, is_over
from modeldyno.runtime.interrupts import Insisted, counted_interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.spec.job import Job

Watch = Callable[[Event], None]
_LAST = "the last, Ctrl-C again stops now; "


def silent(_event: Event) -> None:
    """Tell nobody."""


def never() -> int:
    """Count no interruption."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What whoever measures many times needs: how to run Jobs, whom to tell, and whether to go on."""

    execute: Executor
    """Runs one Job, in a process of its own."""
    watch: Watch = silent
    """Told of every event."""
    interrupted: Callable[[], int] = never
    """How often the user has interrupted so far; after the first the run at work is the last."""
    together: Together | None = None
    """Runs the sides of a round at the same time, slice by slice; without it, and where they cannot share the
    machine, one is run after the other."""

    def labelled(self, label: str) -> Watch:
        """Tell of progress with words before it that say which run it is of, and when it is the last."""

        def told(event: Event) -> None:
            if isinstance(event, Progressed):
                last = _LAST if self.interrupted() else ""
                event = replace(event, stage=f"{last}{label}: {event.stage}")
            self.watch(event)

        return told

    def play(self, sides: Sequence[tuple[str, Job]]) -> list[Result | ModelDynoError]:
        """Run the sides of a round, each with what the line of progress calls it.

        Returns:
            What came of each, in their order, up to the first that failed or was interrupted; a wrong request
            is its error.
        """
        jobs, watches = [job for _, job in sides], [self.labelled(label) for label, _ in sides]
        if self.together is None:
            return self._one_after_the_other(jobs, watches)
        found = self.together(jobs, watches)
        if found is None:  # and what was interrupted meanwhile is not begun anew
            return [] if self.interrupted() else self._one_after_the_other(jobs, watches)
        return found

    def _one_after_the_other(
        self, jobs: Sequence[Job], watches: Sequence[Watch]
    ) -> list[Result | ModelDynoError]:
        found: list[Result | ModelDynoError] = []
        for job, watch in zip(jobs, watches, strict=True):
            try:
                found.append(self.execute(job, watch=watch))
            except ModelDynoError as error:
                found.append(error)
            if is_over(found[-1]) or self.interrupted():
                break
        return found


@contextmanager
def campaign(watch: Watch = silent) -> Iterator[Campaign]:
    """Count each Ctrl-C while it is open: the first lets the measurement at work end, the second ends it."""
    with counted_interrupts() as interrupts:

        def interrupted() -> int:
            return len(interrupts)

        insisted = Insisted(interrupted)
        with isolated(insisted) as execute:
            together = Together(interrupts=insisted)
            yield Campaign(execute=execute, watch=watch, interrupted=interrupted, together=together)

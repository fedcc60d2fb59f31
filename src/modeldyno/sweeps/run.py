"""Run a study for a user: save each trial before the next, and handle Ctrl-C."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.core.study import resume_guard
from modeldyno.documents.live_loads import show_loads
from modeldyno.runtime.interrupts import counted_interrupts
from modeldyno.sweeps.loop import Step, run_trials, save_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.core.result.result import Event
    from modeldyno.core.study.study import Study
    from modeldyno.runtime.trial_executor import TrialExecutor


def run_study(
    study: Study,
    *,
    store: bool,
    watch: Callable[[Event], None],
    force: bool = False,
    rooms: TrialExecutor | None = None,
) -> tuple[Study, bool]:
    """Run a study to its end or an interruption; return it, and whether it was interrupted.

    Args:
        study: new, or resumed.
        store: whether the study and the Results are saved.
        watch: called with every event.
        force: continue although the model or the hardware has changed.
        rooms: returns the executor of a Job; child processes by default.

    Raises:
        RequestError, MissingExtra, StaleStudy, RunFailed: as `loop.run_trials` does.
    """
    with ExitStack() as stack:
        interrupts = stack.enter_context(counted_interrupts())
        live = stack.enter_context(show_loads(wanted=store))
        steps: Iterator[Step] = run_trials(
            study, watch=live.follow(watch), interrupted=lambda: len(interrupts), force=force, rooms=rooms
        )
        if store:
            opened = stack.enter_context(plugins.store())
            opened.put_study(study, headline=resume_guard.describe_progress(study))
            steps = save_steps(steps, opened)
        for latest, _, result in steps:
            study = latest
            if result is not None:
                live.end(result)
        return study, bool(interrupts)

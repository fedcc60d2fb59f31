"""Study -> Studies, one trial more each: the default, what the strategy asks for, and what verifies it.

Of a budget a third is kept for what verifies: a winner that was not measured again is a rumour. Only where
there are measurements for every point of a grid, all are made, and what is left verifies; and where nothing
has a rival, so that nothing is to be verified, the search has the third as well.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.core.metrics.constraints import Answer
from modeldyno.core.result.result import Loaded, Progressed
from modeldyno.core.spec.probe_options import Observation
from modeldyno.core.spec.static_options import Inspection
from modeldyno.core.study import default_baseline, resume_guard, verification
from modeldyno.core.study.search_space import key
from modeldyno.core.study.study import Stage, State, Trial
from modeldyno.core.study.trial_effort import looking
from modeldyno.errors import RequestError, RunFailed, StaleStudy, TrustRequired, UnknownName, Unloadable
from modeldyno.runtime.trial_executor import children
from modeldyno.sweeps.point_to_job import check_axes, check_dimensions, placed
from modeldyno.views import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from modeldyno.core.result.result import Event, Result
    from modeldyno.core.spec.job import Job
    from modeldyno.core.study.study import Ask, Study
    from modeldyno.interfaces import Store
    from modeldyno.runtime.trial_executor import Rooms

__all__ = ["Step", "check", "next_ask", "placed", "saved", "sweep"]

Step = tuple["Study", "Trial", "Result | None"]
"""The Study with a trial more, that trial, and its Result if anything was run for it."""
SEARCH_SHARE = 2 / 3
"""Of a budget; what is left is for what verifies."""
GRID = "grid"
"""The strategy that measures every point."""
DEFAULT_SHARE = 1 / 4
"""Of the measurements of a budget, for the loads of the default beyond the first."""
_HOPELESS = 2
"""Trials that fail, before any has succeeded, until a sweep gives up."""


def sweep(
    study: Study,
    *,
    watch: Callable[[Event], None] = lambda _event: None,
    interrupted: Callable[[], int] = lambda: 0,
    force: bool = False,
    rooms: Rooms | None = None,
) -> Iterator[Step]:
    """Go on with a study until its budget is spent or nothing more is to be learnt.

    The caller saves each step before it asks for the next, as `saved` does; nothing that was measured is
    measured twice. A trial that fails is a trial, and so is a point that cannot be; the sweep goes on.

    Args:
        study: new, or as it was left.
        watch: told of every event; where the sweep stands is the `stage` of Progressed.
        interrupted: how often the user has interrupted: at first the current trial is finished, and is the
            last; at the second it is ended, and lost.
        force: go on although the model or the hardware is another one.
        rooms: what runs a Job; child processes by default.

    Raises:
        RequestError: the study cannot be carried out; nothing was measured.
        MissingExtra: an optional package is not installed.
        StaleStudy: the model or the hardware is not that of the trials so far.
        RunFailed: the first two trials failed.
    """
    begun, before, made = time.monotonic(), study.spent, 0
    with children(interrupted) if rooms is None else nullcontext(rooms) as room:
        check(study, room=room, watch=watch)
        guard = resume_guard.Guard(force=force, watch=watch)
        while not interrupted():
            elapsed = before + time.monotonic() - begun
            ask = next_ask(study, elapsed)
            if ask is None:
                return
            guard.begin(study, ask, resume_guard.left(study, elapsed))
            step = _tried(study, ask, room, guard)
            if step is None:
                return
            study, trial, result = step
            yield step
            made += trial.measured
            if result is not None:
                _check_hope(study, result, made)


def saved(steps: Iterable[Step], store: Store) -> Iterator[Step]:
    """Have each step in the store before the next one begins."""
    for study, trial, result in steps:
        told = "" if result is None else brief(result)
        store.add_trial(study, result, headline=resume_guard.headline(study), brief=told)
        yield study, trial, result


# --- before anything is measured -------------------------------------------------------------------


def check(
    study: Study, *, room: Rooms | None = None, watch: Callable[[Event], None] = lambda _event: None
) -> None:
    """Check all that can be checked before anything is measured; the space is not walked through.

    Where an axis is neither a knob nor a load, the model is looked at, as `modeldyno inspect` does.

    Raises:
        RequestError: an axis, a value or the default cannot be, or the strategy cannot search such a space.
        MissingExtra: an optional package is not installed.
    """
    if study.job.plan.processes > 1:
        raise RequestError(
            "A sweep measures its best candidates again in fresh processes by itself; leave processes away."
        )
    plugins.require(plugins.strategy(study.strategy).requires, f"strategy '{study.strategy}'")
    unknown = check_axes(study)
    if unknown:
        with children(lambda: 0) if room is None else nullcontext(room) as rooms:
            check_dimensions(study, unknown, _dimensions(study.job, rooms, watch))
    placed(study, study.default)
    if not study.trials:
        plugins.strategy(study.strategy).propose(study)  # which says what spaces it cannot search


def _dimensions(job: Job, room: Rooms, watch: Callable[[Event], None]) -> frozenset[str] | None:
    """Name the dimensions of the inputs; None where the model does not tell them."""
    specs = list(job.inputs)

    def note(event: Event) -> None:
        if isinstance(event, Loaded):
            specs.extend(event.inputs)

    watch(Progressed(stage="looking at the inputs of the model"))
    look = replace(job, probes=("static",), load=None, inspection=Inspection(), observation=Observation())
    with suppress(RequestError):  # what is known was told before; the first trial says what is wrong
        room(look, fresh=True)(look, watch=note)
    if not any(spec.shape for spec in specs):
        return None
    return frozenset(name for spec in specs for name in spec.shape or () if isinstance(name, str))


# --- what next -------------------------------------------------------------------------------------


def next_ask(study: Study, elapsed: float) -> Ask | None:
    """Say what is to be measured next, after so many seconds; None where the sweep has come to its end.

    But for the time, it is a function of the log: the default, the search, which does not know what
    verifies it, and then that.
    """
    searched = replace(study, trials=tuple(t for t in study.trials if t.stage is not Stage.VERIFY))
    if _spent(study, elapsed + resume_guard.usual(searched), len(study.measured)):
        return None
    ask = default_baseline.next_ask(study)
    if ask is not None and not _enough_of_default(study, ask):
        return ask
    share = 1.0 if _covered(study) else SEARCH_SHARE
    rest = _spent(
        study, searched.spent + resume_guard.usual(searched), len(searched.measured), share, SEARCH_SHARE
    )
    if not rest and (ask := _proposed(searched)) is not None:
        return ask
    if _spent(study, elapsed + resume_guard.usual(study, verifying=True), len(study.measured)):
        return None
    ask = verification.next_ask(study)
    kept = rest and len(searched.trials) == len(study.trials)
    return _proposed(searched) if ask is None and kept else ask  # kept to verify, and nothing is to be


def _proposed(searched: Study) -> Ask | None:
    """Ask the strategy.

    Raises:
        RunFailed: it asks for what it was told cannot be.
    """
    ask = plugins.strategy(searched.strategy).propose(searched)
    if ask is not None and key(ask.point) in searched.skipped:
        raise RunFailed(f"The strategy '{searched.strategy}' asks again for what it was told cannot be.")
    return ask


def _spent(study: Study, seconds: float, trials: int, of_trials: float = 1.0, of_time: float = 1.0) -> bool:
    """Say whether a share of the budget is spent after so many trials, or would be after so many seconds."""
    budget = study.budget
    if budget.max_trials is not None and trials >= math.ceil(of_trials * budget.max_trials):
        return True
    return budget.max_time is not None and seconds > of_time * budget.max_time


def _covered(study: Study) -> bool:
    """Say whether the budget names as many measurements as a grid has points, or more."""
    most = study.budget.max_trials
    return study.strategy == GRID and most is not None and most >= study.space.size


def _enough_of_default(study: Study, ask: Ask) -> bool:
    """Say whether the measurements that are left are for others: for the points of a grid in any case."""
    most = study.budget.max_trials
    if most is None:
        return False
    share = max(1, DEFAULT_SHARE * most)
    if _covered(study):
        share = math.inf if study.space.holds(ask.point) else min(share, most - study.space.size)
    return sum(trial.stage is Stage.DEFAULT for trial in study.measured) >= share


# --- a trial ---------------------------------------------------------------------------------------


def _tried(study: Study, ask: Ask, room: Rooms, guard: resume_guard.Guard) -> Step | None:
    """Make a trial; None where it was interrupted."""
    number, begun = len(study.trials) + 1, time.monotonic()
    try:
        job = looking(placed(study, ask.point), study.goal, ask)
        _check_start(study, ask)
        result = room(job, fresh=verification.fresh(study, ask))(job, watch=guard)
    except (StaleStudy, UnknownName, TrustRequired, Unloadable):
        raise  # what is wrong is wrong at every point
    except RequestError as error:
        if ask.stage is not Stage.SEARCH:  # the default has to be there, and what is verified was
            raise
        trial = Trial(
            number=number,
            point=ask.point,
            state=State.SKIPPED,
            stage=ask.stage,
            failure=str(error),
            seconds=time.monotonic() - begun,
        )
        return study.add(trial), trial, None
    if any(doubt.code == "interrupted" for doubt in result.doubts):
        return None
    result = replace(result, doubts=(*result.doubts, *guard.doubts))
    trial = Trial.of(result, study.goal, ask, number=number, seconds=time.monotonic() - begun)
    return _known(study, result).add(trial), trial, result


def _check_start(study: Study, ask: Ask) -> None:
    """Start no server again that did not start under another load.

    Raises:
        RequestError: it did not.
    """
    wanted = study.configuration(ask.point)
    same = [trial for trial in study.measured if study.configuration(trial.point) == wanted]
    if ask.stage is Stage.SEARCH and same and all(_unstarted(trial) for trial in same):
        raise RequestError(f"It did not start under another load: {same[0].failure}")


def _unstarted(trial: Trial) -> bool:
    """Say whether no load was put on it: the stage that failed stands before what went wrong."""
    return trial.state is State.FAILED and trial.failure.partition(":")[0] == _STARTING


_STARTING = "open"


def _known(study: Study, result: Result) -> Study:
    """Note what the trials are of, and where, as the first tells it."""
    if study.model is not None or result.model is None:
        return study
    return replace(study, model=result.model, environment=result.environment)


def _check_hope(study: Study, result: Result, made: int) -> None:
    """End a sweep of which nothing can come.

    Raises:
        RunFailed: so many trials failed, and none succeeded.
        RequestError: what the goal asks for is not measured.
    """
    done = [trial for trial in study.measured if trial.state is State.DONE]
    if not done and made >= _HOPELESS:
        failure = result.failures[0]
        last = next((line for line in reversed(failure.log.splitlines()) if line.strip()), "")
        raise RunFailed(
            f"The first {len(study.measured)} trials failed, in {failure.where}: {failure.message}"
            f"{f'; its log ends with: {last.strip()}' if last else ''}; "
            f"modeldyno show {result.id} has the log."
        )
    if len(done) == 1 and not result.failures:
        for query in study.goal.queries:
            try:
                Answer.to(query, result.measurements)
            except (RunFailed, RequestError) as error:
                raise RequestError(
                    f"The goal asks for {query}, which a trial does not tell: {error}"
                ) from error

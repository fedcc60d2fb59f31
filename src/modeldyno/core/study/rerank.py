"""Judge a finished study by another goal, from the stored measurements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.study.study import Trial, TrialRequest, TrialState

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.result.result import Result
    from modeldyno.core.study.goal import Goal
    from modeldyno.core.study.study import Study


def rerank_study(study: Study, goal: Goal, result: Callable[[str], Result | None]) -> tuple[Study, int]:
    """Return the study under another goal, and how many trials lack some of its metrics.

    Args:
        study: measured for another goal, or this one.
        goal: the new goal.
        result: returns a Result by its id; None if it is not stored.
    """
    trials = [_rejudge(trial, goal, result) for trial in study.trials]
    unknown = sum(
        trial.state is TrialState.DONE and any(trial.ask(query) is None for query in goal.queries)
        for trial in trials
    )
    return replace(study, goal=goal, trials=tuple(trials)), unknown


def _rejudge(trial: Trial, goal: Goal, result: Callable[[str], Result | None]) -> Trial:
    """Judge a trial by its stored Result, or else by what the study kept of it."""
    if trial.state is TrialState.SKIPPED:
        return trial
    stored = result(trial.result) if trial.result else None
    if stored is None:
        judgements = (bound.on(answer) for bound in goal.constraints if (answer := trial.ask(bound.query)))
        return replace(trial, judgements=tuple(judgements))
    ask = TrialRequest(point=trial.point, stage=trial.stage, care=trial.care)
    rejudged = Trial.of(stored, goal, ask, number=trial.number, seconds=trial.seconds)
    return replace(
        rejudged,
        state=trial.state,
        doubts=trial.doubts,
        failure=trial.failure,
        kind=trial.kind,
        failed_stage=trial.failed_stage,
    )

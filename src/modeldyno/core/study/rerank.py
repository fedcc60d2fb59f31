"""A finished study under another goal: what was measured stays, and is asked anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.study.study import Ask, State, Trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.result.result import Result
    from modeldyno.core.study.goal import Goal
    from modeldyno.core.study.study import Study


def reranked(study: Study, goal: Goal, result: Callable[[str], Result | None]) -> tuple[Study, int]:
    """Give the study with another goal, and how many trials could not be asked all of it.

    Args:
        study: measured for another goal, or this one.
        goal: what to look for now.
        result: gives a Result by its id; None where it is no longer kept.
    """
    asked = [_asked(trial, goal, result) for trial in study.trials]
    unknown = sum(
        trial.state is State.DONE and any(trial.ask(query) is None for query in goal.queries)
        for trial in asked
    )
    return replace(study, goal=goal, trials=tuple(asked)), unknown


def _asked(trial: Trial, goal: Goal, result: Callable[[str], Result | None]) -> Trial:
    """Ask the Result, where it is kept; else what the study kept of it."""
    if trial.state is State.SKIPPED:
        return trial
    found = result(trial.result) if trial.result else None
    if found is None:
        judged = (bound.on(answer) for bound in goal.constraints if (answer := trial.ask(bound.query)))
        return replace(trial, judgements=tuple(judged))
    ask = Ask(point=trial.point, stage=trial.stage, care=trial.care)
    anew = Trial.of(found, goal, ask, number=trial.number, seconds=trial.seconds)
    return replace(anew, state=trial.state, doubts=trial.doubts, failure=trial.failure, kind=trial.kind)

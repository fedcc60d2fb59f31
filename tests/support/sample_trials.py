"""Trials with given answers, for tests."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.constraints import Answer
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import Query
from modeldyno.sweeps.study.study import Trial, TrialPurpose, TrialState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.sweeps.study.study import Study

Z95 = 1.959964


def an_answer(query: str, value: float | None, *, error: float = 0.01, **parts: object) -> Answer:
    """Return an answer whose logarithm has the given standard error; 0 for a single observation."""
    parsed = Query.parse(query)
    if value is None or not error or "interval" in parts or parts.get("exact"):
        return Answer(query=parsed, value=value, **parts)  # type: ignore[arg-type]
    factor = math.exp(Z95 * error)
    return Answer(query=parsed, value=value, interval=Interval(low=value / factor, high=value * factor))


def a_trial(
    point: Mapping[str, KnobValue],
    *answers: Answer,
    stage: TrialPurpose = TrialPurpose.SEARCH,
    state: TrialState = TrialState.DONE,
    care: float = 1.0,
    doubts: tuple[str, ...] = (),
) -> Trial:
    """Return a trial; a study assigns its number."""
    failed = state is TrialState.FAILED
    return Trial(
        number=0,
        point=dict(point),
        answers=answers,
        stage=stage,
        state=state,
        care=care,
        doubts=doubts,
        failure="open: it failed" if failed else "",
        kind="error" if failed else "",
        failed_stage="open" if failed else "",
    )


def add_trials(study: Study, trials: Iterable[Trial]) -> Study:
    """Add trials to a study, numbered and judged as by a sweep."""
    for trial in trials:
        by_query = {answer.query: answer for answer in trial.answers}
        judgements = (
            bound.on(by_query[bound.query]) for bound in study.goal.constraints if bound.query in by_query
        )
        study = study.add(replace(trial, number=len(study.trials) + 1, judgements=tuple(judgements)))
    return study

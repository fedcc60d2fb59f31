"""Recompute a study from the results that it was made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.recompute.checks import FigureCheck, compare
from modeldyno.core.recompute.result import (
    check_judgement_list,
    check_parts,
    keep_answers,
)
from modeldyno.core.study.ranking import ranking
from modeldyno.core.study.study import Study, Trial, TrialRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from modeldyno.core.recompute.checks import Plain
    from modeldyno.core.result.result import Result

    FindResult = Callable[[str], Result | None]
    """Gives the Result of an id; None if there is none."""


def check_study(written: Mapping[str, Plain], study: Study, find_result: FindResult) -> Iterator[FigureCheck]:
    """Yield a check of every trial of a study, by its Result, and of the ranking by the trials."""
    for trial in study.trials:
        place, result = f"trial {trial.number}", find_result(trial.result) if trial.result else None
        yield from check_judgement_list(place, trial.judgements)
        if result is None:
            yield from keep_answers(place, trial.answers, trial.result)
        else:
            request = TrialRequest(point=trial.point, stage=trial.stage, care=trial.care)
            again = Trial.of(result, study.goal, request, number=trial.number, seconds=trial.seconds)
            parts = ("answers", "judgements", "doubts", *(("slowed",) if trial.slowed > 1 else ()))
            yield from check_parts(place, trial, again, parts)
    if written.get("ranking") is not None:
        yield from compare("ranking", written["ranking"], ranking(study), "the trials")

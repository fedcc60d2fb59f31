"""Recompute a study from the results that it was made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.figure_checks import FigureCheck, compare
from modeldyno.profiling.recompute import check_judgement_list, check_parts, keep_answers
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.study.study import Study, Trial, TrialRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from modeldyno.base.report.figure_checks import Plain
    from modeldyno.base.result.result import Result

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

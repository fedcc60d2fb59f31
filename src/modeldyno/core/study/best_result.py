"""The winner of a study as one Result, for comparing the study with other Results."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.result.result import Result, merge
from modeldyno.core.study.ranking import ranking
from modeldyno.core.study.search_space import key
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.study.study import Study


def winner(study: Study, find_result: Callable[[str], Result | None]) -> Result:
    """Pool the Results of the trials behind the figures of the best configuration.

    Args:
        study: the study; its goal decides what is best.
        find_result: returns a Result by its id; None if it is not stored.

    Raises:
        RequestError: the study has no winner, or the Results of its trials are not stored.
    """
    name = study.name or study.id[:6]
    best = ranking(study).best
    if best is None:
        raise RequestError(f"The study {name} has no winner: no measurement shows that its bounds hold.")
    stored = [find_result(trial.result) for trial in study.candidates[key(best.point)].quoted_trials]
    results = [result for result in stored if result is not None]
    if not results:
        raise RequestError(
            f"The results of the trials of the study {name} are not in the store. A study is compared by the "
            "results of its winner, so compare it where they are."
        )
    doubt = Doubt(
        code="study-winner",
        seen=f"it is the best of {len(study.candidates)} points of the study {name}, chosen for its figures",
        advice="add `run` to measure the winners in turns, in fresh processes",
    )
    pooled = merge(results)
    return replace(pooled, doubts=(*pooled.doubts, doubt))

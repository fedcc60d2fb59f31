"""The winner of a study, as one Result: what stands for the study where it is compared."""

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


def winner(study: Study, kept: Callable[[str], Result | None]) -> Result:
    """Pool the Results of the trials that the figures of the best configuration come from.

    Args:
        study: whose goal says what is best.
        kept: gives a Result by its id; None where there is none any more.

    Raises:
        RequestError: the study has no winner, or the Results of its trials are not there.
    """
    name = study.name or study.id[:6]
    best = ranking(study).best
    if best is None:
        raise RequestError(
            f"The study {name} has no winner: nothing that was measured is shown to hold its bounds."
        )
    found = [kept(trial.result) for trial in study.candidates[key(best.point)].telling]
    whole = [result for result in found if result is not None]
    if not whole:
        raise RequestError(
            f"The results of the trials of the study {name} are not in the store; a study is compared by the "
            "results of its winner, so compare it where they are."
        )
    chosen = Doubt(
        code="study-winner",
        seen=f"it is the best of {len(study.candidates)} points of the study {name}, chosen for its figures",
        advice="add --run to measure the winners in turns, in fresh processes",
    )
    pooled = merge(whole)
    return replace(pooled, doubts=(*pooled.doubts, chosen))

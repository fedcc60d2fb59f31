"""The best configurations over several models: the studies of each, ranked together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.core.study.bootstrap import Resamples, scored_candidates, scores
from modeldyno.core.study.ranking import RESAMPLES, RankedConfiguration, ranking
from modeldyno.core.study.search_space import key
from modeldyno.core.study.study import Study
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A configuration of one of several models."""

    rank: int
    """From 1, over all models."""
    study: Study
    row: RankedConfiguration
    """With its rank in its own study."""
    share: float
    """Share of resamples in which it is the best of all models, by the errors within each study."""


def rank_models(studies: Sequence[Study], top: int | None = None) -> tuple[ModelRow, ...]:
    """Rank the configurations of several studies together, by their common objectives.

    Only those that probably hold the bounds of their own study, and have a value of every objective, have a
    place. Figures of different models are compared as they are: what the machine did differently from one
    study to the next is in no share.

    Args:
        studies: at least one; all have the same objectives.
        top: number of configurations; all if None.

    Raises:
        RequestError: the studies have different objectives.
    """
    goals = {tuple(map(str, study.goal.objectives)): study.goal for study in studies}
    if len(goals) > 1:
        first, other = [" and ".join(aims) for aims in goals][:2]
        raise RequestError(
            f"Models with different objectives cannot be ranked together: '{first}' and '{other}'."
        )
    rows: list[tuple[Study, RankedConfiguration]] = []
    draws: list[Resamples] = []
    for place, study in enumerate(studies):
        contenders = {key(each.candidate.point): each for each in scored_candidates(study)}
        placed = [row for row in ranking(study).rows if _has_place(row)]
        rows += [(study, row) for row in placed]
        draws.append(Resamples.of(study, [contenders[key(row.point)] for row in placed], RESAMPLES, place))
    if not rows:
        return ()
    (goal,) = goals.values()
    heights = scores([row.objectives for _, row in rows], goal)
    wins = Resamples.side_by_side(draws).wins()
    order = sorted(range(len(rows)), key=lambda place: (-heights[place], place))[:top]
    return tuple(
        ModelRow(rank=rank, study=rows[place][0], row=rows[place][1], share=wins[place] / RESAMPLES)
        for rank, place in enumerate(order, 1)
    )


def _has_place(row: RankedConfiguration) -> bool:
    return row.feasible and not row.failure and None not in row.objectives

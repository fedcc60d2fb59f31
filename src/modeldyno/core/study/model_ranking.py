"""The best configurations over several models: the studies of each, ranked together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.core.study.bootstrap import scores
from modeldyno.core.study.ranking import RankedConfiguration, ranking
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


def rank_models(studies: Sequence[Study], top: int | None = None) -> tuple[ModelRow, ...]:
    """Rank the configurations of several studies together, by their common objectives.

    Only those that probably hold the bounds of their own study, and have a value of every objective, have a
    place. Figures of different models are compared as they are: the studies were made one after the other.

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
    pairs = [
        (study, row)
        for study in studies
        for row in ranking(study).rows
        if row.feasible and not row.failure and None not in row.objectives
    ]
    if not pairs:
        return ()
    (goal,) = goals.values()
    heights = scores([row.objectives for _, row in pairs], goal)
    order = sorted(range(len(pairs)), key=lambda place: (-heights[place], place))[:top]
    return tuple(
        ModelRow(rank=rank, study=pairs[place][0], row=pairs[place][1]) for rank, place in enumerate(order, 1)
    )

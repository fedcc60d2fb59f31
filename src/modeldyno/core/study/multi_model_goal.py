"""The goal of a sweep over several models on one server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.load.multi_model import bounds_of_each_model, expand_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.study.goal import Goal


def goal_of_each_model(goal: Goal, own: str, beside: Sequence[str]) -> Goal:
    """Return the goal with an objective and a bound for every model where it names none.

    Weights are kept per objective: ``throughput@a:2`` counts twice as much as ``throughput@b``.
    """
    return replace(
        goal,
        objectives=tuple(
            replace(o, query=q) for o in goal.objectives for q in expand_query(o.query, own, beside)
        ),
        constraints=bounds_of_each_model(goal.constraints, own, beside),
    )

"""Exhaustive grid search; points of one configuration are consecutive, so that its server keeps running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.sweeps.strategies.study_history import open_points
from modeldyno.sweeps.study.study import TrialRequest

if TYPE_CHECKING:
    from modeldyno.sweeps.study.study import Study

requires: tuple[str, ...] = ()


def propose(study: Study) -> TrialRequest | None:
    """Return the first unmeasured point; points that need more memory than available are skipped."""
    point = next(open_points(study), None)
    return None if point is None else TrialRequest(point=point)

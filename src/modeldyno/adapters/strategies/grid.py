"""Every point of the space, once; those of a configuration together, so that its server stays open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.adapters.strategies.study_history import open_points
from modeldyno.core.study.study import Ask

if TYPE_CHECKING:
    from modeldyno.core.study.study import Study

requires: tuple[str, ...] = ()


def propose(study: Study) -> Ask | None:
    """Give the first point that was not measured; what needs more memory than there was is left out."""
    point = next(open_points(study), None)
    return None if point is None else Ask(point=point)

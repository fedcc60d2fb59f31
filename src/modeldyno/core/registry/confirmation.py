"""Whether a stale figure that was measured again is still what it was."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from modeldyno.core.comparison.change_test import judge_change
from modeldyno.core.comparison.comparison import ChangeVerdict
from modeldyno.core.comparison.default_metrics import headline_queries
from modeldyno.core.comparison.gate_report import describe_change
from modeldyno.core.comparison.trend import Scatter
from modeldyno.core.study.pooled_estimate import PRIOR

if TYPE_CHECKING:
    from modeldyno.core.result.result import Result

ALIKE = 0.15
"""Largest relative change with which a figure is still what it was."""
_LEVEL = 0.90
"""Of the interval that must lie within `ALIKE`: two one-sided tests at 5 %. Each metric must pass, so that
several need no wider ones."""
_STARTS = Scatter(relative=PRIOR, degrees=1000, covers=False)
"""How figures of one process each vary from start to start: taken as known, as two do not show it."""


class Confirmed(StrEnum):
    """What measuring a stale figure again has shown."""

    CONFIRMED = "confirmed"
    """The new numbers are equivalent to the old ones."""
    CHANGED = "changed"
    """At least one surely is not."""
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A stale figure against the one that replaces it."""

    outcome: Confirmed
    before: str
    """Id of the old Result."""
    change: str
    """Each number before and after, in words."""


def confirmation(before: Result, after: Result) -> Confirmation:
    """Compare the Result of a stale figure with the new one.

    The headline numbers are judged, as `modeldyno compare` does. A model that fails by now has changed.
    """
    if after.failure is not None:
        change = f"{after.failure.where}: {after.failure.message}"
        return Confirmation(outcome=Confirmed.CHANGED, before=before.id, change=change)
    changes = [
        judge_change(query, old, new, smallest=ALIKE, level=_LEVEL, scatter=_STARTS)
        for query in headline_queries(before, after)
        if (old := before.find(query.metric)) is not None and (new := after.find(query.metric)) is not None
    ]
    outcomes = {change.outcome for change in changes}
    if outcomes & {ChangeVerdict.WORSE, ChangeVerdict.BETTER}:
        outcome = Confirmed.CHANGED
    else:
        outcome = Confirmed.CONFIRMED if outcomes == {ChangeVerdict.SAME} else Confirmed.UNDECIDED
    sentence = "; ".join(f"{change.query}: {describe_change(change)}" for change in changes)
    return Confirmation(outcome=outcome, before=before.id, change=sentence or "nothing was measured in both")

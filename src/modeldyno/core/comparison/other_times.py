"""What a difference shows if its two sides were measured at different times.

A machine is not as fast at one time as at another, and other processes may have slowed one side down and not
the other. So a side is better or worse only beyond what these can do, and two are the same only if neither
may have hidden a change. Counts and answers do not depend on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.core.comparison.comparison import Change, ChangeVerdict
from modeldyno.core.metrics.metric import ANSWERS, METRICS, Better, Query
from modeldyno.core.result.result import Result
from modeldyno.core.result.slowdown import MOMENTS, slowdown_by_others

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherTimes:
    """A baseline and a candidate that were measured at different times."""

    baseline: Result
    candidate: Result
    known: Collection[Query] = ()
    """Queries whose intervals include what the machine does from one time to another."""

    def judged(self, changes: Iterable[Change], apart: Iterable[Change]) -> tuple[Change, ...]:
        """Return the changes, undecided where the machine may explain or hide them.

        Args:
            changes: by the intervals of what was measured.
            apart: the same, with intervals that include what the machine may do from one time to another.
        """
        return tuple(
            change if not (why := self._why_open(change, other)) else _undecided(change, why)
            for change, other in zip(changes, apart, strict=True)
        )

    def is_evident(self, change: Change) -> bool:
        """Return whether it is worse, or better, by more than the machine explains."""
        if change.outcome not in {ChangeVerdict.WORSE, ChangeVerdict.BETTER}:
            return False
        if not _depends_on_machine(change):
            return True
        assert change.interval is not None
        nearest = min(abs(math.log1p(end)) for end in (change.interval.low, change.interval.high))
        return nearest > math.log1p(self._moments(change)) + math.log(self.slowdown(change))

    def slowdown(self, change: Change) -> float:
        """Return by which factor others may have slowed down the side that does worse in this metric."""
        lower = METRICS[change.query.metric].better is Better.LOWER
        candidate = change.difference is not None and (change.difference > 0) is lower
        return slowdown_by_others(self.candidate if candidate else self.baseline, change.query)

    def may_hide(self, change: Change) -> bool:
        """Return whether others slowed the baseline so much that a worse candidate may seem as good."""
        return _depends_on_machine(change) and slowdown_by_others(self.baseline, change.query) > 1 + MOMENTS

    def explain(self, change: Change) -> str:
        """Explain why a difference need not be one of the model."""
        factor = self.slowdown(change)
        if factor > 1:
            return f"other processes may have made one side up to {factor:.2g} times slower"
        return f"a machine may differ by {MOMENTS:.0%} from one time to another"

    def _moments(self, change: Change) -> float:
        return 0.0 if change.query in self.known else MOMENTS

    def _why_open(self, change: Change, apart: Change) -> str:
        """Return why a verdict is none between two times; empty if it holds."""
        if change.outcome is ChangeVerdict.UNDECIDED or not _depends_on_machine(change):
            return ""
        if change.outcome is not ChangeVerdict.SAME:
            return "" if self.is_evident(change) else self.explain(change)
        slowest = max(slowdown_by_others(side, change.query) for side in (self.baseline, self.candidate))
        if slowest > 1 + MOMENTS:
            return HIDDEN
        return "" if apart.outcome is ChangeVerdict.SAME else "the machine may have changed in between"


HIDDEN = "other processes slowed one side down, which may hide a change"


def _undecided(change: Change, why: str) -> Change:
    return replace(change, outcome=ChangeVerdict.UNDECIDED, why=f"{why}; {change.why}")


def _depends_on_machine(change: Change) -> bool:
    """Return whether it was measured in time: not counted, and not what a model answers."""
    varies = change.interval is not None and change.interval.low != change.interval.high
    return varies and METRICS[change.query.metric].kin != ANSWERS

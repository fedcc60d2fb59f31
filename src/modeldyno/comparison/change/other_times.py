"""What a difference shows if its two sides were measured at different times.

A machine is not as fast at one time as at another, and other processes may have slowed one side down and not
the other. So a side is better or worse only beyond what these can do, two are the same only if neither may
have hidden a change, and both only if what single processes of the two do shows it as well. Counts and
answers do not depend on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import ANSWERS, METRICS, Better, Query
from modeldyno.base.result.result import Result
from modeldyno.base.result.slowdown import MOMENTS, explain_slowdown, slowdown_by_others
from modeldyno.comparison.change.comparison import Change, ChangeVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherTimes:
    """A baseline and a candidate that were measured at different times."""

    baseline: Result
    candidate: Result
    known: Collection[Query] = ()
    """Queries whose intervals include what the machine does from one time to another."""

    def judge(self, changes: Iterable[Change], apart: Iterable[Change]) -> tuple[Change, ...]:
        """Return the changes, undecided where the machine may explain or hide them.

        Args:
            changes: by the intervals of what was measured.
            apart: the same, with intervals that include what the machine may do from one time to another.
        """
        return tuple(self._judge_one(change, other) for change, other in zip(changes, apart, strict=True))

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
        candidate_is_worse = change.difference is not None and (change.difference > 0) is lower
        return self._slowdowns(change)[candidate_is_worse]

    def may_hide(self, change: Change) -> bool:
        """Return whether others slowed the baseline so much that a worse candidate may seem as good."""
        return _depends_on_machine(change) and slowdown_by_others(self.baseline, change.query) > 1 + MOMENTS

    def _moments(self, change: Change) -> float:
        return 0.0 if change.query in self.known else MOMENTS

    def _judge_one(self, change: Change, apart: Change) -> Change:
        if change.outcome is ChangeVerdict.UNDECIDED or not _depends_on_machine(change):
            return change
        if change.outcome is ChangeVerdict.SAME:
            if max(self._slowdowns(change)) > 1 + MOMENTS:
                why = "other processes slowed one side down, which may hide a change"
                return self._leave_open(change, why)
        elif not self.is_evident(change):
            return self._leave_open(change, self._explain(change))
        if apart.outcome is change.outcome:
            return change
        why = f"the machine may have changed in between; {change.why}"
        return replace(apart, outcome=ChangeVerdict.UNDECIDED, why=why)

    def _leave_open(self, change: Change, why: str) -> Change:
        """Return the change as undecided, with an interval that includes what the machine may have done."""
        assert change.interval is not None
        by_baseline, by_candidate = (
            factor * (1 + self._moments(change)) for factor in self._slowdowns(change)
        )
        if METRICS[change.query.metric].better is Better.HIGHER:  # of a rate, slower is less
            by_baseline, by_candidate = by_candidate, by_baseline
        interval = Interval(
            low=(1 + change.interval.low) / by_candidate - 1,
            high=(1 + change.interval.high) * by_baseline - 1,
        )
        return replace(change, outcome=ChangeVerdict.UNDECIDED, interval=interval, why=f"{why}; {change.why}")

    def _slowdowns(self, change: Change) -> tuple[float, float]:
        """Return by which factors others may have slowed baseline and candidate down."""
        query = change.query
        return slowdown_by_others(self.baseline, query), slowdown_by_others(self.candidate, query)

    def _explain(self, change: Change) -> str:
        """Explain why a difference need not be one of the model."""
        return (
            explain_slowdown(self.slowdown(change), "one side")
            or f"a machine may differ by {MOMENTS:.0%} from one time to another"
        )


def _depends_on_machine(change: Change) -> bool:
    """Return whether it was measured in time: not counted, and not what a model answers."""
    varies = change.interval is not None and change.interval.low != change.interval.high
    return varies and METRICS[change.query.metric].family != ANSWERS

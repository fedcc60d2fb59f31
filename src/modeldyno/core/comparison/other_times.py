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
from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.metrics.metric import ANSWERS, METRICS, Better, Query
from modeldyno.core.result.result import Result
from modeldyno.core.stats.statistics import unpack_samples
from modeldyno.core.stats.units import RATE, SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

MOMENTS = 0.08
"""Relative difference of the same model on the same machine between two times.

Hosted machines differ by much more.
"""
_HALF = 0.5
"""Share of a core that a neighbour gets, and so the largest one that others are taken to have had while a
metric was measured, unless they had more in the whole pass."""
_MOST_TAKEN = 0.95
"""Largest share that others are taken to have had at all."""
TAKEN = {"interference": "foreign_cpu", "steal": "steal"}
"""Doubts that others took time of the cores, and the metric that says how much."""
_MEASURED_BY = {"throughput": "throughput", "batch_rate": "throughput", "latency": "latency"}
"""Metrics of calls, and the one whose samples say how long each was measured."""


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


def slowdown_by_others(result: Result, query: Query) -> float:
    """Return by which factor others may have slowed down what a metric measures; 1 if no doubt says so.

    What others took of the cores is known of the whole timed pass, and much of it may have been taken while
    this metric was measured.
    """
    codes = {doubt.code for doubt in result.doubts}
    if METRICS[query.metric].unit not in {SECONDS, RATE}:
        return 1.0
    taken = sum(result.number(metric) or 0.0 for code, metric in TAKEN.items() if code in codes)
    whole = taken / _cores(result)
    share = min(_MOST_TAKEN, max(whole, min(_HALF, whole / _share_of_pass(result, query.metric))))
    contradiction = (
        _contradiction(result) if "inconsistent" in codes and query.metric in _MEASURED_BY else 1.0
    )
    return max(1 / (1 - share), contradiction)


def _cores(result: Result) -> float:
    """Return the number of cores that could be used, at least one."""
    facts = result.environment.hardware
    limits = [facts.get("cpu_quota"), facts.get("cores_allowed"), len(result.job.plan.pin) or None]
    return max(1.0, min((float(n) for n in limits if isinstance(n, int | float)), default=1.0))


def _share_of_pass(result: Result, metric: str) -> float:
    """Return the share of the timed pass in which a metric was measured; 1 if that is not known."""
    seconds = {name: _seconds_of(result, name) for name in ("latency", "throughput")}
    own, whole = seconds.get(_MEASURED_BY.get(metric, ""), 0.0), sum(seconds.values())
    return own / whole if own else 1.0


def _seconds_of(result: Result, metric: str) -> float:
    """Return how long a metric of calls was measured, in all processes."""
    measurement = result.find(metric)
    if measurement is None:
        return 0.0
    if isinstance(measurement.value, Distribution):
        return float(sum(samples.sum() for samples in measurement.value.arrays()))
    return float(sum(unpack_samples(sums.counts).sum() for sums in measurement.windows))


def _contradiction(result: Result) -> float:
    """Return by which factor mean latency and rate of calls contradict each other, at least 1."""
    latency, rate = result.find("latency"), result.number("batch_rate")
    if latency is None or not isinstance(latency.value, Distribution) or not rate:
        return 1.0
    product = latency.value.statistic("mean") * rate
    return max(product, 1 / product)

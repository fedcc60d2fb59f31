"""Test the change of a metric that is evaluated on labelled samples, sample by sample if both have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.comparison.change_verdict import TestedChange, judge_direction, judge_interval
from modeldyno.core.comparison.comparison import ChangeVerdict
from modeldyno.core.metrics.measurement import Distribution, Interval
from modeldyno.core.stats.statistics import unpack_samples

if TYPE_CHECKING:
    from modeldyno.core.metrics.measurement import Measurement
    from modeldyno.core.metrics.metric import Query
    from modeldyno.core.stats.evaluation import Evaluation


def compare_evaluations(
    query: Query, baseline: Measurement, candidate: Measurement, smallest: float, level: float
) -> TestedChange:
    """Compare two evaluations: sample by sample if both answered the same samples.

    More processes would answer alike, so the samples are what is uncertain.
    """
    from modeldyno.core.stats.evaluation import (  # noqa: PLC0415 - numpy is slow to import
        independent_difference,
        paired_difference,
    )

    before, after = _to_evaluation(baseline), _to_evaluation(candidate)
    identical = False
    if baseline.scores and candidate.scores and baseline.scores.data == candidate.scores.data:
        one, other = unpack_samples(baseline.scores.values), unpack_samples(candidate.scores.values)
        why, identical = f"the same {len(one):,} samples", bool((one == other).all())
        ends = paired_difference(query.metric, one, other, level)
    else:
        why, ends = "not paired by sample", independent_difference(before, after, level)
    ratio, low, high = (end / (before.value or 1.0) for end in ends)
    interval = Interval(low=low, high=high)
    if identical:
        outcome, why = ChangeVerdict.SAME, f"no score of {why} differs"
    elif before.value:
        outcome = judge_interval(query, ratio, interval, smallest)
    else:
        outcome = judge_direction(query, ratio) if low > 0 or high < 0 else ChangeVerdict.UNDECIDED
    if outcome is ChangeVerdict.UNDECIDED:
        why = f"more labelled samples are needed; {why}"
    if not before.value:
        return TestedChange(outcome=outcome, why=why)
    return TestedChange(outcome=outcome, why=why, difference=ratio, interval=interval)


def _to_evaluation(measurement: Measurement) -> Evaluation:
    from modeldyno.core.stats.evaluation import Evaluation  # noqa: PLC0415 - numpy is slow to import

    value, interval = measurement.value, measurement.interval
    assert interval is not None
    assert not isinstance(value, Distribution)
    return Evaluation(float(value), interval.low, interval.high)

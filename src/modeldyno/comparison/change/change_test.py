"""Test the changes between baseline and candidate: difference of each metric, its interval, and the verdict.

The unit of replication is the process. Each process gives one number, the requested statistic of its samples.
The trimmed means of their logarithms are compared by the interval of Yuen and Welch, or by the paired one if
the runs were interleaved, so that common disturbances of a round cancel out. A metric is worse (or better) if
the interval excludes no change and the estimate exceeds the smallest effect that matters. It is the same if
the whole interval lies within that effect, or if all numbers lie closer together than allocators take memory.
Everything else is undecided. The two figures of a change are the compared ones, so that they agree with its
difference.

Two that were measured at different times differ by what the machine did in between as well. What it does from
one process to the next is the least of that, so that the interval by which unchanged code is recognised is
that of a process of another time, a prediction interval, unless the model's history spans such a time.

Intervals are widened for the number of metrics judged together (Bonferroni). Related metrics, such as latency
and throughput, count once: their errors are the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev
from types import MappingProxyType
from typing import TYPE_CHECKING

from modeldyno.base.metrics.constraints import Answer
from modeldyno.base.metrics.doubt import FEW_PROCESSES, OTHER_WORK
from modeldyno.base.metrics.measurement import TIMES_OF_CALLS, WHY_VOID, Distribution, Interval
from modeldyno.base.metrics.metric import METRICS, Better, Query, fraction_of
from modeldyno.base.stats import quiet_runs_test, student_t
from modeldyno.base.stats.statistics import Z, quantile, unpack_samples
from modeldyno.base.stats.units import RATE, SECONDS, format_quantity
from modeldyno.comparison.change.comparison import SMALLEST_EFFECT, Change, ChangeVerdict
from modeldyno.comparison.change.default_metrics import (
    SMALLEST,
    count_families,
    headline_queries,
    smallest_effect,
)
from modeldyno.comparison.change.trend import Scatter
from modeldyno.sweeps.study.pooled_estimate import PRIOR, PRIOR_DEGREES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.base.result.result import Result
    from modeldyno.base.stats.evaluation import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class TestedChange:
    """What a test says of one metric."""

    outcome: ChangeVerdict
    why: str
    """Why it is undecided, or what the verdict is based on."""
    difference: float | None = None
    interval: Interval | None = None
    figures: tuple[float, float] | None = None
    """Of both sides, if what is compared differs from what their Results report."""


def judge_interval(query: Query, difference: float, interval: Interval, smallest: float) -> ChangeVerdict:
    """Judge the interval against no change, and the estimate against what matters.

    What matters is symmetric: a factor of 1 + smallest either way.
    """
    least, most = 1 / (1 + smallest) - 1, smallest
    if least <= interval.low and interval.high <= most:
        return ChangeVerdict.SAME
    if (interval.low > 0 and difference > most) or (interval.high < 0 and difference < least):
        return judge_direction(query, difference)
    return ChangeVerdict.UNDECIDED


def judge_direction(query: Query, difference: float) -> ChangeVerdict:
    """Judge a difference that is sure: by the direction in which the metric improves."""
    better = METRICS[query.metric].better
    if better is Better.NEITHER:
        return ChangeVerdict.UNDECIDED
    return ChangeVerdict.BETTER if (difference < 0) is (better is Better.LOWER) else ChangeVerdict.WORSE


LEVEL = 0.95
FEWEST = 3
"""Processes per side from which on their own spread shows how starts differ."""
_TRIM = 0.15
"""Share of the processes that is trimmed at either end."""


NOT_THE_SAME_WORK = "they may not do the same work"


def stays_unknown(change: Change) -> bool:
    """Return whether no further run shows more: a value is void, or the two do not do the same work."""
    return change.why in WHY_VOID.values() or change.why.endswith(NOT_THE_SAME_WORK)


def judge_changes(
    baseline: Result,
    candidate: Result,
    *,
    smallest: Mapping[str, float] = SMALLEST,
    queries: Iterable[Query | str] | None = None,
    level: float = LEVEL,
    paired: bool = False,
    apart: bool = False,
    history: Mapping[Query, Scatter] = MappingProxyType({}),
) -> tuple[Change, ...]:
    """Judge several metrics together.

    Args:
        baseline: the reference.
        candidate: the Result to judge.
        smallest: the smallest relative effect that matters, by query, by metric, or under ``ALL`` for the
        rest.
        queries: what to judge; by default the headline metrics that both have.
        level: joint confidence of all intervals.
        paired: whether process i of both ran in the same round, interleaved or one right after the other.
        apart: whether the interval includes what the machine may do between the times of the two.
        history: the variation between stored results of the model, if known.
    """
    judged_queries = (
        headline_queries(baseline, candidate) if queries is None else tuple(map(_to_query, queries))
    )
    measured = [
        (query, _find_measurement(baseline, query), _find_measurement(candidate, query))
        for query in judged_queries
    ]
    level_each = 1 - (1 - level) / max(1, count_families(measured))
    changes = (
        _missing_change(query, before, after, smallest, _why_missing(query, baseline, candidate))
        if before is None or after is None
        else judge_change(
            query,
            before,
            after,
            smallest=smallest_effect(query, smallest),
            level=level_each,
            paired=paired,
            apart=apart,
            scatter=history.get(query),
        )
        for query, before, after in measured
    )
    why = _other_work(baseline, candidate)
    return tuple(
        replace(change, outcome=ChangeVerdict.UNDECIDED, why=why, difference=None, interval=None)
        if why and change.query.metric in TIMES_OF_CALLS
        else change
        for change in changes
    )


def _other_work(baseline: Result, candidate: Result) -> str:
    """Return why the times of two models are not those of the same work; empty if nothing shows it."""
    before, after = ({d.code for d in each.doubts} & OTHER_WORK for each in (baseline, candidate))
    codes = ", ".join(sorted(before ^ after))
    return f"only one of them has the doubt {codes}: {NOT_THE_SAME_WORK}" if codes else ""


def judge_change(
    query: Query,
    baseline: Measurement,
    candidate: Measurement,
    *,
    smallest: float = SMALLEST_EFFECT,
    level: float = LEVEL,
    paired: bool = False,
    apart: bool = False,
    scatter: Scatter | None = None,
) -> Change:
    """Judge one metric.

    Args:
        query: names the statistic if the measurements are distributions.
        baseline: the reference.
        candidate: the measurement to judge.
        smallest: smallest relative effect that matters.
        level: confidence of the interval, two-sided.
        paired: whether process i of both ran in the same round.
        apart: whether the interval includes what the machine may do between the times of the two.
        scatter: the variation between stored results of the model; it replaces the prior for one or two
            processes, and widens the interval of more processes that differ by less.

    Raises:
        RequestError: the query does not fit the measurements.
    """
    before, after = Answer.to(query, (baseline,)), Answer.to(query, (candidate,))
    if before.value is None or after.value is None:
        reasons = sorted(filter(None, (before.why, after.why)), key=lambda why: why not in WHY_VOID.values())
        result = TestedChange(outcome=ChangeVerdict.UNDECIDED, why=reasons[0])  # what is void first
    elif baseline.is_evaluation and candidate.is_evaluation:
        result = compare_evaluations(query, baseline, candidate, smallest, level)
    elif before.exact and after.exact:
        result = _test_counts(query, before, after, smallest)
    else:
        baseline_numbers, candidate_numbers = (
            process_numbers(query, baseline),
            process_numbers(query, candidate),
        )
        own_error = math.hypot(
            _within_run_error(before, len(baseline_numbers)), _within_run_error(after, len(candidate_numbers))
        )
        options = _TestOptions(
            smallest=smallest, level=level, paired=paired, apart=apart, own=own_error, scatter=scatter
        )
        result = _test_numbers(query, baseline_numbers, candidate_numbers, options)
    return _to_change(query, before.value, after.value, result, smallest)


def judge_numbers(
    query: Query,
    before: Sequence[float],
    after: Sequence[float],
    *,
    smallest: float = SMALLEST_EFFECT,
    level: float = LEVEL,
    paired: bool = False,
) -> Change:
    """Judge one metric by the numbers of the processes alone."""
    result = _test_numbers(query, before, after, _TestOptions(smallest=smallest, level=level, paired=paired))
    return _to_change(query, median(before), median(after), result, smallest)


def _to_change(
    query: Query, before: float | None, after: float | None, result: TestedChange, smallest: float
) -> Change:
    baseline, candidate = result.figures or (before, after)
    return Change(
        query=query,
        baseline=baseline,
        candidate=candidate,
        difference=result.difference,
        interval=result.interval,
        outcome=result.outcome,
        smallest=smallest,
        why=result.why,
    )


def process_numbers(query: Query, measurement: Measurement) -> list[float]:
    """Return the one number of each process."""
    value = measurement.value
    if not isinstance(value, Distribution):
        return list(measurement.runs) or [float(value)]
    assert query.statistic is not None
    fraction = fraction_of(query.statistic)
    if fraction is not None:
        return [quantile(run, fraction) for run in value.arrays()]
    return [Distribution(runs=(run,)).statistic(query.statistic) for run in value.runs]


# --- the difference of two groups of processes ------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _TestOptions:
    """Options of the comparison of two groups of processes, as in `judge_change`."""

    smallest: float
    level: float
    paired: bool
    apart: bool = False
    own: float = 0.0
    """Standard error within the runs, if each stands alone."""
    scatter: Scatter | None = None


def _test_numbers(
    query: Query, before: Sequence[float], after: Sequence[float], options: _TestOptions
) -> TestedChange:
    """Test two sets of numbers, one for each process; those within an allocator's step are the same."""
    result, step = _test_ratio(query, before, after, options), METRICS[query.metric].resolution
    if not 0 < max(*before, *after) - min(*before, *after) <= step:
        return result
    why = f"all are within {format_quantity(step, query.unit)}, which an allocator takes at once"
    return replace(result, outcome=ChangeVerdict.SAME, why=why)


def _test_ratio(
    query: Query, before: Sequence[float], after: Sequence[float], options: _TestOptions
) -> TestedChange:
    smallest, level, paired = options.smallest, options.level, options.paired
    if min(*before, *after) <= 0:
        return _test_by_rank(query, before, after, level)
    logs = [math.log(n) for n in before], [math.log(n) for n in after]
    ratio, error, degrees, how = _log_ratio(
        *logs, options.own, METRICS[query.metric].prior_spread, paired=paired
    )
    if options.scatter is not None and (_are_few(*logs) or options.scatter.of_a_difference > error):
        error, degrees = max(options.scatter.of_a_difference, options.own), options.scatter.degrees
        how = (
            f"{_count_processes(*map(len, logs))}, and the variation of stored results of it "
            f"({options.scatter.relative:.2g})"
        )
    if options.apart and not (options.scatter and options.scatter.covers) and not _are_few(*logs):
        error = math.hypot(error, *map(stdev, logs))
    reference = _reference_log(*logs)
    reach = student_t.upper_tail_quantile((1 - level) / 2, degrees) * error if error else 0.0
    if paired and reach > math.log1p(smallest) and len(before) == len(after) >= quiet_runs_test.FEWEST:
        sign = {SECONDS: 1, RATE: -1}.get(query.unit, 0)
        quiet = _compare_quiet_runs(logs, sign, level, smallest) if sign else (ratio, math.inf)
        if quiet[1] < reach:
            (ratio, reach), how = quiet, f"the fastest of {how}, because others slowed this machine down"
            reference = sign * quiet_runs_test.fastest_runs_mean([sign * log for log in logs[0]])
    difference, interval = (
        _relative_change(ratio),
        Interval(low=_relative_change(ratio - reach), high=_relative_change(ratio + reach)),
    )
    outcome = judge_interval(query, difference, interval, smallest)
    why = (
        how
        if outcome is not ChangeVerdict.UNDECIDED
        else f"{_explain_undecided(query, interval, smallest)}; {how}"
    )
    figures = math.exp(reference), math.exp(reference + ratio)
    return TestedChange(outcome=outcome, why=why, difference=difference, interval=interval, figures=figures)


def _reference_log(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the logarithm of the baseline of the difference."""
    return fmean(before) if _are_few(before, after) else _trimmed_mean(before)[0]


def _are_few(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether there are too few processes to show how starts differ."""
    return min(len(before), len(after)) < FEWEST


def _compare_quiet_runs(
    logs: tuple[list[float], list[float]], sign: int, level: float, smallest: float
) -> tuple[float, float]:
    """Compare the fastest processes; `sign` is -1 if more is faster."""
    before, after = ([sign * log for log in side] for side in logs)
    difference, reach = quiet_runs_test.fastest_runs_difference(before, after, level, math.log1p(smallest))
    return sign * difference, reach


def _log_ratio(
    before: Sequence[float], after: Sequence[float], own: float, prior: float, *, paired: bool
) -> tuple[float, float, float, str]:
    """Return the difference of logarithms, its standard error, degrees of freedom, and their basis.

    Of too few processes on one side, starts are assumed to differ as on the other side, if that has enough;
    but not for a metric with a prior of its own, which depends on what ran before, such as `load_time`.
    """
    n, m = len(before), len(after)
    if _are_few(before, after):
        borrowed = max(n, m) >= FEW_PROCESSES and not prior
        prior_degrees = 0.0 if borrowed else PRIOR_DEGREES
        ratio, degrees = fmean(after) - fmean(before), prior_degrees + n + m - 2
        squares = prior_degrees * (prior or PRIOR) ** 2 + _sum_of_squares(before) + _sum_of_squares(after)
        error = math.sqrt(squares / degrees * (1 / n + 1 / m) + own**2)
        how = (
            f"; starts are assumed to differ on both sides as in the {max(n, m)}"
            if borrowed
            else f", fewer than {FEWEST}: how starts differ is partly assumed"
        )
        return ratio, error, degrees, f"{_count_processes(n, m)}{how}"
    if paired and n == m:
        ratio, square, degrees = _trimmed_mean([b - a for a, b in zip(before, after, strict=True)])
        return ratio, math.sqrt(square), degrees, f"{n} rounds, paired"
    (baseline_mean, *baseline_error), (candidate_mean, *candidate_error) = (
        _trimmed_mean(before),
        _trimmed_mean(after),
    )
    parts = (baseline_error, candidate_error)
    total_square = sum(square for square, _ in parts)
    below = sum(square**2 / degrees for square, degrees in parts)
    # Satterthwaite's degrees of freedom; no spread at all needs none.
    return (
        candidate_mean - baseline_mean,
        math.sqrt(total_square),
        total_square**2 / below if below else n + m - 2,
        _count_processes(n, m),
    )


def _trimmed_mean(logs: Sequence[float]) -> tuple[float, float, float]:
    """Return the trimmed mean, its squared standard error, and degrees of freedom (Yuen 1974).

    A disturbed process is an outlier. Of seven or more processes, 15 % at either end are excluded from the
    mean, and replaced in its error by the nearest included one (winsorised). With fewer it is the mean.
    """
    ordered = sorted(logs)
    trimmed = int(_TRIM * len(ordered))
    inner = ordered[trimmed : len(ordered) - trimmed]
    winsorised = [inner[0]] * trimmed + inner + [inner[-1]] * trimmed
    left = len(inner)
    return fmean(inner), _sum_of_squares(winsorised) / (left * (left - 1)), left - 1


def _sum_of_squares(logs: Sequence[float]) -> float:
    mean = fmean(logs)
    return sum((log - mean) ** 2 for log in logs)


def _count_processes(n: int, m: int) -> str:
    return f"{n} and {m} processes"


def _within_run_error(answer: Answer, processes: int) -> float:
    """Return the relative standard error within a run that stands alone; otherwise the spread shows it."""
    if processes > 1 or answer.interval is None or not answer.value:
        return 0.0
    ends = [abs(e - answer.value) for e in (answer.interval.low, answer.interval.high) if math.isfinite(e)]
    return max(ends, default=0.0) / abs(answer.value) / Z


def _relative_change(ratio: float) -> float:
    """Return candidate / baseline - 1 from a difference of logarithms."""
    return math.expm1(min(ratio, 700.0))


# --- verdicts ---------------------------------------------------------------------------------------


def _explain_undecided(query: Query, interval: Interval, smallest: float) -> str:
    if METRICS[query.metric].better is Better.NEITHER:
        return "it has no better direction"
    if interval.low > 0 or interval.high < 0:
        return f"there is a change, and it may be less than the {smallest:.2g} that matters"
    return "further processes are needed"


def _test_counts(query: Query, before: Answer, after: Answer, smallest: float) -> TestedChange:
    """Compare counts, which do not vary; operators without a formula leave a range."""
    assert before.value is not None
    assert after.value is not None
    equal = before.value == after.value
    difference = 0.0 if equal else after.value / before.value - 1 if before.value else None
    interval = None if difference is None else Interval(low=difference, high=difference)
    baseline_ends, candidate_ends = before.bounds(), after.bounds()
    if equal:
        outcome, why = ChangeVerdict.SAME, "a count"
    elif candidate_ends.low <= baseline_ends.high and baseline_ends.low <= candidate_ends.high:
        outcome, why = ChangeVerdict.UNDECIDED, "the counts are uncertain by more than their difference"
    elif difference is not None and 1 / (1 + smallest) - 1 <= difference <= smallest:
        outcome, why = ChangeVerdict.SAME, "a count"
    else:
        outcome, why = judge_direction(query, after.value - before.value), "a count"
    return TestedChange(outcome=outcome, why=why, difference=difference, interval=interval)


def _test_by_rank(
    query: Query, before: Sequence[float], after: Sequence[float], level: float
) -> TestedChange:
    """Judge numbers without a ratio, because some are not positive: whether one side lies above the other.

    By chance this happens in 2 of C(n + m, n) cases (the extreme case of the exact Mann-Whitney test).
    """
    if len({*before, *after}) == 1:
        no_change = Interval(low=0.0, high=0.0)
        return TestedChange(
            outcome=ChangeVerdict.SAME,
            why="the same number in all processes",
            difference=0.0,
            interval=no_change,
        )
    separated = min(after) > max(before) or max(after) < min(before)
    if separated and 2 / math.comb(len(before) + len(after), len(before)) <= 1 - level:
        why = "no ratio, as some numbers are not positive; all processes agree"
        return TestedChange(outcome=judge_direction(query, after[0] - before[0]), why=why)
    why = "no ratio, as some numbers are not positive, and too few processes to decide without one"
    return TestedChange(outcome=ChangeVerdict.UNDECIDED, why=why)


# --- what is there ----------------------------------------------------------------------------------


def _to_query(query: Query | str) -> Query:
    return Query.parse(query) if isinstance(query, str) else query


def _find_measurement(result: Result, query: Query) -> Measurement | None:
    """Return the measurement that answers a query, if there is one.

    Raises:
        RequestError: the measurement cannot answer the query.
    """
    measurement = result.find(query.metric, query.scope)
    if measurement is not None:
        Answer.to(query, (measurement,))
    return measurement


def _missing_change(
    query: Query,
    before: Measurement | None,
    after: Measurement | None,
    smallest: Mapping[str, float],
    why: str,
) -> Change:
    present = before or after
    value = None if present is None else Answer.to(query, (present,)).value
    return Change(
        query=query,
        baseline=None if before is None else value,
        candidate=None if after is None else value,
        difference=None,
        interval=None,
        outcome=ChangeVerdict.UNDECIDED,
        smallest=smallest_effect(query, smallest),
        why=why,
    )


def _why_missing(query: Query, baseline: Result, candidate: Result) -> str:
    """Describe in which Result there is no measurement, and whether it was withheld."""
    lacks = {
        name: result.withheld(query.metric, query.scope)
        for name, result in (("the baseline", baseline), ("the candidate", candidate))
        if result.find(query.metric, query.scope) is None
    }
    where = next(iter(lacks)) if len(lacks) == 1 else "both" if all(lacks.values()) else "either"
    codes = " and ".join(sorted({code for code in lacks.values() if code}))
    return f"withheld in {where}: {codes}" if all(lacks.values()) else f"not measured in {where}"


# --- scores of labelled samples ---------------------------------------------------------------------


def compare_evaluations(
    query: Query, baseline: Measurement, candidate: Measurement, smallest: float, level: float
) -> TestedChange:
    """Compare two evaluations: sample by sample if both answered the same samples.

    More processes would answer alike, so the samples are what is uncertain.
    """
    from modeldyno.base.stats.evaluation import (
        independent_difference,
        paired_difference,
    )  # numpy is slow to import

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
    from modeldyno.base.stats.evaluation import Evaluation  # numpy is slow to import

    value, interval = measurement.value, measurement.interval
    assert interval is not None
    assert not isinstance(value, Distribution)
    return Evaluation(float(value), interval.low, interval.high)

"""Baseline and candidate -> changes: the difference of each metric, its interval, and the verdict.

The unit of replication is the process. Each gives one number, the asked statistic of its samples; what is
compared is the trimmed mean of their logarithms, by the interval of Yuen and Welch, or by the paired one
where the runs of the two took turns, so that what both of a round met cancels out. A metric is worse (or
better) when two tests are passed: the interval excludes no change, and the estimate is beyond the smallest
effect that matters. It is the same when the whole interval lies within that effect, or all numbers lie closer
together than allocators take memory. All else is undecided.
The two figures of a change are those that are compared, so that they agree with its difference.

Intervals are widened for the number of metrics judged together (Bonferroni). Metrics that tell the same, such
as latency and throughput, count once: they err together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import fmean, median
from types import MappingProxyType
from typing import TYPE_CHECKING

from modeldyno.core.comparison.comparison import SMALLEST_EFFECT, Change, Outcome
from modeldyno.core.comparison.default_metrics import COARSE, SMALLEST, families, headlines, smallest_named
from modeldyno.core.comparison.history_noise import Scatter
from modeldyno.core.metrics.constraints import Answer
from modeldyno.core.metrics.measurement import Distribution, Interval
from modeldyno.core.metrics.metric import METRICS, Better, Query, fraction_of
from modeldyno.core.stats import quiet_runs_test, student_t
from modeldyno.core.stats.statistics import NORMAL, quantile
from modeldyno.core.stats.units import RATE, SECONDS, format_quantity
from modeldyno.core.study.pooled_estimate import PRIOR, PRIOR_DEGREES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from modeldyno.core.metrics.measurement import Measurement
    from modeldyno.core.result.result import Result

LEVEL = 0.95
FEWEST = 3
"""Processes a side from which on their own spread tells what starts differ by."""
_TRIM = 0.15
"""Part of the processes that is left out at either end."""


def changes(  # noqa: PLR0913 - two Results, and all that a verdict on them depends on
    baseline: Result,
    candidate: Result,
    *,
    smallest: Mapping[str, float] = SMALLEST,
    queries: Iterable[Query | str] | None = None,
    level: float = LEVEL,
    paired: bool = False,
    history: Mapping[Query, Scatter] = MappingProxyType({}),
) -> tuple[Change, ...]:
    """Judge several metrics together.

    Args:
        baseline: what is compared with.
        candidate: what is judged.
        smallest: the relative effect that matters, by query, by metric, or under ``ALL`` for the rest.
        queries: what to judge; the headlines that both have, unless told.
        level: confidence of all intervals together.
        paired: whether process i of both ran in the same round, slice by slice or one right after the other.
        history: what stored results of the model differ by, where that is known.
    """
    asked = headlines(baseline, candidate) if queries is None else tuple(map(_query, queries))
    found = [(query, _measured(baseline, query), _measured(candidate, query)) for query in asked]
    each = 1 - (1 - level) / max(1, families(found))
    return tuple(
        _absent(query, before, after, smallest)
        if before is None or after is None
        else change(
            query,
            before,
            after,
            smallest=smallest_named(query, smallest),
            level=each,
            paired=paired,
            scatter=history.get(query),
        )
        for query, before, after in found
    )


def change(  # noqa: PLR0913 - two measurements, and all that a verdict on them depends on
    query: Query,
    baseline: Measurement,
    candidate: Measurement,
    *,
    smallest: float = SMALLEST_EFFECT,
    level: float = LEVEL,
    paired: bool = False,
    scatter: Scatter | None = None,
) -> Change:
    """Judge one metric.

    Args:
        query: names the statistic, where the measurements are distributions.
        baseline: what is compared with.
        candidate: what is judged.
        smallest: relative effect that matters.
        level: confidence of the interval, two-sided.
        paired: whether process i of both ran in the same round.
        scatter: what stored results of the model differ by; it takes the place of what is assumed of one or
            two processes, and widens the interval of more where they differ by less.

    Raises:
        RequestError: the query does not fit the measurements.
    """
    before, after = Answer.to(query, (baseline,)), Answer.to(query, (candidate,))
    if before.value is None or after.value is None:
        found = _Found(outcome=Outcome.UNDECIDED, why=before.why or after.why)
    elif before.exact and after.exact:
        found = _of_counts(query, before, after, smallest)
    else:
        here, there = numbers(query, baseline), numbers(query, candidate)
        own = math.hypot(_own_error(before, len(here)), _own_error(after, len(there)))
        how = _How(smallest=smallest, level=level, paired=paired, own=own, scatter=scatter)
        found = _of_numbers(query, here, there, how)
    return _change(query, before.value, after.value, found, smallest)


def between(
    query: Query,
    before: Sequence[float],
    after: Sequence[float],
    *,
    smallest: float = SMALLEST_EFFECT,
    level: float = LEVEL,
    paired: bool = False,
) -> Change:
    """Judge one metric by the numbers of the processes alone."""
    found = _of_numbers(query, before, after, _How(smallest=smallest, level=level, paired=paired))
    return _change(query, median(before), median(after), found, smallest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    outcome: Outcome
    why: str
    difference: float | None = None
    interval: Interval | None = None
    figures: tuple[float, float] | None = None
    """Of both sides, where what is compared is not what their Results give."""


def _change(
    query: Query, before: float | None, after: float | None, found: _Found, smallest: float
) -> Change:
    baseline, candidate = found.figures or (before, after)
    return Change(
        query=query,
        baseline=baseline,
        candidate=candidate,
        difference=found.difference,
        interval=found.interval,
        outcome=found.outcome,
        smallest=smallest,
        why=found.why,
    )


def numbers(query: Query, measurement: Measurement) -> list[float]:
    """Give the one number of each process."""
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
class _How:
    """How two groups are compared, as `change` has it."""

    smallest: float
    level: float
    paired: bool
    own: float = 0.0
    """Standard error within the runs, where they stand alone."""
    scatter: Scatter | None = None


def _of_numbers(query: Query, here: Sequence[float], there: Sequence[float], asked: _How) -> _Found:
    found, coarse = _judged(query, here, there, asked), COARSE.get(query.metric, 0.0)
    if not 0 < max(*here, *there) - min(*here, *there) <= coarse:
        return found
    why = f"all are within {format_quantity(coarse, query.unit)}, which an allocator takes at once"
    return replace(found, outcome=Outcome.SAME, why=why)


def _judged(query: Query, here: Sequence[float], there: Sequence[float], asked: _How) -> _Found:
    smallest, level, paired = asked.smallest, asked.level, asked.paired
    if min(*here, *there) <= 0:
        return _ranked(query, here, there, level)
    logs = [math.log(n) for n in here], [math.log(n) for n in there]
    ratio, error, degrees, how = _ratio(*logs, asked.own, paired=paired)
    if asked.scatter is not None and (_few(*logs) or asked.scatter.of_a_difference > error):
        error, degrees = max(asked.scatter.of_a_difference, asked.own), asked.scatter.degrees
        how = f"{_of(*map(len, logs))}, and how stored results of it differ ({asked.scatter.relative:.2g})"
    typical = _typical(*logs)
    reach = student_t.point((1 - level) / 2, degrees) * error if error else 0.0
    if paired and reach > math.log1p(smallest) and len(here) == len(there) >= quiet_runs_test.FEWEST:
        sign = {SECONDS: 1, RATE: -1}.get(query.unit, 0)
        least, near = _left_in_peace(logs, sign, level, smallest) if sign else (ratio, math.inf)
        if near < reach:
            ratio, reach, how = least, near, f"the fastest of {how}, as others slowed this machine down"
            typical = sign * quiet_runs_test.least([sign * each for each in logs[0]])
    difference, interval = (
        _percent(ratio),
        Interval(low=_percent(ratio - reach), high=_percent(ratio + reach)),
    )
    outcome = _verdict(query, difference, interval, smallest)
    why = how if outcome is not Outcome.UNDECIDED else f"{_open(query, interval, smallest)}; {how}"
    figures = math.exp(typical), math.exp(typical + ratio)
    return _Found(outcome=outcome, why=why, difference=difference, interval=interval, figures=figures)


def _typical(before: Sequence[float], after: Sequence[float]) -> float:
    """Give the logarithm of the baseline that the difference is of."""
    return fmean(before) if _few(before, after) else _trimmed(before)[0]


def _few(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether how starts differ is not seen in them."""
    return min(len(before), len(after)) < FEWEST


def _left_in_peace(
    logs: tuple[list[float], list[float]], sign: int, level: float, smallest: float
) -> tuple[float, float]:
    """Compare the fastest processes; `sign` is -1 where more is faster."""
    before, after = ([sign * each for each in side] for side in logs)
    difference, reach = quiet_runs_test.undisturbed(before, after, level, math.log1p(smallest))
    return sign * difference, reach


def _ratio(
    before: Sequence[float], after: Sequence[float], own: float, *, paired: bool
) -> tuple[float, float, float, str]:
    """Give the difference of logarithms, its standard error, degrees of freedom, and what they rest on."""
    n, m = len(before), len(after)
    if _few(before, after):
        ratio, degrees = fmean(after) - fmean(before), PRIOR_DEGREES + n + m - 2
        squares = PRIOR_DEGREES * PRIOR**2 + _squares(before) + _squares(after)
        error = math.sqrt(squares / degrees * (1 / n + 1 / m) + own**2)
        return ratio, error, degrees, f"{_of(n, m)}, fewer than {FEWEST}: how starts differ is partly assumed"
    if paired and n == m:
        ratio, square, degrees = _trimmed([b - a for a, b in zip(before, after, strict=True)])
        return ratio, math.sqrt(square), degrees, f"{n} rounds, paired"
    (here, *own_here), (there, *own_there) = _trimmed(before), _trimmed(after)
    parts = (own_here, own_there)
    whole = sum(square for square, _ in parts)
    below = sum(square**2 / degrees for square, degrees in parts)
    # Satterthwaite's degrees of freedom; no spread at all needs none.
    return there - here, math.sqrt(whole), whole**2 / below if below else n + m - 2, _of(n, m)


def _trimmed(logs: Sequence[float]) -> tuple[float, float, float]:
    """Give the trimmed mean, its squared standard error, and degrees of freedom (Yuen 1974).

    A process that met a neighbour is out by far more than others differ: of seven or more, 15 % at either end
    are left out of the mean, and count in its error as the nearest that is left in. Without, it is the mean.
    """
    ordered = sorted(logs)
    out = int(_TRIM * len(ordered))
    inner = ordered[out : len(ordered) - out]
    drawn_in = [inner[0]] * out + inner + [inner[-1]] * out
    left = len(inner)
    return fmean(inner), _squares(drawn_in) / (left * (left - 1)), left - 1


def _squares(logs: Sequence[float]) -> float:
    mean = fmean(logs)
    return sum((each - mean) ** 2 for each in logs)


def _of(n: int, m: int) -> str:
    return f"{n} and {m} processes"


def _own_error(answer: Answer, processes: int) -> float:
    """Give the relative standard error within a run that stands alone; spread shows it otherwise."""
    if processes > 1 or answer.interval is None or not answer.value:
        return 0.0
    ends = [abs(e - answer.value) for e in (answer.interval.low, answer.interval.high) if math.isfinite(e)]
    return max(ends, default=0.0) / abs(answer.value) / NORMAL.inv_cdf(0.975)


def _percent(ratio: float) -> float:
    """Give candidate / baseline - 1 of a difference of logarithms."""
    return math.expm1(min(ratio, 700.0))


# --- verdicts ---------------------------------------------------------------------------------------


def _verdict(query: Query, difference: float, interval: Interval, smallest: float) -> Outcome:
    """Judge by the interval against no change, and by the estimate against what matters.

    What matters is the same for a slowdown and for what undoes it: a factor of 1 + smallest either way.
    """
    least, most = 1 / (1 + smallest) - 1, smallest
    if least <= interval.low and interval.high <= most:
        return Outcome.SAME
    if (interval.low > 0 and difference > most) or (interval.high < 0 and difference < least):
        return _direction(query, difference)
    return Outcome.UNDECIDED


def _direction(query: Query, difference: float) -> Outcome:
    better = METRICS[query.metric].better
    if better is Better.NEITHER:
        return Outcome.UNDECIDED
    return Outcome.BETTER if (difference < 0) is (better is Better.LOWER) else Outcome.WORSE


def _open(query: Query, interval: Interval, smallest: float) -> str:
    if METRICS[query.metric].better is Better.NEITHER:
        return "neither way is better"
    if interval.low > 0 or interval.high < 0:
        return f"there is a change, and it may be less than the {smallest:.2g} that matters"
    return "further processes are needed"


def _of_counts(query: Query, before: Answer, after: Answer, smallest: float) -> _Found:
    """Compare what does not vary; what operators without a formula leave open is open here, too."""
    assert before.value is not None
    assert after.value is not None
    equal = before.value == after.value
    difference = 0.0 if equal else after.value / before.value - 1 if before.value else None
    interval = None if difference is None else Interval(low=difference, high=difference)
    ends, others = before.bounds(), after.bounds()
    if equal:
        outcome, why = Outcome.SAME, "a count"
    elif others.low <= ends.high and ends.low <= others.high:
        outcome, why = Outcome.UNDECIDED, "what is open in the counts is more than their difference"
    elif difference is not None and 1 / (1 + smallest) - 1 <= difference <= smallest:
        outcome, why = Outcome.SAME, "a count"
    else:
        outcome, why = _direction(query, after.value - before.value), "a count"
    return _Found(outcome=outcome, why=why, difference=difference, interval=interval)


def _ranked(query: Query, before: Sequence[float], after: Sequence[float], level: float) -> _Found:
    """Judge what has no ratio, as some of it is not positive: whether all of one lie above all of the other.

    By chance this happens in 2 of C(n + m, n) cases (the exact test of Mann and Whitney at its extreme).
    """
    if len({*before, *after}) == 1:
        none = Interval(low=0.0, high=0.0)
        return _Found(
            outcome=Outcome.SAME, why="the same number in all processes", difference=0.0, interval=none
        )
    apart = min(after) > max(before) or max(after) < min(before)
    if apart and 2 / math.comb(len(before) + len(after), len(before)) <= 1 - level:
        why = "no ratio to what is not positive; all processes agree"
        return _Found(outcome=_direction(query, after[0] - before[0]), why=why)
    why = "no ratio to what is not positive, and too few processes to tell without"
    return _Found(outcome=Outcome.UNDECIDED, why=why)


# --- what is there ----------------------------------------------------------------------------------


def _query(asked: Query | str) -> Query:
    return Query.parse(asked) if isinstance(asked, str) else asked


def _measured(result: Result, query: Query) -> Measurement | None:
    """Give the measurement that answers a query, if there is one.

    Raises:
        RequestError: it is asked for in a way that cannot be answered.
    """
    found = result.find(query.metric, query.scope)
    if found is not None:
        Answer.to(query, (found,))
    return found


def _absent(
    query: Query, before: Measurement | None, after: Measurement | None, smallest: Mapping[str, float]
) -> Change:
    lacking = "either" if before is after else "the baseline" if before is None else "the candidate"
    known = before or after
    value = None if known is None else Answer.to(query, (known,)).value
    return Change(
        query=query,
        baseline=None if before is None else value,
        candidate=None if after is None else value,
        difference=None,
        interval=None,
        outcome=Outcome.UNDECIDED,
        smallest=smallest_named(query, smallest),
        why=f"not measured in {lacking}",
    )

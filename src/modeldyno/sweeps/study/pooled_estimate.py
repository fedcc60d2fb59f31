"""Pool the trials of a candidate: estimates with intervals, and the probability that the bounds hold.

Trials are pooled on the logarithmic scale. A trial has two errors: its own, given by its interval, and the
variation from run to run, which no single trial shows and which is estimated from everything measured twice.
A percentile that no single trial certifies is certified once several have enough effective samples together.

What others on the machine may have done to one trial and not to the rest counts as an error of it: a
configuration that was tried beside a neighbour is not out of the question for having been slow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from modeldyno.base.metrics.constraints import Answer, Judgement, Verdict
from modeldyno.base.metrics.measurement import CLIENT_LIMITED, SATURATED, Interval
from modeldyno.base.metrics.metric import METRICS, fraction_of
from modeldyno.base.result.slowdown import MOMENTS
from modeldyno.base.stats import student_t
from modeldyno.base.stats.statistics import NORMAL, Z, certified_floor
from modeldyno.base.stats.units import MONEY, RATE, SECONDS
from modeldyno.sweeps.study.study import TrialPurpose, TrialState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.metrics.constraints import Constraint
    from modeldyno.base.metrics.metric import Query
    from modeldyno.sweeps.study.goal import Goal
    from modeldyno.sweeps.study.study import Candidate, Study, Trial

PRIOR, PRIOR_DEGREES = 0.03, 2.0
"""Run-to-run spread assumed before anything was repeated, and its weight in degrees of freedom."""
UNCERTIFIED = 0.5
"""Largest probability of a bound on a percentile that is not certified or not measured."""
OPEN_ERROR = 0.7
"""Least standard error, of the logarithm, of a percentile whose samples do not bound it on both sides: its
true value may be four times what was seen, or a quarter of it."""
DOUBTED = 0.75
"""Largest probability of the bounds if the server was saturated or the client was the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value in base units with its 95 % interval, run-to-run variation included."""

    value: float
    low: float
    high: float
    error: float
    """Standard error of the logarithm of the value; of the value itself if that is not positive."""
    between: float = 0.0
    """The part of the error that is due to run-to-run variation."""
    certified: bool = True
    """Whether it is a claim; of a percentile with too few samples it is what was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Run-to-run variation of a query."""

    relative: float
    """Standard deviation of the logarithm."""
    degrees: float
    """Degrees of freedom of that estimate, those of the prior included."""
    slowed: float = 1.0
    """Factor by which others may have slowed down even the least disturbed trial, and so all of them."""


def run_to_run_spread(study: Study, query: Query) -> Spread:
    """Estimate it: the variation of repeats that their own errors do not explain.

    The variance t^2 solves n0 s0^2 / t^2 + sum of w (log - mean of its group)^2 = n0 + n, with the weights
    w = 1 / (own error^2 + t^2): the estimator of Paule and Mandel (1982) over groups of repeats, with a prior
    worth n0 degrees of freedom. A group whose own errors are large counts little, and cannot hide what others
    show. Without own errors it is (n0 s0^2 + SS) / (n0 + n), as with a conjugate prior. A repeat counts as a
    share of a degree of freedom, the information that it has on t: (w t^2)^2.

    Repeats are compared within one purpose, because of the selection bias of searched trials; and of a server
    only those that began with a start of it.
    """
    prior = METRICS[query.metric].prior_spread or PRIOR
    slowed = min((trial.slowed for trial in study.trials if trial.state is TrialState.DONE), default=1.0)
    assumed = Spread(relative=prior, degrees=PRIOR_DEGREES, slowed=slowed)
    groups = [
        group for trials in _repeats(study) if len(group := _logs_and_variances(trials, query, assumed)) > 1
    ]
    if not groups:
        return assumed
    degrees = sum(len(group) - 1 for group in groups)

    def excess(variance: float) -> float:
        squares = sum(_weighted_squares(group, variance) for group in groups)
        return PRIOR_DEGREES * prior**2 / variance + squares - PRIOR_DEGREES - degrees

    # Without own errors the root is a mean of squares, so it is below their sum; with them it is smaller.
    high = prior**2 + sum(_weighted_squares([(log, 0.0) for log, _ in group], 1.0) for group in groups)
    low = high * _SMALLEST
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    variance = math.sqrt(low * high)
    informative = sum(
        (len(group) - 1) / len(group) * sum((variance / (own + variance)) ** 2 for _, own in group)
        for group in groups
    )
    return replace(assumed, relative=math.sqrt(variance), degrees=PRIOR_DEGREES + informative)


_SMALLEST, _HALVINGS = 1e-9, 40
"""Where the search for the variance begins, as a share of its largest value, and its steps."""


def _logs_and_variances(trials: Sequence[Trial], query: Query, between: Spread) -> list[tuple[float, float]]:
    """Return the logarithm of each trial's value with its own variance; empty if they have none."""
    answers = (_beside_others(trial, _answer_or_raw(trial, query), between) for trial in trials)
    parts = [part for answer in answers if (part := _value_and_error(answer)) is not None]
    if any(value <= 0 or exact for value, _, exact in parts):
        return []
    return [(math.log(value), error**2) for value, error, _ in parts]


def _weighted_squares(group: Sequence[tuple[float, float]], variance: float) -> float:
    """Return the squared deviations from the weighted mean, each over its variance."""
    weights = [1 / (own + variance) for _, own in group]
    mean = sum(w * log for w, (log, _) in zip(weights, group, strict=True)) / sum(weights)
    return sum(w * (log - mean) ** 2 for w, (log, _) in zip(weights, group, strict=True))


def _repeats(study: Study) -> Iterator[Sequence[Trial]]:
    """Yield groups of trials of a point that differ only by the run."""
    served = study.job.load is not None
    for candidate in study.candidates.values():
        if len(candidate.trials) > 1:
            done = [trial for trial in candidate.trials if trial.state is TrialState.DONE]
            searched = [trial for trial in done if not _is_verification(trial)]
            yield [*searched[-1 if served else 0 :], *filter(_is_verification, done)]


def _is_verification(trial: Trial) -> bool:
    return trial.stage is TrialPurpose.VERIFY


def _answer_or_raw(trial: Trial, query: Query) -> Answer | None:
    """Return a trial's answer; of a percentile that only lacks samples, the raw quantile."""
    answer = trial.ask(query)
    short = answer is not None and answer.value is None and answer.size is not None
    return trial.ask(replace(query, part="raw")) if short else answer


def _beside_others(trial: Trial, answer: Answer | None, between: Spread) -> Answer | None:
    """Return the answer of a trial with what others may have done to it alone, either way."""
    factor = trial.slowed / between.slowed
    if answer is None or answer.value is None or answer.exact or factor <= 1 + MOMENTS:
        return answer
    if METRICS[answer.query.metric].unit not in {SECONDS, RATE, MONEY}:
        return answer
    ends = answer.interval or Interval(low=answer.value, high=answer.value)
    return replace(answer, interval=Interval(low=ends.low / factor, high=ends.high * factor))


def _value_and_error(answer: Answer | None) -> tuple[float, float, bool] | None:
    """Return the value of an answer, its own standard error, and whether it is a count; None without a value.

    The error is that of the logarithm, or of the value if that is not positive. If one end of the interval is
    open, the other end determines it; a value seen once has only run-to-run error.
    """
    if answer is None or answer.value is None:
        return None
    value, ends = answer.value, answer.bounds()
    if value > 0:
        widths = (
            abs(math.log(end / value)) if end > 0 else (value - end) / value
            for end in (ends.low, ends.high)
            if math.isfinite(end)
        )
    else:
        widths = (abs(end - value) for end in (ends.low, ends.high) if math.isfinite(end))
    half_widths = list(widths)
    return value, sum(half_widths) / len(half_widths) / Z if half_widths else 0.0, answer.exact


def median_trial_error(study: Study, query: Query) -> float:
    """Return the median relative error of single trials of a query.

    0 for a percentile, for which a search trial gives only a hint, and if no trial has an error.
    """
    if query.statistic is not None and fraction_of(query.statistic) is not None:
        return 0.0
    parts = [part for trial in study.measured if (part := _value_and_error(trial.ask(query))) is not None]
    errors = [error for value, error, _ in parts if value > 0]
    return median(errors) if errors else 0.0


# --- a value ---------------------------------------------------------------------------------------


def estimate(study: Study, candidate: Candidate, query: Query) -> Estimate | None:
    """Return the pooled estimate of a candidate; None if no trial has a value."""
    return pool_trials(candidate.quoted_trials, query, run_to_run_spread(study, query))


def shown_estimate(study: Study, candidate: Candidate, query: Query) -> Estimate | None:
    """Return the one estimate of a candidate that the ranking and every table and chart show."""
    return seen_estimate(candidate.quoted_trials, query, run_to_run_spread(study, query))


def shown_value(study: Study, candidate: Candidate, query: Query) -> float | None:
    """Return the value of `shown_estimate`."""
    shown = shown_estimate(study, candidate, query)
    return None if shown is None else shown.value


def seen_estimate(trials: Sequence[Trial], query: Query, between: Spread) -> Estimate | None:
    """Pool trials; of a percentile that they do not certify, the quantiles that were seen, marked as such.

    A candidate that was tried is not out of the question for want of samples, so it has an estimate with the
    error that these leave open. Where an end of an interval is open, it is `OPEN_ERROR` at least.
    """
    certified = pool_trials(trials, query, between)
    if certified is not None or query.statistic is None:
        return certified
    answers = [answer for trial in trials if (answer := _answer_or_raw(trial, query)) is not None]
    if len(answers) < len(trials):
        return None
    disturbed = map(_beside_others, trials, answers, [between] * len(trials))
    seen = pool_answers(disturbed, between, alike=True)
    if seen is None:
        return None
    ends = [end for answer in answers if (ends := answer.interval) for end in (ends.low, ends.high)]
    is_bounded = len(ends) == 2 * len(answers) and all(map(math.isfinite, ends))
    error = seen.error if is_bounded else max(seen.error, OPEN_ERROR)
    factor = math.exp(Z * error)
    low, high = min(seen.low, seen.value / factor), max(seen.high, seen.value * factor)
    return replace(seen, low=low, high=high, error=error, certified=False)


def pool_trials(trials: Sequence[Trial], query: Query, between: Spread) -> Estimate | None:
    """Pool the trials of a candidate, whatever they have of a query.

    All percentiles of a metric are of the same trials with the same weights, as otherwise a median could be
    above a tail: each trial counts alike, and where one has too few samples for a percentile that all others
    have, there is none.
    """
    answers = certified_answers(trials, query, between)
    if query.statistic is None or fraction_of(query.statistic) is None:
        return pool_answers(answers, between)
    if any(answer is None or (answer.value is None and answer.size is not None) for answer in answers):
        return None
    return pool_answers(answers, between, alike=True)


def certified_answers(trials: Sequence[Trial], query: Query, between: Spread) -> list[Answer | None]:
    """Return the answers of trials that count as claims.

    A percentile is certified above its floor of effective samples, which may be pooled over fresh processes:
    if all trials together reach it, their raw quantiles are returned.
    """
    certified = (_certification_share(trials, query) or 0.0) >= 1
    answers = (_answer_or_raw(trial, query) if certified else trial.ask(query) for trial in trials)
    return [_beside_others(trial, answer, between) for trial, answer in zip(trials, answers, strict=True)]


def missing_samples(trials: Sequence[Trial], bound: Constraint) -> float:
    """Return the effective samples that a percentile lacks for certification, per sample that they have.

    0 if it lacks none, or if more samples would not certify it.
    """
    had = None if bound.percentile is None else _certification_share(trials, bound.query)
    return max(0.0, 1 / had - 1) if had else 0.0


def _certification_share(trials: Sequence[Trial], query: Query) -> float | None:
    """Return the effective samples of a percentile in the trials, as a multiple of its floor.

    None if more samples would not certify it: the load was void, or the statistic is not a percentile.
    """
    sizes = [None if answer is None else answer.size for answer in (trial.ask(query) for trial in trials)]
    fraction = None if query.statistic is None else fraction_of(query.statistic)
    if fraction is None or None in sizes:
        return None
    return sum(filter(None, sizes)) / certified_floor(fraction)


def pool_answers(
    answers: Iterable[Answer | None], between: Spread, *, alike: bool = False
) -> Estimate | None:
    """Pool the answers of several runs, each weighted by 1 / (own error^2 + run-to-run error^2).

    With `alike` all have the same weight.
    """
    known_answers = [answer for answer in answers if answer is not None and answer.value is not None]
    parts = [part for answer in known_answers if (part := _value_and_error(answer)) is not None]
    if not parts:
        return None
    values = [value for value, _, _ in parts]
    if all(exact for _, _, exact in parts) and len(set(values)) == 1:  # more runs would say no more
        ends = known_answers[0].bounds()
        return Estimate(value=values[0], low=ends.low, high=ends.high, error=parts[0][1])
    if min(values) <= 0:
        return _pooled_mean(parts)
    variances = [error**2 + between.relative**2 for _, error, _ in parts]
    weights = [1.0 if alike else 1 / variance for variance in variances]
    total = sum(weights)
    centre = sum(w * math.log(value) for w, value in zip(weights, values, strict=True)) / total
    error = math.sqrt(sum(w**2 * v for w, v in zip(weights, variances, strict=True))) / total
    runs = between.relative * math.sqrt(sum(w**2 for w in weights)) / total
    half = student_t.upper_tail_quantile(0.025, _degrees(error, runs, between)) * error
    return Estimate(
        value=math.exp(centre),
        low=math.exp(centre - half),
        high=math.exp(centre + half),
        error=error,
        between=runs,
    )


def _pooled_mean(parts: Sequence[tuple[float, float, bool]]) -> Estimate:
    """Pool values without logarithms: the mean, with the error that the runs show."""
    n = len(parts)
    mean = sum(value for value, _, _ in parts) / n
    own = sum((error * value if value > 0 else error) ** 2 for value, error, _ in parts) / n**2
    between = sum((value - mean) ** 2 for value, _, _ in parts) / max(1, n - 1) / n
    error = math.sqrt(max(own, between))
    least = 0.0 if min(value for value, _, _ in parts) >= 0 else -math.inf
    low, high = max(least, mean - Z * error), mean + Z * error
    return Estimate(value=mean, low=low, high=high, error=error / mean if mean > 0 else error)


def _degrees(error: float, runs: float, between: Spread) -> float:
    """Return the degrees of freedom of a sum of variances of which one is estimated (Satterthwaite 1946)."""
    return between.degrees * (error / runs) ** 4


def search_hint(candidate: Candidate, query: Query) -> float | None:
    """Return a value to guide the search: the pooled one, or else that of an uncertified percentile."""
    telling = candidate.quoted_trials
    for raw in (False, True):
        variant = replace(query, part="raw") if raw else query
        values = [part[0] for trial in telling if (part := _value_and_error(trial.ask(variant))) is not None]
        if values and min(values) > 0:
            return math.exp(sum(map(math.log, values)) / len(values))
        if values:
            return sum(values) / len(values)
    return None


# --- bounds ----------------------------------------------------------------------------------------


def probability_of_bounds(candidate: Candidate, goal: Goal, spreads: Sequence[Spread]) -> float:
    """Return the probability that a candidate works and holds all constraints, whose spreads are given."""
    telling = candidate.quoted_trials
    if not telling:
        return 0.0
    # A point that failed when it was tried again may fail in use.
    attempted = [
        trial for trial in candidate.trials if _is_verification(trial) or not _is_verification(telling[0])
    ]
    probability = len(telling) / len(attempted)
    for bound, between in zip(goal.constraints, spreads, strict=True):
        probability *= _bound_probability(candidate, bound, between)
    doubted = any(not {SATURATED, CLIENT_LIMITED}.isdisjoint(trial.doubts) for trial in telling)
    return min(probability, DOUBTED) if doubted and goal.constraints else probability


def _bound_probability(candidate: Candidate, bound: Constraint, between: Spread) -> float:
    """Return the probability that a bound holds: of the estimate, less the runs that broke it anyhow."""
    judgements = [judge_trial(trial, bound) for trial in candidate.quoted_trials]
    claimed = certified_answers(candidate.quoted_trials, bound.query, between)
    certified = [a for a in claimed if a is not None and a.value is not None] or [
        j.answer for j in judgements if j.answer.value is not None
    ]
    broken_without_value = sum(j.answer.value is None and j.verdict is Verdict.BROKEN for j in judgements)
    void = broken_without_value if len(certified) < len(judgements) else 0
    pooled = pool_answers(certified, between)
    if pooled is not None:
        return _probability_within(pooled, bound, between) * len(certified) / (len(certified) + void)
    if void:
        return 0.0
    hint = replace(bound.query, part="raw")
    raw = (_beside_others(trial, trial.ask(hint), between) for trial in candidate.quoted_trials)
    raw_pooled = pool_answers(raw, between)
    if raw_pooled is None:
        return UNCERTIFIED
    # An uncertified percentile may hold a bound all the same, if all of enough samples do.
    most = 1.0 if any(j.verdict is Verdict.HELD for j in judgements) else UNCERTIFIED
    return min(most, _probability_within(raw_pooled, bound, between))


def _probability_within(estimate: Estimate, bound: Constraint, between: Spread) -> float:
    """Return the probability that the true value is within a bound."""
    if not estimate.error:
        exact = Answer(query=bound.query, value=estimate.value, exact=True)
        return float(bound.on(exact).verdict is Verdict.HELD)
    margin = (bound.bound - estimate.value) * (1 if bound.at_most else -1)
    if estimate.value > 0 and bound.bound > 0:
        margin = math.log(bound.bound / estimate.value) * (1 if bound.at_most else -1)
        return _probability_of_margin(margin / estimate.error, estimate, between)
    absolute = estimate.error * estimate.value if estimate.value > 0 else estimate.error
    return _probability_of_margin(margin / absolute, estimate, between)


def _probability_of_margin(errors: float, estimate: Estimate, between: Spread) -> float:
    """Return the probability of a margin of this many estimated standard errors, positive or negative."""
    if not estimate.between:
        return NORMAL.cdf(errors)
    tail = student_t.upper_tail_probability(abs(errors), _degrees(estimate.error, estimate.between, between))
    return 1 - tail if errors >= 0 else tail


def judge_trial(trial: Trial, bound: Constraint) -> Judgement:
    """Judge a trial by what is known of it, under any goal."""
    answer = trial.ask(bound.query)
    if answer is not None:
        return bound.on(answer)
    stored = (j for j in trial.judgements if j.constraint == bound)
    return next(stored, bound.on(Answer(query=bound.query, value=None, why="it was not measured")))


def judge_candidate(study: Study, candidate: Candidate) -> tuple[Judgement, ...]:
    """Judge all trials of a candidate together, on each bound of the goal."""
    return tuple(_judge_together(study, candidate, bound) for bound in study.goal.constraints)


def _judge_together(study: Study, candidate: Candidate, bound: Constraint) -> Judgement:
    """Judge the pooled value; without one, take a trial that decides, or the last one."""
    pooled = estimate(study, candidate, bound.query)
    if pooled is None:
        judgements = [judge_trial(trial, bound) for trial in candidate.quoted_trials]
        if not judgements:
            return bound.on(Answer(query=bound.query, value=None, why="it failed"))
        decisive = {judged.verdict: judged for judged in judgements}
        return decisive.get(Verdict.BROKEN, decisive.get(Verdict.HELD, judgements[-1]))
    ends = Interval(low=pooled.low, high=pooled.high)
    return bound.on(Answer(query=bound.query, value=pooled.value, interval=ends))


def total_miss(candidate: Candidate, goal: Goal) -> float:
    """Return the sum of the shares by which the bounds are missed; infinite if nothing was measured.

    A bound of 0 counts as missed by 100 %.
    """
    if candidate.failed:
        return math.inf
    return sum(bound_miss(candidate, bound) for bound in goal.constraints)


def bound_miss(candidate: Candidate, bound: Constraint) -> float:
    """Return the share by which a bound is missed; 0 if it holds or nothing is known."""
    value = search_hint(candidate, bound.query)
    ends = [judge_trial(trial, bound).answer.bounds() for trial in candidate.quoted_trials]
    finite_ends = [end for e in ends if math.isfinite(end := e.low if bound.at_most else e.high)]
    if value is None and finite_ends:  # void: the true value is at least this bad
        value = sum(finite_ends) / len(finite_ends)
    if value is None:
        return 0.0
    beyond = (value - bound.bound) * (1 if bound.at_most else -1)
    return max(0.0, beyond / abs(bound.bound)) if bound.bound else float(beyond > 0)

"""What the trials of a candidate say together: a value with its interval, and the chance that bounds hold.

Trials are joined on the logarithmic scale. A trial errs in two ways: within itself, by its own interval,
and from run to run, which no trial sees; the latter is learnt from everything that was measured twice.
A percentile that is no claim of one trial is one of several that have enough effective samples together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from modeldyno.core.load.load_curve import CLIENT_LIMITED
from modeldyno.core.metrics.constraints import Answer, Judgement, Verdict
from modeldyno.core.metrics.measurement import SATURATED
from modeldyno.core.metrics.metric import fraction_of
from modeldyno.core.stats import student_t
from modeldyno.core.stats.statistics import NORMAL, certified_floor
from modeldyno.core.study.study import Stage, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.core.metrics.constraints import Constraint
    from modeldyno.core.metrics.metric import Query
    from modeldyno.core.study.goal import Goal
    from modeldyno.core.study.study import Candidate, Study, Trial

_Z = NORMAL.inv_cdf(0.975)
PRIOR, PRIOR_DEGREES = 0.03, 2.0
"""Spread from run to run that is assumed where nothing was repeated, and what this is worth."""
UNCERTIFIED = 0.5
"""Most chance of a bound on a percentile that is no claim yet, or was not measured."""
DOUBTED = 0.75
"""Most chance of bounds where the server was saturated, or the client was the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number in base units and its 95 % interval, variation from run to run included."""

    value: float
    low: float
    high: float
    error: float
    """Standard error of the logarithm of the value; of the value itself where that is not positive."""
    between: float = 0.0
    """The part of it that is due to variation from run to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How much a query differs from run to run."""

    relative: float
    """Standard deviation of the logarithm."""
    degrees: float
    """Degrees of freedom that this was learnt from, those of the assumption included."""


def spread(study: Study, query: Query) -> float:
    """Give the relative standard deviation from run to run, pooled over all that was repeated."""
    return learnt(study, query).relative


def learnt(study: Study, query: Query) -> Spread:
    """Learn it: what repeats differ by, less what they would differ by their own errors.

    It is joined with an assumption that is worth a few degrees of freedom, as one that is conjugate
    to a variance: (n0 s0^2 + SS) / (n0 + n). Repeats are counted within a stage, because what was
    chosen for its luck is not expected again; and of a server only what began with a start of it.
    """
    squares, degrees = 0.0, 0
    for group in _repeats(study):
        parts = [part for trial in group if (part := _part(_told(trial, query))) is not None]
        if len(parts) < 2 or any(value <= 0 or exact for value, _, exact in parts):  # noqa: PLR2004 - a pair
            continue
        logs = [math.log(value) for value, _, _ in parts]
        mean = sum(logs) / len(logs)
        own = sum(error**2 for _, error, _ in parts) * (len(parts) - 1) / len(parts)
        squares += sum((each - mean) ** 2 for each in logs) - own
        degrees += len(parts) - 1
    whole = PRIOR_DEGREES + degrees
    variance = (PRIOR_DEGREES * PRIOR**2 + max(0.0, squares)) / whole
    return Spread(relative=math.sqrt(variance), degrees=whole)


def _repeats(study: Study) -> Iterator[Sequence[Trial]]:
    """Give the trials of a point that differ by nothing but the run."""
    served = study.job.load is not None
    for candidate in study.candidates.values():
        if len(candidate.trials) > 1:
            done = [trial for trial in candidate.trials if trial.state is State.DONE]
            searched = [trial for trial in done if not _verified(trial)]
            yield [*searched[-1 if served else 0 :], *filter(_verified, done)]


def _verified(trial: Trial) -> bool:
    return trial.stage is Stage.VERIFY


def _told(trial: Trial, query: Query) -> Answer | None:
    """Give what a trial says; of a percentile that only wants for samples, the plain quantile."""
    found = trial.ask(query)
    short = found is not None and found.value is None and found.size is not None
    return trial.ask(replace(query, part="raw")) if short else found


def _part(answer: Answer | None) -> tuple[float, float, bool] | None:
    """Give the value of an answer, its own standard error, and whether it is a count; None: no value.

    The error is that of the logarithm, or of the value where that is not positive. Where an end of the
    interval is open, the other one tells it; of what was seen once the error is that from run to run.
    """
    if answer is None or answer.value is None:
        return None
    value, ends = answer.value, answer.bounds()
    if value > 0:
        sides = (
            abs(math.log(end / value)) if end > 0 else (value - end) / value
            for end in (ends.low, ends.high)
            if math.isfinite(end)
        )
    else:
        sides = (abs(end - value) for end in (ends.low, ends.high) if math.isfinite(end))
    known = list(sides)
    return value, sum(known) / len(known) / _Z if known else 0.0, answer.exact


def blur(study: Study, query: Query) -> float:
    """Give the share by which a look errs in itself, as the looks at a query tell: the median.

    0 for a percentile, of which a look gives a hint alone, and where no look tells.
    """
    if query.statistic is not None and fraction_of(query.statistic) is not None:
        return 0.0
    parts = [part for trial in study.measured if (part := _part(trial.ask(query))) is not None]
    errors = [error for value, error, _ in parts if value > 0]
    return median(errors) if errors else 0.0


# --- a value ---------------------------------------------------------------------------------------


def estimate(study: Study, candidate: Candidate, query: Query) -> Estimate | None:
    """Give what the telling trials of a candidate say together; None where none has a value."""
    return joined(claims(candidate.telling, query), learnt(study, query))


def claims(trials: Sequence[Trial], query: Query) -> list[Answer | None]:
    """Give the answers of trials that may be claimed from.

    A percentile is a claim above its floor of effective samples, and these are pooled over fresh processes:
    where all trials together reach it, the quantiles of all of them are given.
    """
    whole = (_sufficiency(trials, query) or 0.0) >= 1
    return [_told(trial, query) if whole else trial.ask(query) for trial in trials]


def missing(trials: Sequence[Trial], bound: Constraint) -> float:
    """Give the effective samples that a percentile lacks to be a claim, for each one that the trials have.

    0 where it lacks none, and where no number of them would make it one.
    """
    had = None if bound.percentile is None else _sufficiency(trials, bound.query)
    return max(0.0, 1 / had - 1) if had else 0.0


def _sufficiency(trials: Sequence[Trial], query: Query) -> float | None:
    """Give the effective samples that trials have of a percentile, as a multiple of its floor.

    None where no number of them would make it a claim: of a load that was void, or of another statistic.
    """
    sizes = [None if answer is None else answer.size for answer in (trial.ask(query) for trial in trials)]
    fraction = None if query.statistic is None else fraction_of(query.statistic)
    if fraction is None or None in sizes:
        return None
    return sum(filter(None, sizes)) / certified_floor(fraction)


def joined(answers: Iterable[Answer | None], between: Spread) -> Estimate | None:
    """Join answers of several runs, each weighted by 1 / (its own error^2 + that from run to run^2)."""
    parts = [part for answer in answers if (part := _part(answer)) is not None]
    if not parts:
        return None
    values = [value for value, _, _ in parts]
    if all(exact for _, _, exact in parts) and len(set(values)) == 1:
        return Estimate(value=values[0], low=values[0], high=values[0], error=0.0)
    if min(values) <= 0:
        return _plainly(parts)
    weights = [1 / (error**2 + between.relative**2) for _, error, _ in parts]
    whole = sum(weights)
    centre = sum(w * math.log(value) for w, value in zip(weights, values, strict=True)) / whole
    error = 1 / math.sqrt(whole)
    runs = between.relative * math.sqrt(sum(w**2 for w in weights)) / whole
    half = student_t.point(0.025, _degrees(error, runs, between)) * error
    return Estimate(
        value=math.exp(centre),
        low=math.exp(centre - half),
        high=math.exp(centre + half),
        error=error,
        between=runs,
    )


def _plainly(parts: Sequence[tuple[float, float, bool]]) -> Estimate:
    """Join what has no logarithm: the mean, with the error that the runs themselves show."""
    n = len(parts)
    mean = sum(value for value, _, _ in parts) / n
    own = sum((error * value if value > 0 else error) ** 2 for value, error, _ in parts) / n**2
    seen = sum((value - mean) ** 2 for value, _, _ in parts) / max(1, n - 1) / n
    error = math.sqrt(max(own, seen))
    least = 0.0 if min(value for value, _, _ in parts) >= 0 else -math.inf
    low, high = max(least, mean - _Z * error), mean + _Z * error
    return Estimate(value=mean, low=low, high=high, error=error / mean if mean > 0 else error)


def _degrees(error: float, runs: float, between: Spread) -> float:
    """Give the degrees of freedom of a sum of variances of which one is estimated (Satterthwaite 1946)."""
    return between.degrees * (error / runs) ** 4


def hint(candidate: Candidate, query: Query) -> float | None:
    """Give a value to be searched by: that of the estimate, or else a percentile that is no claim yet."""
    telling = candidate.telling
    for raw in (False, True):
        asked = replace(query, part="raw") if raw else query
        found = [part[0] for trial in telling if (part := _part(trial.ask(asked))) is not None]
        if found and min(found) > 0:
            return math.exp(sum(map(math.log, found)) / len(found))
        if found:
            return sum(found) / len(found)
    return None


# --- bounds ----------------------------------------------------------------------------------------


def feasibility(study: Study, candidate: Candidate) -> float:
    """Give the probability that a candidate works and that all constraints hold."""
    spreads = [learnt(study, bound.query) for bound in study.goal.constraints]
    return chance(candidate, study.goal, spreads)


def chance(candidate: Candidate, goal: Goal, spreads: Sequence[Spread]) -> float:
    """Give the same, where the spreads of the constraints are known already."""
    telling = candidate.telling
    if not telling:
        return 0.0
    # What failed when it was tried again may fail in use.
    tried = [trial for trial in candidate.trials if _verified(trial) or not _verified(telling[0])]
    whole = len(telling) / len(tried)
    for bound, between in zip(goal.constraints, spreads, strict=True):
        whole *= _holds(candidate, bound, between)
    doubted = any(not {SATURATED, CLIENT_LIMITED}.isdisjoint(trial.doubts) for trial in telling)
    return min(whole, DOUBTED) if doubted and goal.constraints else whole


def _holds(candidate: Candidate, bound: Constraint, between: Spread) -> float:
    """Give the probability that a bound holds: that of the estimate, less the runs that broke it anyhow."""
    judged = [judgement(trial, bound) for trial in candidate.telling]
    told = claims(candidate.telling, bound.query)
    certified = [a for a in told if a is not None and a.value is not None] or [
        j.answer for j in judged if j.answer.value is not None
    ]
    lost = sum(j.answer.value is None and j.verdict is Verdict.BROKEN for j in judged)
    void = lost if len(certified) < len(judged) else 0
    found = joined(certified, between)
    if found is not None:
        return _within(found, bound, between) * len(certified) / (len(certified) + void)
    if void:
        return 0.0
    raw = (trial.ask(replace(bound.query, part="raw")) for trial in candidate.telling)
    hinted = joined(raw, between)
    if hinted is None:
        return UNCERTIFIED
    # A percentile that is no claim may hold a bound all the same, where all of enough samples keep it.
    most = 1.0 if any(j.verdict is Verdict.HELD for j in judged) else UNCERTIFIED
    return min(most, _within(hinted, bound, between))


def _within(found: Estimate, bound: Constraint, between: Spread) -> float:
    """Give the probability that a value lies within a bound."""
    if not found.error:
        exact = Answer(query=bound.query, value=found.value, exact=True)
        return float(bound.on(exact).verdict is Verdict.HELD)
    room = (bound.bound - found.value) * (1 if bound.at_most else -1)
    if found.value > 0 and bound.bound > 0:
        room = math.log(bound.bound / found.value) * (1 if bound.at_most else -1)
        return _chance_of(room / found.error, found, between)
    absolute = found.error * found.value if found.value > 0 else found.error
    return _chance_of(room / absolute, found, between)


def _chance_of(errors: float, found: Estimate, between: Spread) -> float:
    """Give the probability that there is room for so many estimated standard errors, either way."""
    if not found.between:
        return NORMAL.cdf(errors)
    over = student_t.beyond(abs(errors), _degrees(found.error, found.between, between))
    return 1 - over if errors >= 0 else over


def judgement(trial: Trial, bound: Constraint) -> Judgement:
    """Judge a trial by what is known of it, under any goal."""
    found = trial.ask(bound.query)
    if found is not None:
        return bound.on(found)
    made = (j for j in trial.judgements if j.constraint == bound)
    return next(made, bound.on(Answer(query=bound.query, value=None, why="it was not measured")))


def miss(candidate: Candidate, goal: Goal) -> float:
    """Give by which share of the bounds, all together, they are missed; infinite where nothing was measured.

    A bound of 0 is missed by the whole.
    """
    if candidate.failed:
        return math.inf
    return sum(missed(candidate, bound) for bound in goal.constraints)


def missed(candidate: Candidate, bound: Constraint) -> float:
    """Give by which share a bound is missed; 0 where it holds, or nothing is known."""
    value = hint(candidate, bound.query)
    ends = [judgement(trial, bound).answer.bounds() for trial in candidate.telling]
    known = [end for e in ends if math.isfinite(end := e.low if bound.at_most else e.high)]
    if value is None and known:  # void: it is at least as bad as this
        value = sum(known) / len(known)
    if value is None:
        return 0.0
    beyond = (value - bound.bound) * (1 if bound.at_most else -1)
    return max(0.0, beyond / abs(bound.bound)) if bound.bound else float(beyond > 0)

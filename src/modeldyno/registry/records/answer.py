"""The registry's question: which version and variant holds these bounds at the least cost?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from modeldyno.base.document import Document
from modeldyno.base.metrics.constraints import Answer, Judgement, Verdict
from modeldyno.base.metrics.measurement import Distribution, Interval
from modeldyno.base.metrics.metric import Query, fraction_of
from modeldyno.base.result.cost import Price
from modeldyno.base.result.result import FailureKind
from modeldyno.base.stats import student_t
from modeldyno.registry.records.records import FigureState, HardwareTarget, Variant, VariantFigure
from modeldyno.serving.load.replicas import replica_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from modeldyno.base.metrics.constraints import Constraint
    from modeldyno.base.result.result import Result
    from modeldyno.base.result.where import KeptNumber

RATES = ("request_rate", "throughput")
"""Metrics that say how much a replica does, the first that was measured."""


class AnswerState(StrEnum):
    """Whether there is an answer."""

    FOUND = "found"
    NOTHING_HOLDS = "nothing-holds"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCandidate:
    """A figure as an answer: what it needs and costs, or why it is none."""

    figure: VariantFigure
    target: HardwareTarget | None
    judgements: tuple[Judgement, ...] = ()
    rate: float | None = None
    """Answers or inferences in a second of one replica."""
    rate_interval: Interval | None = None
    replicas: int | None = None
    """For the demand, counted by the lower end of the interval of the rate; None without a demand."""
    per_hour: float | None = None
    """What the replicas cost; None without a price."""
    out: str = ""
    """Why it is no answer; empty if it is one."""
    out_of_memory: bool = False
    """Whether it ran out of memory there, which is known as surely as a broken bound."""
    certainty: float = 1.0
    """With how much confidence, at least, all bounds hold and the replicas carry the demand, although it was
    chosen for that: one minus the chances of error of each, times the figures to choose from."""

    @property
    def surely_out(self) -> bool:
        """Return whether it is known not to hold, so that measuring it again could not make it the answer."""
        broken = any(judgement.verdict is Verdict.BROKEN for judgement in self.judgements)
        return broken or self.out_of_memory


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RegistryAnswer(Document):
    """Which variant to run and with which configuration, or why that is not known."""

    KIND = "answer"
    model: str
    state: AnswerState
    bounds: tuple[str, ...]
    demand: float | None
    price: Price | None
    best: AnswerCandidate | None
    """The answer at least cost, or without a price the one of the highest rate."""
    among: int
    """Figures that it was chosen from: all that are fresh."""
    others: tuple[AnswerCandidate, ...]
    """Other answers, the best first."""
    fell_out: tuple[AnswerCandidate, ...]
    """What does not answer, each with its reason."""
    unusable: tuple[Variant, ...]
    """Variants that are not the model any more, or do not exist, each with its reason."""
    waiting: int
    """Figures that are queued or being measured."""
    seconds: float | None
    """About how long these take; None if nothing measures them."""


def judge_figure(
    figure: VariantFigure,
    result: Result | None,
    target: HardwareTarget | None,
    *,
    bounds: Sequence[Constraint],
    demand: float | None,
    price: Price | None,
    among: int = 1,
    kept: Mapping[str, KeptNumber] | None = None,
) -> AnswerCandidate:
    """Judge whether a figure answers.

    Args:
        figure: with its state; only a fresh one answers, and one that ran out of memory surely does not hold.
        result: its Result, or None if the store no longer has it.
        target: where it was measured.
        bounds: all must surely hold.
        demand: requests per second.
        price: of one replica.
        among: figures that can be chosen; the more, the more surely must each hold.
        kept: the numbers of its Result by query, which answer instead of it.
    """
    failure = None if result is None else result.failure
    if figure.state is FigureState.FAILED and failure is not None and failure.kind == FailureKind.OOM:
        out = f"it does not fit in memory: {failure.message}"
        return AnswerCandidate(figure=figure, target=target, out=out, out_of_memory=True)
    if figure.state is not FigureState.FRESH:
        reason = f"{figure.state}: {figure.why}" if figure.why else str(figure.state)
        return AnswerCandidate(figure=figure, target=target, out=reason)
    if kept is not None:
        ask = partial(_ask_kept, kept)
    elif result is not None:
        ask = partial(_ask, result)
    else:
        return AnswerCandidate(figure=figure, target=target, out="its result is no longer in the store")
    answers = [(bound, ask(bound.query)) for bound in bounds]
    missing = [str(bound) for bound, answer in answers if answer is None]
    if missing:
        return AnswerCandidate(figure=figure, target=target, out=f"not measured: {', '.join(missing)}")
    judgements = tuple(bound.on(answer) for bound, answer in answers if answer is not None)
    rate, interval = _rate(ask)
    out = "; ".join(j.sentence() for j in judgements if j.verdict is not Verdict.HELD)
    errors = [0.0] if out else [_chance_of_error(j, result, among) for j in judgements]
    if max(errors, default=0.0) > TAIL:
        out = _not_sure_enough(judgements[errors.index(max(errors))], max(errors), among)
    if not out and demand is not None and not rate:
        out = "its rate was not measured"
    replicas = None
    if not out and demand is not None and rate:
        least = rate if interval is None else lower_end(rate, interval, among)
        replicas = replica_count(demand, least) if least > 0 else None
        out = "" if replicas else "its rate is too uncertain to count replicas"
        errors.append(0.0 if interval is None else TAIL)
    per_hour = None if price is None else price.per_hour * (replicas or 1)
    return AnswerCandidate(
        figure=figure,
        target=target,
        judgements=judgements,
        rate=rate,
        rate_interval=interval,
        replicas=replicas,
        per_hour=None if out else per_hour,
        out=out,
        certainty=0.0 if out else max(0.0, 1 - sum(errors)),
    )


def choose(
    model: str,
    candidates: Iterable[AnswerCandidate],
    *,
    bounds: Sequence[Constraint] = (),
    demand: float | None = None,
    price: Price | None = None,
    unusable: Sequence[Variant] = (),
    waiting: int = 0,
    seconds: float | None = None,
) -> RegistryAnswer:
    """Choose the cheapest candidate that holds every bound.

    Of equal cost, the one with the highest rate wins; without a demand, that is the only criterion. Nothing
    holds only if nothing is undecided, stale or still to be measured.
    """
    all_candidates = list(candidates)
    holding = sorted((c for c in all_candidates if not c.out), key=order)
    fell_out = tuple(c for c in all_candidates if c.out)
    open_ones = [c for c in fell_out if not c.surely_out]
    if holding:
        state = AnswerState.FOUND
    elif fell_out and not open_ones and not waiting:
        state = AnswerState.NOTHING_HOLDS
    else:
        state = AnswerState.UNKNOWN
    return RegistryAnswer(
        model=model,
        state=state,
        bounds=tuple(map(str, bounds)),
        demand=demand,
        price=price,
        best=holding[0] if holding else None,
        among=sum(candidate.figure.state is FigureState.FRESH for candidate in all_candidates),
        others=tuple(holding[1:]),
        fell_out=fell_out,
        unusable=tuple(unusable),
        waiting=waiting,
        seconds=seconds,
    )


def _chance_of_error(judgement: Judgement, result: Result | None, among: int) -> float:
    query = judgement.constraint.query
    measurement = None if result is None else result.find(query.metric, query.scope)
    value = None if measurement is None else measurement.value
    return chance_of_error(judgement, value if isinstance(value, Distribution) else None, among)


def _not_sure_enough(judgement: Judgement, error: float, among: int) -> str:
    certainty = max(0.0, 1 - error)
    return f"{judgement.sentence()}, but chosen from {among} figures with a certainty of {certainty:.0%} only"


def order(candidate: AnswerCandidate) -> tuple[float, int, float, str]:
    """Return by what answers are sorted, the best first: cost, replicas, rate."""
    cost = math.inf if candidate.per_hour is None else candidate.per_hour
    return cost, candidate.replicas or 0, -(candidate.rate or 0.0), candidate.figure.key


def _ask(result: Result, query: Query) -> Answer | None:
    return None if result.find(query.metric, query.scope) is None else Answer.to(query, result.measurements)


def _ask_kept(kept: Mapping[str, KeptNumber], query: Query) -> Answer | None:
    """Return the answer that a kept number is; None if the query was not measured."""
    number = kept.get(str(query))
    if number is None:
        return None
    low, high = number.low, number.high
    if number.value is not None and low == high == number.value:
        return Answer(query=query, value=number.value, exact=True)
    if number.value is not None and low is None and high is None:
        return Answer(query=query, value=number.value)
    interval = Interval(low=-math.inf if low is None else low, high=math.inf if high is None else high)
    return Answer(query=query, value=number.value, interval=interval)


def _rate(ask: Callable[[Query], Answer | None]) -> tuple[float | None, Interval | None]:
    for name in RATES:
        answer = ask(Query(metric=name))
        if answer is not None and answer.value:
            return answer.value, answer.interval
    return None, None


# --- how sure a choice is ---------------------------------------------------------------------------

TAIL = 0.025
"""Chance that the truth lies beyond one end of a 95 % interval."""
_DEGREES = 4
"""Of Student's t, by which an interval is made wider: as over the five processes that a claim takes. Its
tails are heavier than those of a normal distribution."""
_NEGLIGIBLE = 1e-17
"""Share of a sum below which its terms are left out."""


def chance_of_error(judgement: Judgement, distribution: Distribution | None, among: int) -> float:
    """Return the chance that one of several figures seems to hold a bound which it breaks by a hair.

    Of one figure, it follows from how far the bound lies beyond the end of the interval, by Student's t; for
    a percentile also from how many samples are beyond the bound, by the binomial distribution, which holds
    whatever lies between the last samples and the bound. The larger of the two counts.

    Args:
        judgement: that the bound is held.
        distribution: the samples of what is bounded; None for a number, or if they are not at hand.
        among: the number of figures that could have been chosen.
    """
    answer, bound = judgement.answer, judgement.constraint
    if answer.interval is None:
        if answer.exact:
            return 0.0
        return TAIL  # seen once: nothing tells how much it varies, nor what more figures do to that
    chance = 0.0 if answer.value is None else _beyond_interval(bound, answer.value, answer.interval)
    fraction = fraction_of(bound.query.statistic or "")
    if distribution is not None and fraction is not None:
        chance = max(chance, _beyond_samples(bound, distribution, fraction))
    elif answer.value is None:
        chance = TAIL
    return min(1.0, among * min(chance, TAIL))


def lower_end(value: float, interval: Interval, among: int) -> float:
    """Return the lower end of an interval that holds for the highest of several values, too."""
    wider = student_t.upper_tail_quantile(TAIL / among, _DEGREES) / _width()
    return value - (value - interval.low) * wider


def _beyond_interval(bound: Constraint, value: float, interval: Interval) -> float:
    end = interval.high if bound.at_most else interval.low
    half, distance = abs(end - value), abs(bound.bound - value)
    if not half:
        return 0.0
    return student_t.upper_tail_probability(distance / half * _width(), _DEGREES)


def _width() -> float:
    """Return how many standard errors the end of an interval is from its middle."""
    return student_t.upper_tail_quantile(TAIL, _DEGREES)


def _beyond_samples(bound: Constraint, distribution: Distribution, fraction: float) -> float:
    """Return the chance of as few samples beyond the bound, if the percentile were at the bound."""
    samples = distribution.samples()
    if bound.at_most:
        share, beyond = 1 - fraction, int((samples > bound.bound).sum())
    else:
        share, beyond = fraction, int((samples < bound.bound).sum())
    trials = max(1, int(distribution.effective_size(bound.query.statistic or "")))
    return _at_most(math.ceil(beyond * trials / len(samples)), trials, share)


def _at_most(count: int, trials: int, share: float) -> float:
    """Return the probability of at most `count` successes in independent trials, fewer than usual."""
    log = math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
    term = math.exp(log + count * math.log(share) + (trials - count) * math.log1p(-share))
    total = term
    for k in range(count, 0, -1):
        term *= k * (1 - share) / ((trials - k + 1) * share)
        total += term
        if term < _NEGLIGIBLE * total:
            break
    return total

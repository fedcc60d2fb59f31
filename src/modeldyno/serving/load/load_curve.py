"""A load curve: measurements under rising loads, the knee, and where throughput stops growing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

from modeldyno.base.document import Conclusion, MeasuredAt
from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.job.number_range import parse_range
from modeldyno.base.metrics.constraints import Answer, Constraint, Judgement, Verdict
from modeldyno.base.metrics.measurement import CLIENT_LIMITED, INTERRUPTED, SATURATED
from modeldyno.base.metrics.queries import answers_under_load
from modeldyno.base.result.result import Environment, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.base.result.result import Result

SCHEMA = 1
"""Schema version of the documents with several loads: a load curve, and the answer of a capacity search."""
"""Codes of the doubts that the client, not the server, was the limit, and that the user ended it early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """One load and its measurement."""

    load: float
    """Concurrency, or requests due per second."""
    answers: tuple[Answer, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    """On the given bounds, by 95 % intervals."""
    doubts: tuple[str, ...] = ()
    """Codes."""
    failure: str = ""
    """Why nothing could be measured."""
    care: float = 1.0
    """Multiple of the Plan's time that it was measured for."""
    result: str = ""
    """Id of the Result."""

    @classmethod
    def of(
        cls, result: Result, load: float, bounds: Sequence[Constraint] = (), *, care: float = 1.0
    ) -> LoadPoint:
        """Extract from a Result what a load curve and a capacity search need."""
        judgements = tuple(bound.judge(result.measurements) for bound in bounds)
        return cls(
            load=load,
            answers=(
                *answers_under_load(result.measurements),
                *raw_percentiles(judgements, result.measurements),
            ),
            judgements=judgements,
            doubts=tuple(dict.fromkeys(doubt.code for doubt in result.doubts)),
            failure=result.failure.message if result.failure else "",
            care=care,
            result=result.id,
        )

    @property
    def interrupted(self) -> bool:
        """Whether the user ended it early."""
        return INTERRUPTED in self.doubts

    def find(self, metric: str, statistic: str | None = None, part: str | None = None) -> Answer | None:
        """Return the value of a metric, or None."""
        query = (metric, statistic, part)
        matches = (a for a in self.answers if (a.query.metric, a.query.statistic, a.query.part) == query)
        return next(matches, None)


def raw_percentiles(judgements: Sequence[Judgement], measurements: Sequence[Measurement]) -> Iterator[Answer]:
    """Yield the raw quantile of each judged percentile that is not certified: a hint for a search."""
    for judgement in judgements:
        if judgement.answer.value is None and judgement.constraint.percentile is not None:
            with suppress(RunFailed, RequestError):  # not measured at all
                yield Answer.to(replace(judgement.constraint.query, part="raw"), measurements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """The load with the most throughput for its latency, as far as the measurements tell."""

    load: float
    low: float
    """The smallest load that may be the knee."""
    high: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LoadSeries(Conclusion):
    """A log of loads on one server: what a load curve and a search have in common, as documents."""

    rungs: tuple[LoadPoint, ...]
    """In the order in which they were measured."""
    job: Job | None = None
    """The Job of every load, except for the load; None in documents that earlier versions wrote."""
    model: ModelIdentity | None = None
    """Of the first load that reported it; a resumed series must measure the same model."""
    environment: Environment | None = None
    """Of that load; other hardware is not comparable."""
    id: str = ""
    """Twelve hexadecimal digits; empty if it is not stored."""
    created: str = ""
    """Time of UTC, ISO 8601."""
    name: str = ""
    """Of the model."""
    schema: int = SCHEMA

    @property
    def model_digests(self) -> frozenset[str]:
        """Digest of its model; none if no load reported it."""
        return frozenset({self.model.digest} if self.model else ())

    @property
    def measured_at(self) -> MeasuredAt:
        """Where all of its loads were measured."""
        return MeasuredAt() if self.job is None else place_of(self.job, self.environment)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LoadCurve(LoadSeries):
    """The same model under a series of loads."""

    KIND = "ladder"
    knob: str
    """The knob that was raised: ``concurrency`` or ``rate``."""
    loads: tuple[int | float, ...] = ()
    """The loads asked for; those measured for an earlier request are in `rungs` as well."""
    until_plateau: bool = False
    """Whether it ends once more load brings no more throughput."""
    bounds: tuple[Constraint, ...] = ()
    """Judged at each load."""

    @property
    def by_load(self) -> tuple[LoadPoint, ...]:
        """The load points from the smallest load to the largest."""
        return tuple(sorted(self.rungs, key=lambda rung: rung.load))

    @property
    def knee(self) -> Knee | None:
        """The load of the greatest power, and the neighbouring loads between which the knee lies.

        Power is throughput over mean latency (Giessler et al. 1978; Kleinrock 1979, "Power and deterministic
        rules of thumb for probabilistic problems in computer communications"). It needs neither smoothing nor
        a scale, and another load at the far end does not move it, as it does with rules that look for the
        greatest distance from a chord. In a closed loop it is greatest where one per cent of load gains half
        a per cent of throughput; with k servers that is at k. None if it may lie beyond the last load.
        """
        powers = [(rung.load, power) for rung in self.by_load if (power := _power(rung)) is not None]
        if not powers:
            return None
        best, (_, least, _) = max(powers, key=lambda pair: pair[1][0])
        candidates = [index for index, (_, (_, _, high)) in enumerate(powers) if high >= least]
        if candidates[-1] + 1 == len(powers):
            return None
        return Knee(load=best, low=powers[max(0, candidates[0] - 1)][0], high=powers[candidates[-1] + 1][0])

    @property
    def plateau(self) -> float | None:
        """The smallest load beyond which no larger one gave more throughput beyond the intervals."""
        rates = [(rung.load, rate.bounds()) for rung in self.by_load if (rate := _rate(rung)) is not None]
        for index, (load, bounds) in enumerate(rates[:-1]):
            if all(later.low <= bounds.high for _, later in rates[index + 1 :]):
                return load
        return None

    @property
    def decline(self) -> float | None:
        """The smallest load beyond the best one at which throughput has fallen beyond the intervals."""
        rates = [(rung.load, rate) for rung in self.by_load if (rate := _rate(rung)) is not None]
        if not rates:
            return None
        peak, best = max(rates, key=lambda pair: pair[1].value or 0.0)
        loads = (n for n, rate in rates if n > peak and rate.bounds().high < best.bounds().low)
        return next(loads, None)

    @property
    def judged(self) -> tuple[LadderBound, ...]:
        """What the loads say of each bound, in the order of the bounds."""
        bounds = dict.fromkeys(j.constraint for rung in self.by_load for j in rung.judgements)
        return tuple(LadderBound.of(bound, self.by_load) for bound in bounds)

    @property
    def verdict(self) -> Verdict:
        """That of the bound that fares worst; held without bounds."""
        return max((bound.verdict for bound in self.judged), key=_WORSE.index, default=Verdict.HELD)


_WORSE = (Verdict.HELD, Verdict.UNDECIDED, Verdict.BROKEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderBound:
    """A bound, and what each load of a curve says of it, from the smallest load to the largest."""

    constraint: Constraint
    loads: tuple[tuple[LoadPoint, Judgement], ...]

    @classmethod
    def of(cls, constraint: Constraint, rungs: Iterable[LoadPoint]) -> LadderBound:
        """Gather what load points say of a bound."""
        judged = ((rung, j) for rung in rungs for j in rung.judgements if j.constraint == constraint)
        return cls(constraint=constraint, loads=tuple(judged))

    @property
    def verdict(self) -> Verdict:
        """Broken if any load breaks it; else that of the largest load: a smaller one has fewer answers."""
        if any(judgement.verdict is Verdict.BROKEN for _, judgement in self.loads):
            return Verdict.BROKEN
        return self.loads[-1][1].verdict

    @property
    def held(self) -> tuple[LoadPoint, Judgement] | None:
        """The largest load that holds it, below the smallest that breaks it."""
        below = takewhile(lambda judged: judged[1].verdict is not Verdict.BROKEN, self.loads)
        return next((j for j in reversed([*below]) if j[1].verdict is Verdict.HELD), None)

    def of_verdict(self, verdict: Verdict) -> tuple[tuple[LoadPoint, Judgement], ...]:
        """Return the loads of a verdict."""
        return tuple(judged for judged in self.loads if judged[1].verdict is verdict)


def _rate(rung: LoadPoint) -> Answer | None:
    """Return requests per second; samples per second if requests were not counted."""
    rate = rung.find("request_rate") or rung.find("throughput")
    return rate if rate is not None and rate.value is not None and not _is_unusable(rung) else None


def _is_unusable(rung: LoadPoint) -> bool:
    """Return whether a load point says nothing about the server in a steady state."""
    return bool(rung.failure) or not {SATURATED, CLIENT_LIMITED}.isdisjoint(rung.doubts)


def _power(rung: LoadPoint) -> tuple[float, float, float] | None:
    """Return throughput over mean latency: the value, and the range that the two intervals allow."""
    rate, time = _rate(rung), rung.find("latency", "mean")
    if rate is None or rate.value is None or time is None or not time.value:
        return None
    rates, times = rate.bounds(), time.bounds()
    low = max(0.0, rates.low) / times.high
    return rate.value / time.value, low, rates.high / times.low if times.low > 0 else float("inf")


# --- which loads -----------------------------------------------------------------------------------

_DEFAULT_LAST = 1024
"""Default concurrency at which a load curve ends."""
_MOST_POINTS = 64
"""Most points of a load curve."""


def parse_ladder(text: str) -> tuple[int, ...]:
    """Read rising concurrencies: ``1,2,4,8``, ``1:64`` (doubling), or a range: ``1..4``, ``1..64*2``.

    Raises:
        RequestError: it is none of these.
    """
    first, colon, last = text.strip().partition(":")
    try:
        numbers = parse_range(text)
        if numbers is not None:
            loads = tuple(int(number) for number in numbers if float(number).is_integer())
            loads = loads if len(loads) == len(numbers) else ()
        elif colon:
            loads = doubling_loads(int(first), int(last or _DEFAULT_LAST))
        else:
            loads = tuple(map(int, text.split(",")))
    except (ValueError, RequestError):
        loads = ()
    if not loads or loads[0] < 1 or len(loads) > _MOST_POINTS or any(b <= a for a, b in pairwise(loads)):
        raise RequestError(
            f"'{text}' is not a ladder; write up to {_MOST_POINTS} rising concurrencies: 1,2,4,8 or 1..4, or "
            "1:64 to double up to 64."
        )
    return loads


def single_concurrency(text: str) -> int:
    """Return the most requests in flight beside rates.

    Raises:
        RequestError: it is no number, or several.
    """
    first, *others = parse_ladder(text)
    if others:
        raise RequestError(
            "Several rates and several values of `concurrency` exclude each other; give one of them."
        )
    return first


def ends_at_plateau(text: str) -> bool:
    """Return whether a ladder ends where more load no longer gives more throughput: ``1:64``."""
    return ":" in text and ".." not in text


def doubling_loads(first: int, last: int) -> tuple[int, ...]:
    """Return `first`, twice that and so on, and `last`; empty if they do not rise."""
    loads = [first] if 0 < first <= last else []
    while loads and loads[-1] < last:
        loads.append(min(2 * loads[-1], last))
    return tuple(loads)


def worth_climbing(ladder: LoadCurve) -> bool:
    """Return whether a larger load may add information: throughput grew within the last two.

    A failure, a saturated server, or a client that is the limit ends the climb.
    """
    rungs = ladder.by_load
    if rungs and _is_unusable(rungs[-1]):
        return False
    plateau = ladder.plateau
    return plateau is None or sum(rung.load > plateau for rung in rungs) < _PLATEAU_POINTS


_PLATEAU_POINTS = 2
"""Points beyond the start of the plateau that confirm it."""

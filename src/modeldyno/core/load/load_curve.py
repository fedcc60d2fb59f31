"""A ladder of loads: what each rung gave, the knee of the curve, and where throughput stops growing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from modeldyno.core.metrics.constraints import Answer, Judgement
from modeldyno.core.metrics.measurement import SATURATED
from modeldyno.core.result.summary import UNDER_LOAD, answers
from modeldyno.errors import RequestError, RunFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.metrics.constraints import Constraint
    from modeldyno.core.metrics.measurement import Measurement
    from modeldyno.core.result.result import Result

SCHEMA = 1
"""Of the documents of several loads: a ladder, and the answer of a search."""
CLIENT_LIMITED = "client-limited"
"""Code of the doubt that the client, not the server, was the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A load, and what was measured under it."""

    load: float
    """Concurrency, or requests due in a second."""
    answers: tuple[Answer, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    """On the bounds that were asked for, by 95 % intervals."""
    doubts: tuple[str, ...] = ()
    """Codes."""
    failure: str = ""
    """What went wrong, where nothing could be measured."""
    care: float = 1.0
    """How much longer it was measured than the Plan says."""
    result: str = ""
    """Id of the Result."""

    @classmethod
    def of(cls, result: Result, load: float, bounds: Sequence[Constraint] = (), *, care: float = 1.0) -> Rung:
        """Take from a Result what a ladder and a search need."""
        judgements = tuple(bound.judge(result.measurements) for bound in bounds)
        return cls(
            load=load,
            answers=(*answers(result.measurements, UNDER_LOAD), *plain(judgements, result.measurements)),
            judgements=judgements,
            doubts=tuple(dict.fromkeys(doubt.code for doubt in result.doubts)),
            failure=result.failures[0].message if result.failures else "",
            care=care,
            result=result.id,
        )

    def find(self, metric: str, statistic: str | None = None, part: str | None = None) -> Answer | None:
        """Give what was measured of a metric, or None."""
        asked = (metric, statistic, part)
        found = (a for a in self.answers if (a.query.metric, a.query.statistic, a.query.part) == asked)
        return next(found, None)


def plain(judgements: Sequence[Judgement], measurements: Sequence[Measurement]) -> Iterator[Answer]:
    """Give the plain quantile of each percentile that was judged and is no claim yet: a hint to a search."""
    for judgement in judgements:
        if judgement.answer.value is None and judgement.constraint.percentile is not None:
            with suppress(RunFailed, RequestError):  # it was not measured at all
                yield Answer.to(replace(judgement.constraint.query, part="raw"), measurements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """The load that gives most throughput for its latency, as far as the samples tell."""

    load: float
    low: float
    """The smallest load that may be it."""
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """A document: the same model under one load after the other."""

    knob: str
    """What was raised: ``concurrency`` or ``rate``."""
    rungs: tuple[Rung, ...]
    """In the order in which they were measured."""
    id: str = ""
    """Twelve hexadecimal digits; empty where it is not kept."""
    created: str = ""
    """Time of UTC, ISO 8601."""
    name: str = ""
    """Of the model."""
    schema: int = SCHEMA

    @property
    def sorted(self) -> tuple[Rung, ...]:
        """The rungs from the least load to the greatest."""
        return tuple(sorted(self.rungs, key=lambda rung: rung.load))

    @property
    def knee(self) -> Knee | None:
        """The rung of the greatest power, with its neighbours, between which the knee lies.

        Power is throughput over mean latency (Giessler et al. 1978; Kleinrock 1979, "Power and
        deterministic rules of thumb for probabilistic problems in computer communications"). It needs
        neither smoothing nor a scale, and a rung more at the far end does not move it, as it does
        with rules that look for the greatest distance from a chord. In a closed loop it is greatest
        where one per cent of load gains half a per cent of throughput; with k servers that is at k.
        None where it may lie beyond the last rung.
        """
        powers = [(rung.load, power) for rung in self.sorted if (power := _power(rung)) is not None]
        if not powers:
            return None
        best, (_, least, _) = max(powers, key=lambda pair: pair[1][0])
        rivals = [place for place, (_, (_, _, high)) in enumerate(powers) if high >= least]
        if rivals[-1] + 1 == len(powers):
            return None
        return Knee(load=best, low=powers[max(0, rivals[0] - 1)][0], high=powers[rivals[-1] + 1][0])

    @property
    def plateau(self) -> float | None:
        """The smallest load from which on no greater one gave more throughput beyond the intervals."""
        rates = [(rung.load, rate.bounds()) for rung in self.sorted if (rate := _rate(rung)) is not None]
        for place, (load, bounds) in enumerate(rates[:-1]):
            if all(later.low <= bounds.high for _, later in rates[place + 1 :]):
                return load
        return None

    @property
    def decline(self) -> float | None:
        """The smallest load beyond the best one at which throughput has fallen beyond the intervals."""
        rates = [(rung.load, rate) for rung in self.sorted if (rate := _rate(rung)) is not None]
        if not rates:
            return None
        peak, best = max(rates, key=lambda pair: pair[1].value or 0.0)
        fallen = (n for n, rate in rates if n > peak and rate.bounds().high < best.bounds().low)
        return next(fallen, None)

    @property
    def saturated(self) -> float | None:
        """The smallest load under which queue and latency were still rising."""
        return next((rung.load for rung in self.sorted if SATURATED in rung.doubts), None)


def _rate(rung: Rung) -> Answer | None:
    """Give requests per second; samples where nobody counted requests."""
    found = rung.find("request_rate") or rung.find("throughput")
    return found if found is not None and found.value is not None and not _excluded(rung) else None


def _excluded(rung: Rung) -> bool:
    """Say whether a rung tells nothing of the server in a steady state."""
    return bool(rung.failure) or not {SATURATED, CLIENT_LIMITED}.isdisjoint(rung.doubts)


def _power(rung: Rung) -> tuple[float, float, float] | None:
    """Give throughput over mean latency: the value, and what the two intervals leave open."""
    rate, time = _rate(rung), rung.find("latency", "mean")
    if rate is None or rate.value is None or time is None or not time.value:
        return None
    rates, times = rate.bounds(), time.bounds()
    low = max(0.0, rates.low) / times.high
    return rate.value / time.value, low, rates.high / times.low if times.low > 0 else float("inf")


# --- which loads -----------------------------------------------------------------------------------

_LARGEST = 1024
"""Concurrency at which a ladder ends where nobody says."""
_STEPS = 64
"""Most rungs of a ladder."""


def parse_ladder(text: str) -> tuple[int, ...]:
    """Read ``1,2,4,8`` or ``1:64`` (doubling): rising concurrencies.

    Raises:
        RequestError: it is neither.
    """
    first, colon, last = text.strip().partition(":")
    try:
        loads = doubled(int(first), int(last or _LARGEST)) if colon else tuple(map(int, text.split(",")))
    except ValueError:
        loads = ()
    if not loads or loads[0] < 1 or len(loads) > _STEPS or any(b <= a for a, b in pairwise(loads)):
        raise RequestError(
            f"'{text}' is no ladder; write rising concurrencies such as 1,2,4,8, or 1:64 to double up to 64."
        )
    return loads


def doubled(first: int, last: int) -> tuple[int, ...]:
    """Give `first`, twice that and so on, and `last`; nothing where they do not rise."""
    loads = [first] if 0 < first <= last else []
    while loads and loads[-1] < last:
        loads.append(min(2 * loads[-1], last))
    return tuple(loads)


def worth_climbing(ladder: Ladder) -> bool:
    """Say whether a rung more may tell anything: the last two gave more than the one before them.

    A failure, a load that saturates the server, or a client that is the limit ends the climb.
    """
    rungs = ladder.sorted
    if rungs and _excluded(rungs[-1]):
        return False
    plateau = ladder.plateau
    return plateau is None or sum(rung.load > plateau for rung in rungs) < _FLAT


_FLAT = 2
"""Rungs beyond the beginning of the plateau that show that it is one."""

"""Where a bound begins to be broken as the load grows: what is sure at each load, and the curve between.

The excess of a statistic over its bound is the logarithm of their ratio, positive where the bound is
broken. Over the logarithm of the load it is nearly a line near the boundary: latency behind a full
server grows as the load, and a power of it before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from modeldyno.core.goal import Answer, Judgement, Verdict
from modeldyno.core.ladder import CLIENT_LIMITED, SATURATED
from modeldyno.core.measurement import Interval
from modeldyno.core.metric import METRICS, Better
from modeldyno.core.statistics import NORMAL
from modeldyno.core.units import RATE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from modeldyno.core.goal import Constraint
    from modeldyno.core.ladder import Rung

_ERROR = 0.05
"""Share of the searches that may answer with an interval that misses the truth."""
_Z = NORMAL.inv_cdf(0.975)


def limits(bound: Constraint) -> bool:
    """Say whether more load can break a bound; less load breaks one that asks for a rate."""
    metric = METRICS[bound.query.metric]
    return bound.at_most if metric.better is Better.LOWER else not (metric.unit == RATE or bound.at_most)


def confidence(looks: int) -> float:
    """Give how many standard errors make a verdict sure, where so many are to be right together.

    At a given load a verdict can be wrong in one way only; Bonferroni's share of the error for each.
    """
    return NORMAL.inv_cdf(1 - _ERROR / looks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What all measurements at one load tell together; an interim value."""

    load: float
    verdict: Verdict
    excess: float | None = None
    """Of the bound that is nearest to being broken, or farthest broken."""
    error: float = math.inf
    """Standard error of the excess."""
    care: float = 1.0
    """Of all measurements together."""
    broken: tuple[Judgement, ...] = ()
    """Of the bounds that are surely broken."""
    limited: bool = False
    """Whether the client was the limit, so that what is broken may be its fault."""


def known(rungs: Sequence[Rung], *, z: float, rate: bool) -> tuple[Known, ...]:
    """Judge each load by all that was measured there, from the least to the greatest.

    Args:
        rungs: in any order; only bounds that limit the load are looked at.
        z: standard errors that make a verdict sure.
        rate: whether the load is a rate, so that a saturated server has failed.
    """
    ordered = sorted(rungs, key=lambda rung: rung.load)
    return tuple(_known(list(same), z, rate) for _, same in groupby(ordered, key=lambda rung: rung.load))


def _known(same: Sequence[Rung], z: float, rate: bool) -> Known:
    load, care = same[0].load, sum(rung.care for rung in same)
    if any(rung.failure or (rate and SATURATED in rung.doubts) for rung in same):
        return Known(load=load, verdict=Verdict.BROKEN, care=care)
    cares = [rung.care for rung in same]
    pooled = [
        (judged[0].constraint, _pooled([each.answer for each in judged], cares))
        for judged in zip(*(rung.judgements for rung in same), strict=True)
        if limits(judged[0].constraint)
    ]
    sure = [bound.on(_widened(answer, z)) for bound, answer in pooled]
    broken = tuple(
        replace(judgement, answer=answer)
        for judgement, (_, answer) in zip(sure, pooled, strict=True)
        if judgement.verdict is Verdict.BROKEN
    )
    limited = any(CLIENT_LIMITED in rung.doubts for rung in same)
    held = all(judgement.verdict is Verdict.HELD for judgement in sure)
    excess, error = max((_excess(*pair) for pair in pooled), default=(-math.inf, 0.0))
    return Known(
        load=load,
        verdict=Verdict.HELD if held else Verdict.BROKEN if broken and not limited else Verdict.UNDECIDED,
        excess=excess if math.isfinite(excess) else None,
        error=error,
        care=care,
        broken=() if limited else broken,
        limited=limited,
    )


def _excess(bound: Constraint, answer: Answer) -> tuple[float, float]:
    """Give the excess and its standard error; no finite one where there is no ratio to speak of."""
    value, ends = answer.value, answer.bounds()
    if value is None or value <= 0 or bound.bound <= 0:
        return -math.inf, math.inf
    sign = 1 if bound.at_most else -1
    return sign * math.log(value / bound.bound), ends.half_width() / _Z / value


def _pooled(answers: Sequence[Answer], cares: Sequence[float]) -> Answer:
    """Join the answers of several measurements of one load, weighted by how long each took.

    Where they differ by more than their intervals allow, the joint interval is widened by as much
    (Birge 1932): what differs from one measurement to the next is seen in no single one.
    """
    parts = [(a, a.value, care) for a, care in zip(answers, cares, strict=True) if a.value is not None]
    if len(parts) < 2 or any(a.interval is None for a, _, _ in parts):  # noqa: PLR2004 - nothing to join
        return parts[-1][0] if parts else answers[-1]
    whole = sum(care for _, _, care in parts)
    value = sum(care * each for _, each, care in parts) / whole
    below = math.hypot(*(care * (each - a.bounds().low) for a, each, care in parts)) / whole
    above = math.hypot(*(care * (a.bounds().high - each) for a, each, care in parts)) / whole
    spread = sum(((each - value) / (a.bounds().half_width() / _Z or math.inf)) ** 2 for a, each, _ in parts)
    factor = math.sqrt(max(1.0, spread / (len(parts) - 1)))
    return replace(
        parts[-1][0], value=value, interval=Interval(low=value - factor * below, high=value + factor * above)
    )


def _widened(answer: Answer, z: float) -> Answer:
    """Give the answer with an interval of so many standard errors to either side."""
    if answer.interval is None or answer.value is None:
        return answer
    ends, value, factor = answer.interval, answer.value, z / _Z
    widened = Interval(low=value - factor * (value - ends.low), high=value + factor * (ends.high - value))
    return replace(answer, interval=widened)


# --- the curve -------------------------------------------------------------------------------------

_CURVED = 0.3
"""Standard error of the line at a load, as a share of the excess there: far loads tell less."""
_FLATTEST, _STEEPEST = 0.1, 20.0
"""Bounds of the slope of the excess; latency grows about as the load where it is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line through the excesses near the boundary, over the logarithm of the load."""

    crossing: float
    """The load at which the bound begins to be broken."""
    slope: float
    error: float
    """Standard error of an excess near the boundary, measured as long as the Plan says."""


def curve(points: Iterable[Known]) -> Curve | None:
    """Fit it; None with fewer than two loads whose excess is known."""
    told = [(math.log(k.load), k.excess, k) for k in points if k.excess is not None]
    if len(told) < 2:  # noqa: PLR2004 - a line needs two
        return None
    usual = min((k for _, _, k in told), key=lambda k: abs(k.excess or 0.0))
    weights = [1 / (_finite(k.error) ** 2 + (_CURVED * e) ** 2 + 1e-6) for _, e, k in told]
    total = sum(weights)
    x0 = sum(w * x for w, (x, _, _) in zip(weights, told, strict=True)) / total
    e0 = sum(w * e for w, (_, e, _) in zip(weights, told, strict=True)) / total
    power = sum(w * (x - x0) ** 2 for w, (x, _, _) in zip(weights, told, strict=True))
    slope = sum(w * (x - x0) * (e - e0) for w, (x, e, _) in zip(weights, told, strict=True)) / power
    slope = min(max(slope, _FLATTEST), _STEEPEST)
    crossing = math.exp(min(max(x0 - e0 / slope, -_FAR), _FAR))
    return Curve(crossing=crossing, slope=slope, error=_finite(usual.error) * math.sqrt(usual.care))


_FAR = 50.0


def _finite(error: float) -> float:
    """Give a standard error; one that nothing is known of is large, and not infinite."""
    return min(error, 1.0)

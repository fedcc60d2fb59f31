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

from modeldyno.core.load.load_curve import CLIENT_LIMITED
from modeldyno.core.metrics.constraints import Answer, Judgement, Verdict
from modeldyno.core.metrics.measurement import SATURATED, Interval
from modeldyno.core.metrics.metric import METRICS, Better
from modeldyno.core.stats.statistics import NORMAL
from modeldyno.core.stats.units import RATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.load.load_curve import Rung
    from modeldyno.core.metrics.constraints import Constraint

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
    error: float = 1.0
    """Standard error of the excess."""
    care: float = 1.0
    """Of all measurements together."""
    broken: tuple[Judgement, ...] = ()
    """Of the bounds that are surely broken."""
    uncertified: float = 0.0
    """Care of the longest measurement that was too short for a percentile to be a claim; 0 for none."""
    limited: bool = False
    """Whether the client was the limit, so that what is broken may be its fault."""
    runs: int = 1
    """Measurements."""
    most: float | None = None
    """Requests per second that the server answered while more was due than it could do."""


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
    load, care, runs = same[0].load, sum(rung.care for rung in same), len(same)
    if any(rung.failure or (rate and SATURATED in rung.doubts) for rung in same):
        return Known(load=load, verdict=Verdict.BROKEN, care=care, runs=runs, most=_most(same))
    limited = all(CLIENT_LIMITED in rung.doubts for rung in same)
    same = [rung for rung in same if limited or CLIENT_LIMITED not in rung.doubts]
    cares = [rung.care for rung in same]
    care = sum(cares)
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
    # A rate that the client did not keep was not held, whatever the server did with less.
    held = all(judgement.verdict is Verdict.HELD for judgement in sure) and not (rate and limited)
    excess, error = max(_excess(bound, _told(answer, same)) for bound, answer in pooled)
    return Known(
        load=load,
        verdict=Verdict.HELD if held else Verdict.BROKEN if broken and not limited else Verdict.UNDECIDED,
        excess=excess if math.isfinite(excess) and not limited else None,
        error=error,
        care=care,
        broken=() if limited else broken,
        uncertified=max((c for _, a in pooled if a.value is None for c in cares), default=0.0),
        limited=limited,
        runs=runs,
    )


def _most(same: Sequence[Rung]) -> float | None:
    """Give what a drowned server did per second, where that was counted."""
    rates = [rung.find("request_rate") for rung in same if SATURATED in rung.doubts]
    return max((rate.value for rate in rates if rate is not None and rate.value), default=None)


def _told(answer: Answer, same: Sequence[Rung]) -> Answer:
    """Give the plain quantile where the percentile is no claim yet: the curve is no claim either."""
    query = answer.query
    plain = (rung.find(query.metric, query.statistic, "raw") for rung in reversed(same))
    return answer if answer.value is not None else next(filter(None, plain), answer)


def _excess(bound: Constraint, answer: Answer) -> tuple[float, float]:
    """Give the excess and its standard error; no finite one where there is no ratio to speak of."""
    value, ends = answer.value, answer.bounds()
    if value is None or value <= 0 or bound.bound <= 0:
        return -math.inf, math.inf
    sign = 1 if bound.at_most else -1
    sides = [abs(end - value) for end in (ends.low, ends.high) if math.isfinite(end)]
    half = sum(sides) / len(sides) if sides else math.inf
    return sign * math.log(value / bound.bound), min(half / _Z / value, _UNKNOWN)


_UNKNOWN = 1.0
"""Standard error of an excess of which nothing bounds the error."""


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
    ends = Interval(low=value - factor * below, high=value + factor * above)
    return replace(parts[-1][0], value=value, interval=ends)


def _widened(answer: Answer, z: float) -> Answer:
    """Give the answer with an interval of so many standard errors to either side."""
    if answer.interval is None or answer.value is None:
        return answer
    ends, value, factor = answer.interval, answer.value, z / _Z
    widened = Interval(low=value - factor * (value - ends.low), high=value + factor * (ends.high - value))
    return replace(answer, interval=widened)


# --- the curve -------------------------------------------------------------------------------------

_CURVED = 0.3
"""Standard error of the line at a load, as a share of how far off it is, in excess and in load."""
_FLATTEST, _FULL, _STEEPEST = 0.1, 1.0, 20.0
"""Slopes: the least and the greatest that are believed, and that of a full server in a closed loop, whose
latency grows as the load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line through the excesses near the boundary, over the logarithm of the load."""

    crossing: float
    """The load at which the bound begins to be broken."""
    slope: float
    error: float
    """Standard error of an excess near the boundary, measured as long as the Plan says."""


def ceiling(points: Sequence[Known]) -> float | None:
    """Give the rate that a drowned server kept up: no greater one has a steady state.

    None where none has drowned, or where more than it gave then was held after all.
    """
    held = max((k.load for k in points if k.verdict is Verdict.HELD), default=0.0)
    return next((k.most for k in points if k.most is not None and held < k.most < k.load), None)


def curve(points: Sequence[Known], *, rate: bool = False) -> Curve | None:
    """Fit it to points from the least load to the greatest; None where no excess is known.

    Where nothing is broken yet the line is steeper than what was seen: it will bend upwards, towards
    the slope of a full server. Of an open loop whose drowning is known or can be told, the line is one
    over the logarithm of what is left up to there: latency grows as the inverse of it.
    """
    most = (ceiling(points) or _vanishing(points)) if rate else None
    told = [(_place(k.load, most), min(k.excess, _DROWNED), k) for k in points if k.excess is not None]
    if not told:
        return None
    near = min(told, key=lambda point: abs(point[1]))[2]
    middle = _middle(told)
    strays = [_CURVED * (abs(e) + abs(x - middle)) for x, e, _ in told]
    points_ = [(x, e, k.error**2 + s**2 + _LEAST) for (x, e, k), s in zip(told, strays, strict=True)]
    slope, (x0, e0) = _line(points_)
    if all(e < 0 for _, e, _ in told):
        x0, e0, _ = told[-1]
        slope = (slope + max(slope, _FULL)) / 2
    place, error = min(max(x0 - e0 / slope, -_FAR), _FAR), near.error * math.sqrt(near.care)
    if most is None:
        return Curve(crossing=math.exp(place), slope=slope, error=error)
    busy = min(max(-math.expm1(-place), _IDLEST), _BUSIEST)
    steeper = min(max(slope * busy / (1 - busy), _FLATTEST), _STEEPEST)
    return Curve(crossing=busy * most, slope=steeper, error=error)


def _vanishing(points: Sequence[Known]) -> float | None:
    """Give the rate at which the latency would be infinite, where points on both sides of the bound tell."""
    told = [(k.load, k.excess, k.error) for k in points if k.excess is not None and k.excess < _DROWNED]
    if not told or not min(e for _, e, _ in told) < 0 < max(e for _, e, _ in told):
        return None
    weights = [1 / (error**2 + (_CURVED * e) ** 2 + _LEAST) for _, e, error in told]
    greatest = max(load for load, _, _ in told)

    def misfit(most: float) -> float:
        rest = [e + math.log1p(-load / most) for load, e, _ in told]
        mean = sum(w * r for w, r in zip(weights, rest, strict=True)) / sum(weights)
        return sum(w * (r - mean) ** 2 for w, r in zip(weights, rest, strict=True))

    return min((greatest * (1 + math.exp(-step / 4)) for step in range(-8, 20)), key=misfit)


def _place(load: float, most: float | None) -> float:
    """Give where a load is on the line."""
    return math.log(load) if most is None else -math.log1p(-min(load / most, _BUSIEST))


_IDLEST, _BUSIEST = 0.01, 0.98
"""Least and greatest share of the rate at which a server drowns that a curve is believed for."""
_LEAST, _FAR = 1e-6, 50.0
_DROWNED = 1.4
"""Excess, about four times the bound, above which it tells no more: an open loop drowns at once."""


def _middle(told: Sequence[tuple[float, float, Known]]) -> float:
    """Give the place between the last excess below 0 and the first above; an end where there is none."""
    below = [x for x, e, _ in told if e < 0]
    above = [x for x, e, _ in told if e >= 0]
    return ((max(below) if below else above[0]) + (min(above) if above else below[-1])) / 2


def _line(points: Sequence[tuple[float, float, float]]) -> tuple[float, tuple[float, float]]:
    """Fit a line to places, values and their variances: its slope within reason, and a point on it."""
    weights = [1 / variance for _, _, variance in points]
    total = sum(weights)
    x0 = sum(w * x for w, (x, _, _) in zip(weights, points, strict=True)) / total
    y0 = sum(w * y for w, (_, y, _) in zip(weights, points, strict=True)) / total
    spread = sum(w * (x - x0) ** 2 for w, (x, _, _) in zip(weights, points, strict=True))
    joint = sum(w * (x - x0) * (y - y0) for w, (x, y, _) in zip(weights, points, strict=True))
    slope = joint / spread if spread > _LEAST else _FULL
    return min(max(slope, _FLATTEST), _STEEPEST), (x0, y0)

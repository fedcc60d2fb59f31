"""Estimate the load at which a bound begins to be broken: sure verdicts at each load, and a fitted curve.

The excess of a statistic over its bound is the logarithm of their ratio, positive if the bound is broken.
Over the logarithm of the load it is nearly linear around the crossing: the latency of a saturated server
grows in proportion to the load, and as a power of it before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from modeldyno.base.metrics.constraints import Answer, Judgement, Verdict
from modeldyno.base.metrics.measurement import CLIENT_LIMITED, SATURATED, Interval
from modeldyno.base.metrics.metric import METRICS, Better
from modeldyno.base.stats.statistics import NORMAL, Z
from modeldyno.base.stats.units import RATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.metrics.constraints import Constraint
    from modeldyno.serving.load.load_curve import LoadPoint

_ERROR = 0.05
"""Probability that the interval of a search misses the truth."""


def limits_load(bound: Constraint) -> bool:
    """Return whether more load can break a bound; a lower bound on a rate is broken by less load instead."""
    metric = METRICS[bound.query.metric]
    return bound.at_most if metric.better is Better.LOWER else not (metric.unit == RATE or bound.at_most)


def bonferroni_z(tests: int) -> float:
    """Return the standard errors that make a verdict sure, if `tests` verdicts are to be right together.

    At a given load a verdict can be wrong in one direction only; the error is split by Bonferroni's rule.
    """
    return NORMAL.inv_cdf(1 - _ERROR / tests)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadVerdict:
    """The joint verdict of all measurements at one load; an interim value."""

    load: float
    verdict: Verdict
    excess: float | None = None
    """Of the bound that is closest to being broken, or farthest beyond."""
    error: float = 1.0
    """Standard error of the excess."""
    care: float = 1.0
    """Of all measurements together."""
    broken: tuple[Judgement, ...] = ()
    """On the bounds that are surely broken."""
    uncertified: float = 0.0
    """Care of the longest measurement that was too short to certify a percentile; 0 for none."""
    limited: bool = False
    """Whether the client was the limit, or the only measurement worked off a backlog from before.

    Either may be the cause of a broken bound."""
    runs: int = 1
    """Number of measurements."""
    most: float | None = None
    """Requests per second that the server answered while saturated."""


def judge_loads(rungs: Sequence[LoadPoint], *, z: float, rate: bool) -> tuple[LoadVerdict, ...]:
    """Judge each load by all its measurements, from the smallest load to the largest.

    Args:
        rungs: in any order; only bounds that limit the load are used.
        z: standard errors that make a verdict sure.
        rate: whether the load is a rate, so that a saturated server has failed.
    """
    ordered = sorted(rungs, key=lambda rung: rung.load)
    return tuple(
        _verdict_of_load(list(same), z, rate) for _, same in groupby(ordered, key=lambda rung: rung.load)
    )


def _verdict_of_load(rungs: Sequence[LoadPoint], z: float, rate: bool) -> LoadVerdict:
    load, care, runs = rungs[0].load, sum(rung.care for rung in rungs), len(rungs)
    if any(rung.failure or (rate and SATURATED in rung.doubts) for rung in rungs):
        return LoadVerdict(
            load=load, verdict=Verdict.BROKEN, care=care, runs=runs, most=_saturated_rate(rungs)
        )
    spoilt = [CLIENT_LIMITED in rung.doubts or (rate and _is_draining(rung)) for rung in rungs]
    limited = all(CLIENT_LIMITED in rung.doubts for rung in rungs) or (runs == 1 and spoilt[0])
    if not all(spoilt):
        rungs = [rung for rung, bad in zip(rungs, spoilt, strict=True) if not bad]
    cares = [rung.care for rung in rungs]
    care = sum(cares)
    pooled = [
        (judged[0].constraint, _pooled_answer([each.answer for each in judged], cares))
        for judged in zip(*(rung.judgements for rung in rungs), strict=True)
        if limits_load(judged[0].constraint)
    ]
    verdicts = [bound.on(_widened_answer(answer, z)) for bound, answer in pooled]
    broken = tuple(
        replace(judgement, answer=answer)
        for judgement, (_, answer) in zip(verdicts, pooled, strict=True)
        if judgement.verdict is Verdict.BROKEN
    )
    # A rate that the client did not keep was not held, whatever the server did at the lower rate.
    kept = not (rate and all(CLIENT_LIMITED in rung.doubts for rung in rungs))
    held = kept and all(judgement.verdict is Verdict.HELD for judgement in verdicts)
    excess, error = max(_log_excess(bound, _value_or_raw(answer, rungs)) for bound, answer in pooled)
    return LoadVerdict(
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


def _is_draining(rung: LoadPoint) -> bool:
    """Return whether more was answered than was due: a backlog from before the window was worked off."""
    answered = rung.find("request_rate")
    return (
        answered is not None
        and answered.interval is not None
        and answered.interval.low > _DRAINING * rung.load
    )


_DRAINING = 1.05
"""Answers per request due from which a backlog shrinks, as that of a saturated server grows by as much."""


def _saturated_rate(rungs: Sequence[LoadPoint]) -> float | None:
    """Return the request rate of a saturated server, if it was counted."""
    rates = [rung.find("request_rate") for rung in rungs if SATURATED in rung.doubts]
    return max((rate.value for rate in rates if rate is not None and rate.value), default=None)


def _value_or_raw(answer: Answer, rungs: Sequence[LoadPoint]) -> Answer:
    """Return the raw quantile if the percentile is not certified: the curve needs no certainty."""
    query = answer.query
    raw = (rung.find(query.metric, query.statistic, "raw") for rung in reversed(rungs))
    return answer if answer.value is not None else next(filter(None, raw), answer)


def _log_excess(bound: Constraint, answer: Answer) -> tuple[float, float]:
    """Return the excess and its standard error; infinite if there is no meaningful ratio."""
    value, ends = answer.value, answer.bounds()
    if value is None or value <= 0 or bound.bound <= 0:
        return -math.inf, math.inf
    sign = 1 if bound.at_most else -1
    half_widths = [abs(end - value) for end in (ends.low, ends.high) if math.isfinite(end)]
    half = sum(half_widths) / len(half_widths) if half_widths else math.inf
    return sign * math.log(value / bound.bound), min(half / Z / value, _UNKNOWN)


_UNKNOWN = 1.0
"""Standard error of an excess whose error is unknown."""


def _pooled_answer(answers: Sequence[Answer], cares: Sequence[float]) -> Answer:
    """Pool several measurements of one load, weighted by how long each took.

    If they differ by more than their intervals allow, the pooled interval is widened accordingly (Birge
    1932): variation between measurements shows in no single one.
    """
    weighted = [(a, a.value, care) for a, care in zip(answers, cares, strict=True) if a.value is not None]
    if len(weighted) < 2 or any(a.interval is None for a, _, _ in weighted):
        return weighted[-1][0] if weighted else answers[-1]
    total = sum(care for _, _, care in weighted)
    mean = sum(care * value for _, value, care in weighted) / total
    below = math.hypot(*(care * (value - a.bounds().low) for a, value, care in weighted)) / total
    above = math.hypot(*(care * (a.bounds().high - value) for a, value, care in weighted)) / total
    spread = sum(
        ((value - mean) / (a.bounds().half_width() / Z or math.inf)) ** 2 for a, value, _ in weighted
    )
    factor = math.sqrt(max(1.0, spread / (len(weighted) - 1)))
    ends = Interval(low=mean - factor * below, high=mean + factor * above)
    return replace(weighted[-1][0], value=mean, interval=ends)


def _widened_answer(answer: Answer, z: float) -> Answer:
    """Return the answer with an interval of `z` standard errors to either side."""
    if answer.interval is None or answer.value is None:
        return answer
    ends, value, factor = answer.interval, answer.value, z / Z
    widened = Interval(low=value - factor * (value - ends.low), high=value + factor * (ends.high - value))
    return replace(answer, interval=widened)


# --- the curve -------------------------------------------------------------------------------------

_CURVED = 0.3
"""Standard error of the line at a load, as a share of the distance in excess and in load."""
_FLATTEST, _PROPORTIONAL, _STEEPEST = 0.1, 1.0, 20.0
"""Slopes: the smallest and the largest plausible one, and that of a saturated server in a closed loop, whose
latency grows in proportion to the load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcessCurve:
    """A line through the excesses near the crossing, over the logarithm of the load."""

    crossing: float
    """The load at which the bound begins to be broken."""
    slope: float
    error: float
    """Standard error of an excess near the crossing, measured for the Plan's time."""


def saturation_rate(points: Sequence[LoadVerdict]) -> float | None:
    """Return the rate that a saturated server sustained: no higher rate has a steady state.

    None if none was saturated, or if a higher rate was held after all.
    """
    held = max((k.load for k in points if k.verdict is Verdict.HELD), default=0.0)
    return next((k.most for k in points if k.most is not None and held < k.most < k.load), None)


def fit_curve(points: Sequence[LoadVerdict], *, rate: bool = False) -> ExcessCurve | None:
    """Fit the curve to points from the smallest load to the largest; None if no excess is known.

    If nothing is broken yet, the line is made steeper than the data: it will bend upwards, towards the
    slope of a saturated server. In an open loop whose saturation rate is known or can be estimated, the
    line is fitted over the logarithm of the remaining capacity, because latency grows as its inverse.
    """
    most = (saturation_rate(points) or _estimated_saturation(points)) if rate else None
    known_points = [
        (_abscissa(k.load, most), min(k.excess, _SATURATED_EXCESS), k) for k in points if k.excess is not None
    ]
    if not known_points:
        return None
    near = min(known_points, key=lambda point: abs(point[1]))[2]
    middle = _crossing_guess(known_points)
    strays = [_CURVED * (abs(e) + abs(x - middle)) for x, e, _ in known_points]
    points_ = [(x, e, k.error**2 + s**2 + _LEAST) for (x, e, k), s in zip(known_points, strays, strict=True)]
    slope, (x0, e0) = _fitted_line(points_)
    if all(e < 0 for _, e, _ in known_points):
        x0, e0, _ = known_points[-1]
        slope = (slope + max(slope, _PROPORTIONAL)) / 2
    place, error = min(max(x0 - e0 / slope, -_FAR), _FAR), near.error * math.sqrt(near.care)
    if most is None:
        return ExcessCurve(crossing=math.exp(place), slope=slope, error=error)
    busy = min(max(-math.expm1(-place), _IDLEST), _BUSIEST)
    steeper = min(max(slope * busy / (1 - busy), _FLATTEST), _STEEPEST)
    return ExcessCurve(crossing=busy * most, slope=steeper, error=error)


def _estimated_saturation(points: Sequence[LoadVerdict]) -> float | None:
    """Estimate the rate at which latency becomes infinite, if points on both sides of the bound allow."""
    known_points = [
        (k.load, k.excess, k.error) for k in points if k.excess is not None and k.excess < _SATURATED_EXCESS
    ]
    if not known_points or not min(e for _, e, _ in known_points) < 0 < max(e for _, e, _ in known_points):
        return None
    weights = [1 / (error**2 + (_CURVED * e) ** 2 + _LEAST) for _, e, error in known_points]
    greatest = max(load for load, _, _ in known_points)

    def misfit(most: float) -> float:
        offsets = [e + math.log1p(-load / most) for load, e, _ in known_points]
        mean = sum(w * r for w, r in zip(weights, offsets, strict=True)) / sum(weights)
        return sum(w * (r - mean) ** 2 for w, r in zip(weights, offsets, strict=True))

    return min((greatest * (1 + math.exp(-step / 4)) for step in range(-8, 20)), key=misfit)


def _abscissa(load: float, most: float | None) -> float:
    """Return the abscissa of a load."""
    return math.log(load) if most is None else -math.log1p(-min(load / most, _BUSIEST))


_IDLEST, _BUSIEST = 0.01, 0.98
"""Smallest and largest utilisation for which a curve is plausible."""
_LEAST, _FAR = 1e-6, 50.0
_SATURATED_EXCESS = 1.4
"""Excess, about four times the bound, above which it says no more: an open loop saturates at once."""


def _crossing_guess(known_points: Sequence[tuple[float, float, LoadVerdict]]) -> float:
    """Return the point between the last excess below 0 and the first above; an end if one side is empty."""
    below = [x for x, e, _ in known_points if e < 0]
    above = [x for x, e, _ in known_points if e >= 0]
    return ((max(below) if below else above[0]) + (min(above) if above else below[-1])) / 2


def _fitted_line(points: Sequence[tuple[float, float, float]]) -> tuple[float, tuple[float, float]]:
    """Fit a line to abscissas, values and their variances; return its slope, limited, and a point on it."""
    weights = [1 / variance for _, _, variance in points]
    total = sum(weights)
    x0 = sum(w * x for w, (x, _, _) in zip(weights, points, strict=True)) / total
    y0 = sum(w * y for w, (_, y, _) in zip(weights, points, strict=True)) / total
    spread = sum(w * (x - x0) ** 2 for w, (x, _, _) in zip(weights, points, strict=True))
    joint = sum(w * (x - x0) * (y - y0) for w, (x, y, _) in zip(weights, points, strict=True))
    slope = joint / spread if spread > _LEAST else _PROPORTIONAL
    return min(max(slope, _FLATTEST), _STEEPEST), (x0, y0)

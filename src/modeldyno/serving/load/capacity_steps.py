"""Choose the next load to measure, from the sure verdicts and the fitted curve.

The load is raised until a bound is broken: at most fourfold, or as far as a server that handles one request
at a time would still hold the bound. Then loads a little below and a little above the fitted crossing are
measured, as close to it as can be decided in the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.constraints import Constraint, Verdict
from modeldyno.serving.load.sla_fit import LoadVerdict, bonferroni_z, fit_curve, limits_load, saturation_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.serving.load.sla_fit import ExcessCurve

CONCURRENCY, RATE = "concurrency", "rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySearch:
    """Options of a search for the largest load."""

    bounds: tuple[Constraint, ...]
    """All must hold; at least one must be such that more load can break it."""
    knob: str = CONCURRENCY
    """The knob to raise: ``concurrency``, or the ``rate`` of an open loop."""
    start: float = 1.0
    """The first load."""
    most: float = 1024.0
    """The largest load to try."""
    measurements: int = 10
    """Most measurements, repetitions included."""
    resolution: float = 0.05
    """Stop when the smallest failed load exceeds the largest passed one by no more than this share."""
    patience: float = 8.0
    """Most time to spend on one load, as a multiple of the Plan's time."""
    max_time: float | None = None
    """Seconds for all loads, the verification included; None for no limit."""

    def __post_init__(self) -> None:
        """Refuse invalid options with one sentence."""
        for broken, message in _contradictions(self):
            if broken:
                raise RequestError(f"{message}.")

    @property
    def whole(self) -> bool:
        """Whether loads are whole numbers."""
        return self.knob == CONCURRENCY

    @property
    def required_z(self) -> float:
        """Standard errors that make a verdict sure.

        Only half of the measurements count for the Bonferroni correction, because those that bracket the
        bound are far from it.
        """
        return bonferroni_z(math.ceil(self.measurements / 2) * sum(map(limits_load, self.bounds)))


def _contradictions(search: CapacitySearch) -> tuple[tuple[bool, str], ...]:
    """Return each condition that must not hold, with its message."""
    first, last, resolution = search.start, search.most, search.resolution
    return (
        (not any(map(limits_load, search.bounds)), _NO_LIMIT),
        (not 0 < first <= last < math.inf, f"A search cannot go from {first:g} to {last:g}"),
        (search.measurements < 1, f"A search needs at least one measurement, not {search.measurements}"),
        (
            not 0 < resolution < math.inf,
            f"The resolution of a search is {resolution:g}, but must be positive",
        ),
        (not 1 <= search.patience < math.inf, f"The patience of a search is {search.patience:g}, below 1"),
    )


_NO_LIMIT = "No bound limits the load; name one that more load can break, such as 'latency.p99 <= 50ms'"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextLoad:
    """The next measurement."""

    load: float
    care: float = 1.0
    """Multiple of the Plan's time to measure for."""
    fresh: bool = False
    """Whether a server is started for it, to verify the load."""


class SearchEnd(StrEnum):
    """Why a search ended."""

    NEIGHBOURS = "neighbours"
    """There is no whole number between the passed and the failed load."""
    RESOLVED = "resolved"
    """They are as close to each other as was asked for."""
    INDISTINCT = "indistinct"
    """The loads between are too close to the bound to decide in the time."""
    MEASUREMENTS = "measurements"
    """The most measurements were made."""
    TIME = "time"
    """The time for all loads was over."""
    LARGEST = "largest"
    """The largest allowed load holds."""
    SMALLEST = "smallest"
    """Even the smallest load breaks a bound."""
    CLIENT = "client-limited"
    """The client, not the server, limits the load."""
    DISPUTED = "disputed"
    """A load passed that is larger than one that failed, however long both were measured."""
    REFUSED = "refused"
    """The server rejects all requests as invalid, which no other load changes."""
    JUDGED = "judged-again"
    """Loads that were measured for other bounds were judged by these; nothing was measured for them."""
    INTERRUPTED = "interrupted"
    """The user interrupted the search, or its process was ended."""


# --- the bracket -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """The sure verdicts: the capacity is at least `passed` and below `failed`."""

    passed: float | None
    failed: float | None
    disputed: tuple[LoadVerdict, ...] = ()
    """A load that failed and a larger one that passed; `passed` and `failed` then lie around both."""

    @classmethod
    def of(cls, points: Sequence[LoadVerdict]) -> Bracket:
        """Find the bracket in loads sorted from the smallest to the largest."""
        held = [k for k in points if k.verdict is Verdict.HELD]
        broken = [k for k in points if k.verdict is Verdict.BROKEN]
        if held and broken and held[-1].load > broken[0].load:
            first, last = broken[0], held[-1]
            return cls(
                passed=max((k.load for k in held if k.load < first.load), default=None),
                failed=min((k.load for k in broken if k.load > last.load), default=None),
                disputed=(first, last),
            )
        return cls(passed=held[-1].load if held else None, failed=broken[0].load if broken else None)


def next_step(
    search: CapacitySearch, points: Sequence[LoadVerdict], bracket: Bracket, made: int
) -> NextLoad | SearchEnd:
    """Return the next measurement after `made` ones, or why the search ends."""
    step = _end_reason(search, bracket, made) or _choose_step(search, points, bracket)
    if isinstance(step, SearchEnd):
        return step
    if _surely_saturates(points, step.load):
        return replace(step, care=1.0)
    return replace(step, care=max(step.care, _certifying_care(search, points, step.load)))


def _end_reason(search: CapacitySearch, bracket: Bracket, made: int) -> SearchEnd | None:
    passed, failed = bracket.passed, bracket.failed
    if passed is not None and failed is not None and not bracket.disputed:
        if search.whole and failed - passed <= 1:
            return SearchEnd.NEIGHBOURS
        if failed <= passed * (1 + search.resolution):
            return SearchEnd.RESOLVED
    return SearchEnd.MEASUREMENTS if made >= search.measurements else None


# --- the next load ---------------------------------------------------------------------------------

_FARTHEST, _SAFEST = 4.0, 16.0
"""Largest factors by which the load is raised or lowered, whatever the curve says; and by which it is raised
if even a server that handles one request at a time would hold the bound."""
_RISING = 0.6
"""Slope above which latency grows with the load, so that the crossing is more than a guess."""
_SETTLED = 0.75
"""Share of the rate at which a server saturated that is tried if nothing else is known."""
_SHARE = 0.1
"""Distance from the crossing at which to measure, as a share of the distance to it."""
_POWER = 1.0
"""Standard errors, beyond those of a sure verdict, by which a load should be away from the bound."""


def _choose_step(
    search: CapacitySearch, points: Sequence[LoadVerdict], bracket: Bracket
) -> NextLoad | SearchEnd:
    if not points:
        return NextLoad(load=_rounded_load(search, search.start, math.ceil))
    if bracket.disputed:
        shorter = min(bracket.disputed, key=lambda k: k.care)
        return _measure_longer(search, shorter, SearchEnd.DISPUTED)
    if (unlucky := next(_limited_once(points, bracket), None)) is not None:
        return NextLoad(load=unlucky.load, care=unlucky.care)
    line = fit_curve(points, rate=not search.whole)
    if bracket.failed is None:
        return _raise_load(search, points[-1], line)
    passed = bracket.passed if bracket.passed is not None else _likely_passed(search, points, bracket.failed)
    if passed is None:
        return _lower_load(search, points[0], line)
    return _narrow_bracket(search, points, passed, bracket.failed, line)


def _limited_once(points: Sequence[LoadVerdict], bracket: Bracket) -> Iterator[LoadVerdict]:
    """Yield open loads whose only measurement the client or a backlog limited, which may have been chance."""
    for point in points:
        within = point.load > (bracket.passed or 0.0) and point.load < (bracket.failed or math.inf)
        if point.limited and point.runs == 1 and within and point.verdict is Verdict.UNDECIDED:
            yield point


def _likely_passed(search: CapacitySearch, points: Sequence[LoadVerdict], failed: float) -> float | None:
    """Return a load that surely holds, if larger ones only lack a run long enough to certify the percentile.

    None if there is none.
    """
    short = (k.load for k in points if k.load < failed and 0 < _MORE * k.uncertified <= search.patience)
    below = {k.load for k in points if k.excess is not None and k.excess < -_BELOW}
    likely = (_rounded_load(search, load / _FARTHEST, math.floor) for load in short if load in below)
    return max((load for load in likely if load), default=None)


_BELOW = 0.25
"""Excess, this far below 0, of a load that probably holds the bound."""


def _certifying_care(search: CapacitySearch, points: Sequence[LoadVerdict], load: float) -> float:
    """Return the care that may certify a percentile that was uncertified near the bound or this load."""
    short = (
        k.uncertified
        for k in points
        if k.excess is not None and (abs(k.excess) < _NEAR or (k.excess < 0 and load < 2 * k.load))
    )
    return min(_MORE * max(short, default=0.0), search.patience)


_NEAR, _MORE = 0.5, 3.0
"""An excess that counts as near the bound, and a factor of care: several short runs certify nothing."""


def _measure_longer(search: CapacitySearch, point: LoadVerdict, otherwise: SearchEnd) -> NextLoad | SearchEnd:
    """Measure the same load again, at least as long as before, within the patience."""
    return NextLoad(load=point.load, care=point.care) if 2 * point.care <= search.patience else otherwise


def _raise_load(search: CapacitySearch, top: LoadVerdict, line: ExcessCurve | None) -> NextLoad | SearchEnd:
    """Choose a larger load, as no bound is broken yet."""
    if top.verdict is not Verdict.HELD and top.limited:
        return SearchEnd.CLIENT
    if top.load >= search.most:
        return (
            SearchEnd.LARGEST
            if top.verdict is Verdict.HELD
            else _measure_longer(search, top, SearchEnd.INDISTINCT)
        )
    if line is None:
        return NextLoad(load=_rounded_load(search, min(2 * top.load, search.most), math.ceil))
    away = abs(math.log(line.crossing / top.load))
    gap = _gap(search, line, away)
    least = top.load * (_FARTHEST if line.slope < _RISING else max(math.exp(gap), 1 + search.resolution))
    load = min(max(line.crossing * math.exp(gap), least), _reach(search, top) * top.load)
    load = _rounded_load(search, min(load, search.most), math.ceil)
    if line.crossing < top.load:  # probably broken, but not measured long enough to be sure
        return NextLoad(load=load, care=min(_MORE * top.care, search.patience))
    return NextLoad(load=load, care=_care_at_load(search, line, load, gap) if away < _NEAR else 1.0)


def _reach(search: CapacitySearch, top: LoadVerdict) -> float:
    """Return the largest factor to raise the load by; a closed loop's latency grows at most linearly."""
    if not search.whole or top.excess is None:
        return _FARTHEST
    return min(max(_FARTHEST, math.exp(-top.excess)), _SAFEST)


def _lower_load(
    search: CapacitySearch, bottom: LoadVerdict, line: ExcessCurve | None
) -> NextLoad | SearchEnd:
    """Choose a smaller load, as none holds yet."""
    if search.whole and bottom.load <= 1:
        broken = bottom.verdict is Verdict.BROKEN
        return SearchEnd.SMALLEST if broken else _measure_longer(search, bottom, SearchEnd.INDISTINCT)
    if bottom.uncertified > search.patience * (1 - 1e-9) and not search.whole:
        return SearchEnd.INDISTINCT  # fewer requests would say even less
    if line is None and bottom.most is not None and bottom.most < bottom.load:
        return NextLoad(load=_SETTLED * bottom.most)
    if line is None:
        return NextLoad(load=_rounded_load(search, bottom.load / 2, math.floor))
    away = abs(math.log(line.crossing / bottom.load))
    gap = _gap(search, line, away)
    load = max(min(line.crossing, bottom.load) * math.exp(-gap), bottom.load / _FARTHEST)
    load = max(_rounded_load(search, load, math.floor), 1.0) if search.whole else load
    care = _care_at_load(search, line, load, gap) if away < _NEAR else 1.0
    if bottom.uncertified and not search.whole:  # a lower rate needs longer for as many requests
        care = max(care, min(bottom.uncertified * bottom.load / load, search.patience))
    return NextLoad(load=load, care=care)


def _narrow_bracket(
    search: CapacitySearch,
    points: Sequence[LoadVerdict],
    passed: float,
    failed: float,
    line: ExcessCurve | None,
) -> NextLoad | SearchEnd:
    """Measure on the side of the crossing where more is gained, if it can be decided in the time."""
    top = min(failed, _SATURATING * (saturation_rate(points) or failed))
    middle = _rounded_load(search, math.sqrt(passed * top), math.floor)
    measured = next((k for k in points if k.load == middle), None)
    if line is None:
        return (
            NextLoad(load=middle)
            if measured is None
            else _measure_longer(search, measured, SearchEnd.INDISTINCT)
        )
    if measured is None and _is_converging_slowly(search, points, passed, top):
        return NextLoad(load=middle)
    crossing = min(max(line.crossing, passed), top)
    spent = {k.load: k.care for k in points}
    resolution = math.log1p(search.resolution)
    steps: list[tuple[float, NextLoad]] = []
    width = math.log(top / passed)
    gap = _gap(search, line, width)
    for load in _candidate_loads(search, passed, failed, crossing, _distances(search, points, crossing, gap)):
        before = spent.get(load, 0.0)
        away = math.inf if _surely_saturates(points, load) else abs(math.log(load / crossing))
        care = max(1.0, before, _time_to_decide(search, line, away) - before)
        gain = math.log(load / passed if load < crossing else failed / load)
        if before + care <= search.patience * (1 + 1e-9) and (search.whole or gain > resolution / 4):
            steps.append((gain, NextLoad(load=load, care=care)))
    most, best = max(steps, key=lambda pair: pair[0], default=(0.0, SearchEnd.INDISTINCT))
    middle_step = (
        _measure_widest_gap(search, points, passed, top) if most < _SHARE * width else SearchEnd.INDISTINCT
    )
    return middle_step if isinstance(middle_step, NextLoad) else best


def _measure_widest_gap(
    search: CapacitySearch, points: Sequence[LoadVerdict], passed: float, top: float
) -> NextLoad | SearchEnd:
    """Measure in the middle of the widest gap, if the curve is too noisy to guide the search."""
    loads = [passed, *(k.load for k in points if passed < k.load < top), top]
    low, high = max(pairwise(loads), key=lambda pair: pair[1] / pair[0])
    middle = _rounded_load(search, math.sqrt(low * high), round)
    if math.log(high / low) < 4 * math.log1p(search.resolution) or middle in loads:
        return SearchEnd.INDISTINCT
    return NextLoad(load=middle, care=search.patience)


def _is_converging_slowly(
    search: CapacitySearch, points: Sequence[LoadVerdict], passed: float, failed: float
) -> bool:
    """Return whether the last step hardly narrowed a wide bracket, because the curve bends."""
    width = math.log(failed / passed)
    below = [k.load for k in points if k.load <= passed][-2:]
    above = [k.load for k in points if k.load >= failed][:2]
    ends = (pair for pair in (below, above) if len(pair) > 1)
    return width > 4 * math.log1p(search.resolution) and any(math.log(b / a) < width / 4 for a, b in ends)


def _surely_saturates(points: Sequence[LoadVerdict], load: float) -> bool:
    """Return whether a load that was never measured is plainly too much, however short the measurement."""
    most = saturation_rate(points)
    return most is not None and load > _PLAIN * most and all(k.load != load for k in points)


def _distances(
    search: CapacitySearch, points: Sequence[LoadVerdict], crossing: float, gap: float
) -> tuple[float, float]:
    """Return the distances from the crossing to measure at, below and above: beyond undecided loads."""
    undecided = [
        math.log(k.load / crossing)
        for k in points
        if k.verdict is Verdict.UNDECIDED and k.care > search.patience * (1 - 1e-9)
    ]
    below, above = ([sign * distance for distance in undecided if sign * distance > 0] for sign in (-1, 1))
    most = math.log(_SATURATING * (saturation_rate(points) or math.inf) / crossing)
    return (
        max([gap, *(_FARTHER * distance for distance in below)]),
        min(max([gap, *(_FARTHER * distance for distance in above)]), most),
    )


_SATURATING, _PLAIN = 1.1, 1.06
"""Factors on the rate that a saturated server sustained: a load at which it surely saturates, and the least
load of which that can be said."""
_FARTHER = 1.5
"""Factor from a distance at which nothing could be decided to the next one to try."""


def _candidate_loads(
    search: CapacitySearch, passed: float, failed: float, crossing: float, apart: tuple[float, float]
) -> Iterator[float]:
    """Yield the loads below and above the crossing, within the bracket, that are worth a measurement."""
    resolution = math.log1p(search.resolution)
    remaining = resolution - math.log(failed / crossing), resolution - math.log(crossing / passed)
    gaps = (
        max(gap, min(max(candidate, resolution / 4), resolution / 2))
        for gap, candidate in zip(apart, remaining, strict=True)
    )
    below, above = (crossing * math.exp(sign * gap) for sign, gap in zip((-1, 1), gaps, strict=True))
    for load in (below, above):
        near = (round(load), math.floor(load), math.ceil(load)) if search.whole else (load,)
        # If rounding leaves the bracket, take the last load within.
        inside = (
            min(max(candidate, passed + 1), failed - 1) if search.whole else candidate for candidate in near
        )
        yield from (float(candidate) for candidate in dict.fromkeys(inside) if passed < candidate < failed)


def _gap(search: CapacitySearch, line: ExcessCurve, distance: float) -> float:
    """Return the distance from the crossing to measure at, in logarithms of the load.

    As close as can be decided in the time; farther while the crossing is only extrapolated.
    """
    return max(_SHARE * distance, _decided_distance(search, line) / math.sqrt(search.patience))


def _time_to_decide(search: CapacitySearch, line: ExcessCurve, gap: float) -> float:
    """Return the multiple of the Plan's time that decides a load at this distance."""
    return max(1.0, (_decided_distance(search, line) / gap) ** 2) if gap else math.inf


def _care_at_load(search: CapacitySearch, line: ExcessCurve, load: float, gap: float) -> float:
    """Return that multiple for a load, within the patience; `gap` is the smallest plausible distance."""
    away = max(gap, abs(math.log(load / line.crossing)))
    return min(_time_to_decide(search, line, away), search.patience)


def _decided_distance(search: CapacitySearch, line: ExcessCurve) -> float:
    """Return the distance from the crossing that the Plan's time decides."""
    return (search.required_z + _POWER) * line.error / line.slope


def _rounded_load(search: CapacitySearch, load: float, rounded: Callable[[float], int]) -> float:
    return float(rounded(round(load, 9))) if search.whole else load

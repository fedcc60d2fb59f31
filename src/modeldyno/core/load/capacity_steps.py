"""The next load to measure, given what is sure and the curve of what was seen.

The load is raised until a bound is broken: four times at most, or as far as a server that does one thing
at a time would still hold it. Then it is measured a little below and a little above where the curve
crosses the bound, as near to it as can be decided in the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from modeldyno.core.load.sla_fit import Known, ceiling, curve
from modeldyno.core.metrics.constraints import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.core.load.capacity_spec import Search
    from modeldyno.core.load.sla_fit import Curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to measure next."""

    load: float
    care: float = 1.0
    """For how many times the time of the Plan."""


class End(StrEnum):
    """Why a search ended."""

    NEIGHBOURS = "neighbours"
    """There is no whole number between what passed and what failed."""
    RESOLVED = "resolved"
    """They are as near to each other as was asked for."""
    INDISTINCT = "indistinct"
    """What lies between is too near to the bound to be told from it in the time."""
    MEASUREMENTS = "measurements"
    """As many as were allowed."""
    LARGEST = "largest"
    """The largest load that may be tried holds."""
    SMALLEST = "smallest"
    """Not even the smallest load holds."""
    CLIENT = "client-limited"
    """The client, not the server, is the limit of more load."""
    DISPUTED = "disputed"
    """A load passed that is greater than one that failed, however long they were measured."""
    REFUSED = "refused"
    """The server refused all requests as wrong ones, which no other load changes."""
    INTERRUPTED = "interrupted"
    """The user wanted no more."""


# --- the bracket -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """What is sure: the capacity is at least `passed`, and below `failed`."""

    passed: float | None
    failed: float | None
    disputed: tuple[Known, ...] = ()
    """A load that failed, and a greater one that passed; what is sure lies around both."""

    @classmethod
    def of(cls, points: Sequence[Known]) -> Bracket:
        """Find it among loads from the least to the greatest."""
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


def next_step(search: Search, points: Sequence[Known], bracket: Bracket, made: int) -> Step | End:
    """Say what to measure next, after so many measurements, or why there is nothing more to measure."""
    step = _ended(search, bracket, made) or _chosen(search, points, bracket)
    if isinstance(step, End):
        return step
    if _drowns(points, step.load):
        return replace(step, care=1.0)
    return replace(step, care=max(step.care, _certifying(search, points, step.load)))


def _ended(search: Search, bracket: Bracket, made: int) -> End | None:
    passed, failed = bracket.passed, bracket.failed
    if passed is not None and failed is not None and not bracket.disputed:
        if search.whole and failed - passed <= 1:
            return End.NEIGHBOURS
        if failed <= passed * (1 + search.resolution):
            return End.RESOLVED
    return End.MEASUREMENTS if made >= search.measurements else None


# --- the next load ---------------------------------------------------------------------------------

_FARTHEST, _SAFEST = 4.0, 16.0
"""Factors by which the load is raised or lowered at most, wherever the curve says that the bound is; and by
which it is raised where even a server that does one thing at a time would hold the bound."""
_RISING = 0.6
"""Slope from which on latency grows with the load, so that the crossing is more than a guess."""
_SETTLED = 0.75
"""Share of the rate at which a server drowned that is tried where nothing else is known."""
_SHARE = 0.1
"""Distance from the crossing, as a share of the distance to it, at which a load is measured."""
_POWER = 1.0
"""Standard errors beyond those of a sure verdict that a load is to be away from the bound."""


def _chosen(search: Search, points: Sequence[Known], bracket: Bracket) -> Step | End:
    if not points:
        return Step(load=_whole(search, search.start, math.ceil))
    if bracket.disputed:
        again = min(bracket.disputed, key=lambda k: k.care)
        return _longer(search, again, End.DISPUTED)
    if (once := next(_limited_once(points, bracket), None)) is not None:
        return Step(load=once.load, care=once.care)
    line = curve(points, rate=not search.whole)
    if bracket.failed is None:
        return _higher(search, points[-1], line)
    passed = bracket.passed if bracket.passed is not None else _likely(search, points, bracket.failed)
    if passed is None:
        return _lower(search, points[0], line)
    return _between(search, points, passed, bracket.failed, line)


def _limited_once(points: Sequence[Known], bracket: Bracket) -> Iterator[Known]:
    """Give what the client spoilt in its only measurement, and what is still open: it may be chance."""
    for point in points:
        within = point.load > (bracket.passed or 0.0) and point.load < (bracket.failed or math.inf)
        if point.limited and point.runs == 1 and within and point.verdict is Verdict.UNDECIDED:
            yield point


def _likely(search: Search, points: Sequence[Known], failed: float) -> float | None:
    """Give a load that surely holds, where the greatest one only lacks a run that is long enough for a claim.

    None where there is none such.
    """
    short = (k.load for k in points if k.load < failed and 0 < _MORE * k.uncertified <= search.patience)
    below = {k.load for k in points if k.excess is not None and k.excess < -_BELOW}
    return max((load / _FARTHEST for load in short if load in below), default=None)


_BELOW = 0.25
"""Excess, as far below 0, of a load that rather holds the bound."""


def _certifying(search: Search, points: Sequence[Known], load: float) -> float:
    """Give the care that may make a percentile a claim, where it was none near the bound, or the load."""
    short = (
        k.uncertified
        for k in points
        if k.excess is not None and (abs(k.excess) < _NEAR or (k.excess < 0 and load < 2 * k.load))
    )
    return min(_MORE * max(short, default=0.0), search.patience)


_NEAR, _MORE = 0.5, 3.0
"""An excess, and a factor of care: what several runs give that are too short makes no claim together."""


def _longer(search: Search, point: Known, otherwise: End) -> Step | End:
    """Measure the same load again, at least as long as before, as far as patience goes."""
    return Step(load=point.load, care=point.care) if 2 * point.care <= search.patience else otherwise


def _higher(search: Search, top: Known, line: Curve | None) -> Step | End:
    """Nothing is broken yet."""
    if top.verdict is not Verdict.HELD and top.limited:
        return End.CLIENT
    if top.load >= search.most:
        return End.LARGEST if top.verdict is Verdict.HELD else _longer(search, top, End.INDISTINCT)
    if line is None:
        return Step(load=_whole(search, min(2 * top.load, search.most), math.ceil))
    away = abs(math.log(line.crossing / top.load))
    gap = _gap(search, line, away)
    least = top.load * (_FARTHEST if line.slope < _RISING else max(math.exp(gap), 1 + search.resolution))
    load = min(max(line.crossing * math.exp(gap), least), _reach(search, top) * top.load)
    load = _whole(search, min(load, search.most), math.ceil)
    if line.crossing < top.load:  # it is rather broken, and was not measured long enough to be sure
        return Step(load=load, care=min(_MORE * top.care, search.patience))
    return Step(load=load, care=_time_there(search, line, load, gap) if away < _NEAR else 1.0)


def _reach(search: Search, top: Known) -> float:
    """Give the factor by which the load may be raised: in a closed loop latency grows no more than it."""
    if not search.whole or top.excess is None:
        return _FARTHEST
    return min(max(_FARTHEST, math.exp(-top.excess)), _SAFEST)


def _lower(search: Search, bottom: Known, line: Curve | None) -> Step | End:
    """Nothing is held yet."""
    if search.whole and bottom.load <= 1:
        broken = bottom.verdict is Verdict.BROKEN
        return End.SMALLEST if broken else _longer(search, bottom, End.INDISTINCT)
    if bottom.uncertified > search.patience * (1 - 1e-9) and not search.whole:
        return End.INDISTINCT  # fewer requests would tell even less
    if line is None and bottom.most is not None and bottom.most < bottom.load:
        return Step(load=_SETTLED * bottom.most)
    if line is None:
        return Step(load=_whole(search, bottom.load / 2, math.floor))
    away = abs(math.log(line.crossing / bottom.load))
    gap = _gap(search, line, away)
    load = max(min(line.crossing, bottom.load) * math.exp(-gap), bottom.load / _FARTHEST)
    load = max(_whole(search, load, math.floor), 1.0) if search.whole else load
    care = _time_there(search, line, load, gap) if away < _NEAR else 1.0
    if bottom.uncertified and not search.whole:  # a lower rate needs longer for as many requests
        care = max(care, min(bottom.uncertified * bottom.load / load, search.patience))
    return Step(load=load, care=care)


def _between(
    search: Search, points: Sequence[Known], passed: float, failed: float, line: Curve | None
) -> Step | End:
    """Measure on that side of the crossing on which there is more to gain, where it can be decided."""
    top = min(failed, _DROWNING * (ceiling(points) or failed))
    middle = _whole(search, math.sqrt(passed * top), math.floor)
    seen = next((k for k in points if k.load == middle), None)
    if line is None:
        return Step(load=middle) if seen is None else _longer(search, seen, End.INDISTINCT)
    if seen is None and _creeping(search, points, passed, top):
        return Step(load=middle)
    crossing = min(max(line.crossing, passed), top)
    spent = {k.load: k.care for k in points}
    asked = math.log1p(search.resolution)
    steps: list[tuple[float, Step]] = []
    width = math.log(top / passed)
    gap = _gap(search, line, width)
    for load in _sides(search, passed, failed, crossing, _apart(search, points, crossing, gap)):
        before = spent.get(load, 0.0)
        away = math.inf if _drowns(points, load) else abs(math.log(load / crossing))
        care = max(1.0, before, _time(search, line, away) - before)
        gain = math.log(load / passed if load < crossing else failed / load)
        if before + care <= search.patience * (1 + 1e-9) and (search.whole or gain > asked / 4):
            steps.append((gain, Step(load=load, care=care)))
    most, best = max(steps, key=lambda pair: pair[0], default=(0.0, End.INDISTINCT))
    unseen = _unseen(search, points, passed, top) if most < _SHARE * width else End.INDISTINCT
    return unseen if isinstance(unseen, Step) else best


def _unseen(search: Search, points: Sequence[Known], passed: float, top: float) -> Step | End:
    """Measure in the middle of the widest gap, where a curve through noise hardly sees a way on."""
    seen = [passed, *(k.load for k in points if passed < k.load < top), top]
    low, high = max(pairwise(seen), key=lambda pair: pair[1] / pair[0])
    middle = _whole(search, math.sqrt(low * high), round)
    if math.log(high / low) < 4 * math.log1p(search.resolution) or middle in seen:
        return End.INDISTINCT
    return Step(load=middle, care=search.patience)


def _creeping(search: Search, points: Sequence[Known], passed: float, failed: float) -> bool:
    """Say whether the last step hardly narrowed a wide bracket: the curve bends more than a line can tell."""
    width = math.log(failed / passed)
    below = [k.load for k in points if k.load <= passed][-2:]
    above = [k.load for k in points if k.load >= failed][:2]
    ends = (pair for pair in (below, above) if len(pair) > 1)
    return width > 4 * math.log1p(search.resolution) and any(math.log(b / a) < width / 4 for a, b in ends)


def _drowns(points: Sequence[Known], load: float) -> bool:
    """Say whether a load that was never measured will be plainly too much, in however short a time."""
    most = ceiling(points)
    return most is not None and load > _PLAIN * most and all(k.load != load for k in points)


def _apart(search: Search, points: Sequence[Known], crossing: float, gap: float) -> tuple[float, float]:
    """Give how far from the crossing to measure on either side: farther than what patience left open."""
    left = [
        math.log(k.load / crossing)
        for k in points
        if k.verdict is Verdict.UNDECIDED and k.care > search.patience * (1 - 1e-9)
    ]
    below, above = ([sign * each for each in left if sign * each > 0] for sign in (-1, 1))
    most = math.log(_DROWNING * (ceiling(points) or math.inf) / crossing)
    return (
        max([gap, *(_FARTHER * each for each in below)]),
        min(max([gap, *(_FARTHER * each for each in above)]), most),
    )


_DROWNING, _PLAIN = 1.1, 1.06
"""Factors from the rate that a drowned server kept up to one at which it surely drowns, and to the least of
which that can be said."""
_FARTHER = 1.5
"""Factor of a distance from the crossing at which nothing could be decided to the next that is tried."""


def _sides(
    search: Search, passed: float, failed: float, crossing: float, apart: tuple[float, float]
) -> Iterator[float]:
    """Give the loads below and above the crossing that are worth a measurement, within the bracket."""
    asked = math.log1p(search.resolution)
    rest = asked - math.log(failed / crossing), asked - math.log(crossing / passed)
    gaps = (max(gap, min(max(each, asked / 4), asked / 2)) for gap, each in zip(apart, rest, strict=True))
    below, above = (crossing * math.exp(sign * gap) for sign, gap in zip((-1, 1), gaps, strict=True))
    for load in (below, above):
        near = (round(load), math.floor(load), math.ceil(load)) if search.whole else (load,)
        # Where rounding leads out of the bracket, the last ones within.
        inside = (min(max(each, passed + 1), failed - 1) if search.whole else each for each in near)
        yield from (float(each) for each in dict.fromkeys(inside) if passed < each < failed)


def _gap(search: Search, line: Curve, distance: float) -> float:
    """Give how far from the crossing to measure, in logarithms of the load.

    As near as can be decided in time; farther while the crossing is only known from afar.
    """
    return max(_SHARE * distance, _needed(search, line) / math.sqrt(search.patience))


def _time(search: Search, line: Curve, gap: float) -> float:
    """Give the multiple of the Plan's time in which a load so far from the crossing is decided."""
    return max(1.0, (_needed(search, line) / gap) ** 2) if gap else math.inf


def _time_there(search: Search, line: Curve, load: float, gap: float) -> float:
    """Give that of a load, no longer than patience; `gap` is the least distance that is believed."""
    away = max(gap, abs(math.log(load / line.crossing)))
    return min(_time(search, line, away), search.patience)


def _needed(search: Search, line: Curve) -> float:
    """Give the distance from the crossing that is decided in the time of the Plan."""
    return (search.sureness + _POWER) * line.error / line.slope


def _whole(search: Search, load: float, rounded: Callable[[float], int]) -> float:
    return float(rounded(round(load, 9))) if search.whole else load

"""The largest load that holds a service-level agreement: bracket it, close in on it, answer with an interval.

The search is a function of what was measured so far. It doubles the load, or jumps as far as the curve
of what it has seen says, until a bound is broken; then it measures a little below and a little above
where the curve crosses the bound, for as long as it takes to be sure there. Several measurements are
made, and each could err, so that a load counts as held or broken only at the confidence which keeps
the whole search right in 95 of 100 cases; what is not sure lies within the interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from modeldyno.core.boundary import Known, confidence, curve, known, limits
from modeldyno.core.goal import Constraint, Judgement, Verdict
from modeldyno.core.ladder import Rung
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.core.boundary import Curve
    from modeldyno.core.load import Load
    from modeldyno.core.plan import Plan

CONCURRENCY, RATE = "concurrency", "rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is looked for, and how hard."""

    bounds: tuple[Constraint, ...]
    """All of them are to hold; at least one must be such that more load can break it."""
    knob: str = CONCURRENCY
    """What is raised: ``concurrency``, or the ``rate`` of an open loop."""
    start: float = 1.0
    """The first load."""
    most: float = 1024.0
    """The largest load that is tried."""
    measurements: int = 10
    """Most loads that are measured, repetitions included."""
    resolution: float = 0.05
    """Ratio, less one, of the smallest load that failed to the largest that passed, at which to stop."""
    patience: float = 8.0
    """Most time that is spent on one load, as a multiple of what the Plan says."""

    def __post_init__(self) -> None:
        """Refuse, in one sentence, what cannot be searched."""
        for broken, message in _contradictions(self):
            if broken:
                raise RequestError(f"{message}.")

    @property
    def whole(self) -> bool:
        """Whether loads are whole numbers."""
        return self.knob == CONCURRENCY

    @property
    def sureness(self) -> float:
        """Standard errors that make a verdict sure.

        Half of the measurements may err: those that bracket the bound are far from it.
        """
        return confidence(math.ceil(self.measurements / 2) * sum(map(limits, self.bounds)))


def _contradictions(search: Search) -> tuple[tuple[bool, str], ...]:
    """Return what must not be, each with the sentence that says so."""
    first, last, fine = search.start, search.most, search.resolution
    return (
        (not any(map(limits, search.bounds)), _NO_LIMIT),
        (not 0 < first <= last < math.inf, f"A search cannot go from {first:g} to {last:g}"),
        (search.measurements < 1, f"A search of {search.measurements} measurements finds nothing"),
        (not 0 < fine < math.inf, f"The resolution of a search is {fine:g}, but must be positive"),
        (not 1 <= search.patience < math.inf, f"The patience of a search is {search.patience:g}, below 1"),
    )


_NO_LIMIT = "No bound limits the load; name one that more load can break, such as 'latency.p99 <= 50ms'"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """A document: the answer of a search."""

    search: Search
    rungs: tuple[Rung, ...]
    """In the order in which they were measured."""
    end: End
    passed: float | None
    """The largest load that surely holds every bound that limits it; None where none was found."""
    failed: float | None
    """The smallest load that surely breaks one, beyond what passed; None where none was found."""
    broke: tuple[Judgement, ...] = ()
    """What was broken there, by how much, the farthest first."""
    verified: Rung | None = None
    """What passed, measured again on a freshly started server."""

    @property
    def best(self) -> Rung | None:
        """The measurement to quote of what passed: that of the fresh server, or else the longest."""
        if self.verified is not None:
            return self.verified
        return max((r for r in self.rungs if r.load == self.passed), key=lambda r: r.care, default=None)

    @property
    def confirmed(self) -> Verdict | None:
        """The verdict of the fresh server on the bounds that limit the load; None before it was asked."""
        if self.verified is None:
            return None
        verdicts = [j.verdict for j in self.verified.judgements if limits(j.constraint)]
        if self.verified.failure or Verdict.BROKEN in verdicts:
            return Verdict.BROKEN
        return Verdict.UNDECIDED if Verdict.UNDECIDED in verdicts else Verdict.HELD

    @property
    def unmet(self) -> tuple[Judgement, ...]:
        """The bounds that less load breaks, such as ``throughput >= 100/s``, where they are broken there."""
        judged = self.best.judgements if self.best is not None else ()
        return tuple(j for j in judged if not limits(j.constraint) and j.verdict is Verdict.BROKEN)

    def with_verification(self, rung: Rung) -> Capacity:
        """Add what a freshly started server gave at the load that passed."""
        return replace(self, verified=rung)


def under(load: Load, value: float) -> Load:
    """Give the load with another concurrency, or in an open loop another rate."""
    return replace(load, concurrency=round(value)) if load.closed else replace(load, rate=value)


def careful(plan: Plan, care: float, bounds: Sequence[Constraint] = ()) -> Plan:
    """Give the Plan for so many times the time, to be as much more precise; judged percentiles certified."""
    asked = (name for bound in bounds if (name := bound.percentile) is not None)
    return replace(
        plan,
        min_time=plan.min_time * care,
        max_time=plan.max_time * care,
        min_runs=round(plan.min_runs * care),
        max_runs=round(plan.max_runs * care),
        precision=plan.precision / math.sqrt(care),
        percentiles=tuple(dict.fromkeys((*plan.percentiles, *asked))),
    )


def propose(search: Search, history: Sequence[Rung]) -> Step | Capacity:
    """Say what to measure next, or give the answer.

    Args:
        search: what is looked for.
        history: what was measured so far, in that order, each with a judgement on every bound of the
            search, in the same order.
    """
    points = known(history, z=search.sureness, rate=not search.whole)
    bracket = _Bracket.of(points)
    step = _ended(search, history, bracket) or _next(search, points, bracket)
    if isinstance(step, Step):
        return replace(step, care=max(step.care, _certifying(search, points)))
    broken = next((k.broken for k in points if k.load == bracket.failed), ())
    return Capacity(
        search=search,
        rungs=tuple(history),
        end=step,
        passed=bracket.passed,
        failed=bracket.failed,
        broke=tuple(sorted(broken, key=beyond, reverse=True)),
    )


def beyond(judgement: Judgement) -> float:
    """Give by which share of the bound a broken one is exceeded, or fallen short of."""
    bound, value = judgement.constraint.bound, judgement.answer.value
    if value is None:  # only an end of its interval is known
        ends = judgement.answer.bounds()
        value = ends.low if judgement.constraint.at_most else ends.high
    return abs(value - bound) / abs(bound) if bound else math.inf


# --- the bracket -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bracket:
    """What is sure: the capacity is at least `passed`, and below `failed`."""

    passed: float | None
    failed: float | None
    disputed: tuple[Known, ...] = ()
    """A load that failed, and a greater one that passed; what is sure lies around both."""

    @classmethod
    def of(cls, points: Sequence[Known]) -> _Bracket:
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


def _ended(search: Search, history: Sequence[Rung], bracket: _Bracket) -> End | None:
    passed, failed = bracket.passed, bracket.failed
    if passed is not None and failed is not None and not bracket.disputed:
        if search.whole and failed - passed <= 1:
            return End.NEIGHBOURS
        if failed <= passed * (1 + search.resolution):
            return End.RESOLVED
    return End.MEASUREMENTS if len(history) >= search.measurements else None


# --- the next load ---------------------------------------------------------------------------------

_FARTHEST, _SAFEST = 4.0, 16.0
"""Factors by which the load is raised or lowered at most, wherever the curve says that the bound is; and by
which it is raised where even a server that does one thing at a time would hold the bound."""
_RISING = 0.75
"""Slope from which on latency grows with the load, so that the crossing is more than a guess."""
_SHARE = 0.1
"""Distance from the crossing, as a share of the distance to it, at which a load is measured."""
_POWER = 1.0
"""Standard errors beyond those of a sure verdict that a load is to be away from the bound."""


def _next(search: Search, points: Sequence[Known], bracket: _Bracket) -> Step | End:
    if not points:
        return Step(load=_whole(search, search.start, math.ceil))
    if bracket.disputed:
        again = min(bracket.disputed, key=lambda k: k.care)
        return _longer(search, again, End.DISPUTED)
    line = curve(points)
    if bracket.failed is None:
        return _higher(search, points[-1], line)
    if bracket.passed is None:
        return _lower(search, points[0], line)
    return _between(search, points, bracket.passed, bracket.failed, line)


def _certifying(search: Search, points: Sequence[Known]) -> float:
    """Give the care that may make a percentile a claim, where it was none near the bound."""
    short = (k.uncertified for k in points if k.excess is not None and abs(k.excess) < _NEAR)
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
    least = top.load * (_FARTHEST if line.slope < _RISING else math.exp(gap))
    load = min(max(line.crossing * math.exp(gap), least), _reach(search, top) * top.load)
    care = _time(search, line, gap) if away < _NEAR else 1.0  # from afar the crossing is a guess
    return Step(load=_whole(search, min(load, search.most), math.ceil), care=care)


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
    if line is None:
        return Step(load=_whole(search, bottom.load / 2, math.floor))
    away = abs(math.log(line.crossing / bottom.load))
    gap = _gap(search, line, away)
    load = max(min(line.crossing, bottom.load) * math.exp(-gap), bottom.load / _FARTHEST)
    care = _time(search, line, gap) if away < _NEAR else 1.0
    return Step(load=max(_whole(search, load, math.floor), 1.0 if search.whole else load), care=care)


def _between(
    search: Search, points: Sequence[Known], passed: float, failed: float, line: Curve | None
) -> Step | End:
    """Measure on that side of the crossing on which there is more to gain, where it can be decided."""
    middle = _whole(search, math.sqrt(passed * failed), math.floor)
    seen = next((k for k in points if k.load == middle), None)
    if line is None:
        return Step(load=middle) if seen is None else _longer(search, seen, End.INDISTINCT)
    if seen is None and _creeping(search, points, passed, failed):
        return Step(load=middle)
    crossing = min(max(line.crossing, passed), failed)
    spent = {k.load: k.care for k in points}
    steps: list[tuple[float, Step]] = []
    for load in _sides(search, passed, failed, crossing, line):
        before = spent.get(load, 0.0)
        care = max(1.0, before, _time(search, line, abs(math.log(load / crossing))) - before)
        if before + care <= search.patience * (1 + 1e-9):
            gain = math.log(load / passed if load < crossing else failed / load)
            steps.append((gain, Step(load=load, care=care)))
    return max(steps, key=lambda pair: pair[0])[1] if steps else End.INDISTINCT


def _creeping(search: Search, points: Sequence[Known], passed: float, failed: float) -> bool:
    """Say whether the last step hardly narrowed a wide bracket: the curve bends more than a line can tell."""
    width = math.log(failed / passed)
    below = [k.load for k in points if k.load <= passed][-2:]
    above = [k.load for k in points if k.load >= failed][:2]
    ends = (pair for pair in (below, above) if len(pair) > 1)
    return width > 4 * math.log1p(search.resolution) and any(math.log(b / a) < width / 4 for a, b in ends)


def _sides(search: Search, passed: float, failed: float, crossing: float, line: Curve) -> Iterator[float]:
    """Give the loads below and above the crossing that are worth a measurement, within the bracket."""
    asked, width = math.log1p(search.resolution), math.log(failed / passed)
    rest = asked - math.log(failed / crossing), asked - math.log(crossing / passed)
    gaps = (max(_gap(search, line, width), min(max(each, asked / 4), asked / 2)) for each in rest)
    below, above = (crossing * math.exp(sign * gap) for sign, gap in zip((-1, 1), gaps, strict=True))
    if search.whole:  # where rounding leads out of the bracket, the last ones within
        below, above = (min(max(round(load), passed + 1), failed - 1) for load in (below, above))
    if passed < below <= crossing:
        yield float(below)
    if crossing <= above < failed:
        yield float(above)


def _gap(search: Search, line: Curve, distance: float) -> float:
    """Give how far from the crossing to measure, in logarithms of the load.

    As near as can be decided in time; farther while the crossing is only known from afar.
    """
    return max(_SHARE * distance, _needed(search, line) / math.sqrt(search.patience))


def _time(search: Search, line: Curve, gap: float) -> float:
    """Give the multiple of the Plan's time in which a load so far from the crossing is decided."""
    return max(1.0, (_needed(search, line) / gap) ** 2) if gap else math.inf


def _needed(search: Search, line: Curve) -> float:
    """Give the distance from the crossing that is decided in the time of the Plan."""
    return (search.sureness + _POWER) * line.error / line.slope


def _whole(search: Search, load: float, rounded: Callable[[float], int]) -> float:
    return float(rounded(round(load, 9))) if search.whole else load

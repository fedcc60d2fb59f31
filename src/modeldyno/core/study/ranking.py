"""The answer of a study: its candidates in order, how sure the best is, and what cannot be told from it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.core.metrics.constraints import Answer, Judgement, Verdict
from modeldyno.core.metrics.measurement import Interval
from modeldyno.core.metrics.metric import Query
from modeldyno.core.stats.statistics import load_numpy
from modeldyno.core.study.bootstrap import Contender, Resamples, contenders, scores
from modeldyno.core.study.goal import Rank
from modeldyno.core.study.pooled_estimate import Estimate, estimate, judgement
from modeldyno.core.study.search_space import Key, Point, key
from modeldyno.core.study.study import State, Study

if TYPE_CHECKING:
    from modeldyno.core.metrics.constraints import Constraint

RESAMPLES = 1000
ALIKE = 0.03
"""Smallest difference that matters: what is worse by no more may be taken for its price."""
MOST_LOADS = 2
"""Loads of a configuration that are worth verifying, at most."""
BESIDE = 0.005
"""Share of resamples from which on a second one is: its look takes no start of a server."""
_MEMORY = Query(metric="process_memory", statistic="max")
_RESOURCE = re.compile(
    r"(?:.*[._])?(?:instances?|instance_count|workers?|threads?|drivers?|replicas?|processes)"
)
"""Knobs of which more is dearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """How many times better than the default, by the goal's score; of one objective, the ratio of values."""

    times: float
    low: float
    high: float
    sure: float
    """Share of resamples in which it is the better choice, the bounds included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A row: a candidate, or the best load of a configuration, and where it stands."""

    rank: int
    """From 1; with `Rank.EACH`, among those of its load."""
    point: Point
    objectives: tuple[Estimate | None, ...]
    """In the order of the goal; None where there is no value that is a claim."""
    judgements: tuple[Judgement, ...]
    """On the constraints, in the order of the goal, by the intervals of all telling trials together."""
    feasible: bool
    """Whether all bounds rather hold than not."""
    chance: float
    """Probability that it works and all bounds hold."""
    miss: float
    """By which share of the bounds they are missed, all together; infinite where nothing was measured."""
    share: float
    """Share of resamples in which its configuration is the best."""
    promising: tuple[Point, ...]
    """The loads of its configuration that are worth verifying, the likeliest first."""
    gain: Gain | None = None
    """Over the default; None where one of the two has no values."""
    default: bool = False
    trials: int = 0
    """Measurements that its figures come from."""
    verified: int = 0
    """Those of them that were made to verify it."""
    doubts: tuple[str, ...] = ()
    """Codes."""
    failure: str = ""
    """What went wrong, where it gave nothing."""
    kind: str = ""

    @property
    def verdict(self) -> Verdict:
        """Say whether the bounds hold, by the intervals."""
        verdicts = {judgement.verdict for judgement in self.judgements}
        if Verdict.BROKEN in verdicts or self.failure:
            return Verdict.BROKEN
        return Verdict.UNDECIDED if Verdict.UNDECIDED in verdicts else Verdict.HELD


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """A document: the rows of a study from the best to the worst, and what may be said of the first."""

    rows: tuple[Standing, ...]
    """Those that hold their bounds by their value, the others by how far they miss, failures last."""
    default: Standing | None = None
    """The row that the others are compared with; None where it was not measured."""
    best: Standing | None = None
    """The first row; None where no candidate holds the bounds."""
    certainty: float = 0.0
    """Share of resamples in which its configuration is the best and it holds its bounds."""
    rivals: tuple[Standing, ...] = ()
    """Those that cannot be told from the best."""
    cheaper: Standing | None = None
    """One of them that takes less and is worse by less than matters; None where the best is the cheapest."""
    safe: Standing | None = None
    """The best of all points that surely hold their bounds; None where the first row does, or none do."""
    measurements: int = 0
    configurations: int = 0
    """Of which something was measured."""
    failed: int = 0
    """Measurements that failed."""
    skipped: int = 0
    """Points that cannot be."""
    each: tuple[Ranking, ...] = ()
    """With `Rank.EACH`, the ranking of each load; the whole then has all rows, and the facts of the load
    whose best is best."""


def ranking(study: Study, resamples: int = RESAMPLES) -> Ranking:
    """Rank what was measured; the same study gives the same ranking."""
    found = contenders(study)
    apart = study.goal.rank is Rank.EACH
    groups: dict[Key, list[Contender]] = {}
    for contender in found:
        groups.setdefault(key(contender.load) if apart else (), []).append(contender)
    each = tuple(_ranked(study, groups[load], resamples) for load in sorted(groups))
    able = [part for part in each if part.best is not None]
    heights = scores([best.objectives for part in each if (best := part.best) is not None], study.goal)
    whole = able[heights.index(max(heights))] if able else next(iter(each), Ranking(rows=()))
    if apart:
        whole = replace(whole, rows=tuple(row for part in each for row in part.rows), each=each)
    return replace(
        whole,
        measurements=len(study.measured),
        configurations=len({key(contender.configuration) for contender in found}),
        failed=sum(trial.state is State.FAILED for trial in study.measured),
        skipped=len(study.skipped),
    )


# --- the order -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Field:
    """Contenders that are compared with one another, each known by its place among them; an interim value."""

    study: Study
    contenders: Sequence[Contender]
    """Those that have a value of every objective."""
    scores: Sequence[float]
    draws: Resamples

    def foremost(self, places: Sequence[int]) -> int:
        """Give the one to be chosen: that of the highest score of those that hold the bounds.

        What was verified is preferred to what was not, unless the latter is surely better: its figure
        is the highest of many, and so is its luck. Where none holds, it is that which misses least.
        """
        holding = [place for place in places if self.contenders[place].feasible]
        if not holding:
            return min(places, key=self.order)
        top = min(holding, key=self.order)
        proven = [place for place in holding if self.contenders[place].verified]
        steady = min(proven, key=self.order, default=top)
        sure = self.draws.above(top, steady) >= self.study.budget.certain
        return top if sure or self.contenders[top].verified else steady

    def promising(self, place: int, team: Sequence[int], wins: Sequence[int], resamples: int) -> list[int]:
        """Give the loads of a configuration that are worth verifying: of those that often win, the best.

        What was verified is kept where another does not win more than twice as often. Beside it stands the
        next that may well be better.
        """
        most = max(wins[each] for each in team)
        first = place
        if most and not (self.contenders[place].verified and 2 * wins[place] >= most):
            first = max((each for each in team if 2 * wins[each] >= most), key=self.scores.__getitem__)
        others = [each for each in team if each != first and wins[each] >= BESIDE * resamples]
        return [first, *sorted(others, key=lambda each: -wins[each])[: MOST_LOADS - 1]]

    def order(self, place: int) -> tuple[bool, float, float]:
        """Sort what holds its bounds by its score, and the others by how far they miss."""
        contender = self.contenders[place]
        return not contender.feasible, 0.0 if contender.feasible else contender.miss, -self.scores[place]


def _ranked(study: Study, group: Sequence[Contender], resamples: int) -> Ranking:
    """Rank those of one load, or of all."""
    able = [contender for contender in group if contender.ranked]
    field = _Field(
        study=study,
        contenders=able,
        scores=scores([contender.objectives for contender in able], study.goal),
        draws=Resamples.of(study, able, resamples),
    )
    teams: dict[Key, list[int]] = {}
    for place, contender in enumerate(able):
        teams.setdefault(key(contender.configuration), []).append(place)
    chosen = sorted(map(field.foremost, teams.values()), key=field.order)
    best = field.foremost(chosen) if chosen and able[chosen[0]].feasible else None
    chosen.sort(key=lambda place: place != best)
    default = next((place for place in chosen if able[place].default), None)
    wins = field.draws.wins()
    gains = _gains(field, chosen, default)
    rows = []
    for rank, (place, gain) in enumerate(zip(chosen, gains, strict=True), 1):
        team = teams[key(able[place].configuration)]
        share = sum(wins[each] for each in team) / resamples
        worth = tuple(able[each].candidate.point for each in field.promising(place, team, wins, resamples))
        row = _standing(study, able[place], rank)
        rows.append(replace(row, share=share, promising=worth, gain=gain))
    lost: dict[Key, Contender] = {}
    for contender in sorted(group, key=lambda contender: contender.miss):
        if key(contender.configuration) not in teams:
            lost.setdefault(key(contender.configuration), contender)
    rows += [_standing(study, contender, rank) for rank, contender in enumerate(lost.values(), len(rows) + 1)]
    found = Ranking(rows=tuple(rows), default=next((row for row in rows if row.default), None))
    return found if best is None else _judged(found, field, chosen, teams[key(able[best].configuration)])


def _gains(field: _Field, chosen: Sequence[int], default: int | None) -> list[Gain | None]:
    """Give the gain of each over the default, from draws of both."""
    if default is None:
        return [None] * len(chosen)
    scores = field.draws.scores
    ends = load_numpy().quantile(scores[:, list(chosen)] - scores[:, [default]], (0.025, 0.975), axis=0)
    return [
        Gain(
            times=_times(field.scores[place] - field.scores[default]),
            low=_times(float(low)),
            high=_times(float(high)),
            sure=field.draws.beats(place, default),
        )
        for place, low, high in zip(chosen, *ends, strict=True)
    ]


def _times(logarithm: float) -> float:
    """Give the ratio; infinite where something is compared with nothing."""
    return math.inf if logarithm > _ENDLESS else math.exp(logarithm)


_ENDLESS = 500.0


def _standing(study: Study, found: Contender, rank: int) -> Standing:
    """Give the row of a contender as such; how it compares is not known to it."""
    telling = found.candidate.telling
    failed = found.candidate.trials[-1] if found.candidate.failed else None
    return Standing(
        rank=rank,
        point=found.candidate.point,
        objectives=found.objectives,
        judgements=tuple(_judgement(study, found, bound) for bound in study.goal.constraints),
        feasible=found.feasible,
        chance=found.chance,
        miss=found.miss,
        share=0.0,
        promising=(found.candidate.point,),
        default=found.default,
        trials=len(telling),
        verified=found.verified,
        doubts=tuple(dict.fromkeys(code for trial in telling for code in trial.doubts)),
        failure=failed.failure if failed else "",
        kind=failed.kind if failed else "",
    )


def _judgement(study: Study, found: Contender, bound: Constraint) -> Judgement:
    """Judge all telling trials together; where none has a value, by one that decides it, or else the last."""
    together = estimate(study, found.candidate, bound.query)
    if together is None:
        last = [judgement(trial, bound) for trial in found.candidate.telling]
        if not last:
            return bound.on(Answer(query=bound.query, value=None, why="it failed"))
        decisive = {judged.verdict: judged for judged in last}
        return decisive.get(Verdict.BROKEN) or decisive.get(Verdict.HELD) or last[-1]
    ends = Interval(low=together.low, high=together.high)
    return bound.on(Answer(query=bound.query, value=together.value, interval=ends))


# --- the verdict -----------------------------------------------------------------------------------


def _judged(found: Ranking, field: _Field, chosen: Sequence[int], team: Sequence[int]) -> Ranking:
    """Say how sure the first row is, what cannot be told from it, and which of these takes less."""
    best, place = found.rows[0], chosen[0]
    near = [
        (row, field.scores[place] - field.scores[other] <= ALIKE)
        for row, other in zip(found.rows[1:], chosen[1:], strict=False)
        if row.feasible and field.draws.above(place, other) < field.study.budget.certain
    ]
    fair = [row for row, alike in near if alike and (row.verified or not best.verified)]
    costs = {row.rank: _cost(field.study, row) for row in (best, *fair)}
    less = [row for row in fair if _takes_less(costs[row.rank], costs[1])]
    return replace(
        found,
        best=best,
        certainty=field.draws.certainty(place, team),
        rivals=tuple(row for row, _ in near),
        cheaper=min(less, key=lambda row: (*costs[row.rank], row.rank), default=None),
        safe=None if best.verdict is Verdict.HELD else _safe(found, field),
    )


def _safe(found: Ranking, field: _Field) -> Standing | None:
    """Give the best point, at whichever load, of which the intervals say that it holds all bounds."""
    ranks = {key(field.study.configuration(row.point)): row.rank for row in found.rows}
    rows = {
        place: _standing(field.study, contender, ranks[key(contender.configuration)])
        for place, contender in enumerate(field.contenders)
        if contender.feasible
    }
    held = [place for place, row in rows.items() if row.verdict is Verdict.HELD]
    return rows[field.foremost(held)] if held else None


def _cost(study: Study, row: Standing) -> tuple[float, float, bool]:
    """Give what a row takes: instances x threads x ..., memory, and whether it is not the default."""
    axes = {axis.name for axis in study.space.axes} | study.default.keys()
    values = {**study.job.config, **study.settings, **row.point}
    counts = [values.get(name) for name in axes if _RESOURCE.fullmatch(name)]
    numbers = [n for n in counts if isinstance(n, int | float) and not isinstance(n, bool)]
    # 0 leaves the number to the runtime, which takes what there is.
    resources = math.prod(n if n > 0 else math.inf for n in numbers)
    memory = estimate(study, study.candidates[key(row.point)], _MEMORY)
    return resources, memory.value if memory is not None else math.inf, not row.default


def _takes_less(one: tuple[float, float, bool], other: tuple[float, float, bool]) -> bool:
    """Say whether something takes less than another, memory by a difference that matters."""
    if one[0] != other[0]:
        return one[0] < other[0]
    if one[1] * (1 + ALIKE) < other[1] or other[1] * (1 + ALIKE) < one[1]:
        return one[1] < other[1]
    return one[2] < other[2]

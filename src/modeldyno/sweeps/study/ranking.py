"""The ranking of a study: its candidates in order, how certain the best is, and which are tied with it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.constraints import Judgement, Verdict, worst_verdict
from modeldyno.base.metrics.doubt import OTHER_WORK, Doubt
from modeldyno.base.metrics.measurement import UNEARNED
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.result import Result, merge
from modeldyno.base.stats.statistics import load_numpy
from modeldyno.sweeps.study.bootstrap import (
    Resamples,
    ScoredCandidate,
    scored_candidates,
    scores,
    verified_points,
)
from modeldyno.sweeps.study.exploration import NOTHING_EXPLORED, Exploration, exploration
from modeldyno.sweeps.study.goal import Rank
from modeldyno.sweeps.study.pooled_estimate import Estimate, estimate, judge_candidate, search_hint
from modeldyno.sweeps.study.search_space import Key, Point, key
from modeldyno.sweeps.study.study import (
    NAMED,
    Study,
    TrialState,
    base_name,
    configuration_label,
    configuration_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


RESAMPLES = 1000
ALIKE = 0.03
"""Smallest relative difference that matters: a cheaper candidate may be this much worse."""
ABOUT_AS_LIKELY = 0.8
"""A cheaper candidate must be within `NEAR` of the best in so large a part of the resamples in which the best
is itself."""
NEAR = 0.05
"""How much worse than the best an answer may be and still count as right, see `Ranking.near_best`."""
MOST_LOADS = 2
"""Most loads of a configuration that are worth verifying."""
BESIDE = 0.005
"""Minimum win rate for verifying a second load, which needs no server start."""
_MEMORY = Query(metric="process_memory", statistic="max")
_RESOURCE = re.compile(
    r"(?:.*[._])?(?:instances?|instance_count|workers?|threads?|drivers?|replicas?|processes)"
)
"""Knobs whose higher values need more resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Improvement over the default by the goal's score; with one objective, the ratio of values."""

    times: float
    low: float
    high: float
    sure: float
    """Share of resamples in which it is the better choice, considering bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedConfiguration:
    """A ranked row: a candidate, or the best load of a configuration."""

    rank: int
    """From 1; with `Rank.EACH`, among those of its load."""
    point: Point
    objectives: tuple[Estimate | None, ...]
    """In the order of the goal; None where nothing was seen that counts."""
    judgements: tuple[Judgement, ...]
    """On the constraints, in the order of the goal, by the pooled intervals of its trials."""
    feasible: bool
    """Whether all bounds probably hold."""
    chance: float
    """Probability that it works and all bounds hold."""
    miss: float
    """Sum of the shares by which bounds are missed; infinite if nothing was measured."""
    share: float
    """Share of resamples in which its configuration is the best."""
    promising: tuple[Point, ...]
    """The loads of its configuration that are worth verifying, the likeliest first."""
    gain: Gain | None = None
    """Over the default; None if one of the two has no values."""
    default: bool = False
    trials: int = 0
    """Number of trials behind its figures."""
    verified: int = 0
    """How many of them verified it."""
    doubts: tuple[str, ...] = ()
    """Codes."""
    failure: str = ""
    """Why it failed, if it did."""
    kind: str = ""
    configuration: str = ""
    """Its name, such as ``text_recognition_3``."""

    @property
    def verdict(self) -> Verdict:
        """Whether the bounds hold, by the intervals."""
        return Verdict.BROKEN if self.failure else worst_verdict(self.judgements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The rows of a study from the best to the worst, and conclusions about the first, as a document."""

    rows: tuple[RankedConfiguration, ...]
    """The best; then by score those that hold their bounds, or of which all that was seen is within them;
    then the undecided and the broken ones by how far they miss; failures last."""
    default: RankedConfiguration | None = None
    """The baseline row; None if it was not measured."""
    best: RankedConfiguration | None = None
    """The first row; None if no candidate holds the bounds."""
    near_best: float = 0.0
    """Share of resamples in which its configuration is the best of those that were tried, or less than `NEAR`
    worse, and it holds its bounds; a verification ends by it."""
    rivals: tuple[RankedConfiguration, ...] = ()
    """Rows that are tied with the best."""
    cheaper: RankedConfiguration | None = None
    """A rival that needs less, is not relevantly worse, and about as likely right; None if there is none."""
    cheaper_near: float = 0.0
    """Share of resamples in which `cheaper` is the best or less than `NEAR` worse, and holds its bounds."""
    safe: RankedConfiguration | None = None
    """The best point that surely holds its bounds; None if the first row does, or none do."""
    measurements: int = 0
    configurations: int = 0
    """Measured configurations."""
    explored: Exploration = NOTHING_EXPLORED
    """What of the space was tried: certainties and shares are of that alone."""
    failed: int = 0
    """Failed measurements."""
    skipped: int = 0
    """Invalid points."""
    each: tuple[Ranking, ...] = ()
    """With `Rank.EACH`, the ranking of each load; the whole then has all rows, and the conclusions of the
    load whose best is best."""
    doubts: tuple[Doubt, ...] = ()
    """About the search: what it left out, and whether its best was measured again."""

    def is_certain(self, least: float) -> bool:
        """Return whether the answer is at least so certain, and no value was left untried."""
        return self.near_best >= least and not self.explored.untried


def ranking(study: Study, resamples: int = RESAMPLES) -> Ranking:
    """Rank the measured points; the same study gives the same ranking."""
    measurements, study = len(study.measured), study.searched
    all_contenders = scored_candidates(study)
    each_load = study.goal.rank is Rank.EACH
    groups: dict[Key, list[ScoredCandidate]] = {}
    for contender in all_contenders:
        load = study.resolved(contender.candidate.point)
        load = {name: load[name] for name in contender.load}
        groups.setdefault(key(load) if each_load else (), []).append(contender)
    rankings = tuple(_rank_group(study, groups[load], resamples) for load in sorted(groups))
    with_best = [load_ranking for load_ranking in rankings if load_ranking.best is not None]
    heights = scores(
        [best.objectives for load_ranking in rankings if (best := load_ranking.best) is not None], study.goal
    )
    overall = with_best[heights.index(max(heights))] if with_best else next(iter(rankings), Ranking(rows=()))
    if each_load:
        overall = replace(
            overall, rows=tuple(row for load_ranking in rankings for row in load_ranking.rows), each=rankings
        )
    explored = exploration(study)
    return replace(
        overall,
        measurements=measurements,
        configurations=len({key(contender.configuration) for contender in all_contenders}),
        explored=explored,
        failed=sum(trial.state is TrialState.FAILED for trial in study.measured),
        skipped=len(study.skipped),
        doubts=(*_not_ranked(all_contenders), *_not_explored(explored), *_not_verified(overall))
        if measurements
        else (),
    )


def _not_ranked(contenders: Sequence[ScoredCandidate]) -> Iterator[Doubt]:
    """Yield the doubt that configurations have no value, as their times are not those of the same work."""
    unranked = [
        f"{_point_text(contender.candidate.point)} ({', '.join(sorted(codes))})"
        for contender in contenders
        if None in contender.objectives
        and (
            codes := (UNEARNED | OTHER_WORK)
            & {code for trial in contender.candidate.quoted_trials for code in trial.doubts}
        )
    ]
    if unranked:
        more = f" and {len(unranked) - _NAMED} more" if len(unranked) > _NAMED else ""
        yield Doubt(
            code="not-ranked",
            seen=f"without a rank: {', '.join(unranked[:_NAMED])}{more}; such times are not those of the "
            "same work",
            advice="",
        )


def _point_text(point: Point) -> str:
    return ", ".join(f"{name}={value}" for name, value in point.items()) or "the default"


def _not_explored(explored: Exploration) -> Iterator[Doubt]:
    """Yield the doubt that values were never tried."""
    if explored.untried:
        yield Doubt(
            code="not-explored",
            seen=f"{explored.untried_text()} never tried, so nothing is known of {explored.left:,} of "
            f"{explored.points:,} points",
            advice="continue the study with more `max_trials` or `max_time`, or give fewer values",
        )


def _not_verified(ranked: Ranking) -> Iterator[Doubt]:
    """Yield the doubt that the best was not measured again."""
    if ranked.best is not None and not ranked.best.verified:
        yield Doubt(
            code="unverified",
            seen="the best was not measured again; the best of several tends to look too good "
            "(selection bias)",
            advice="continue the study: it measures the best again, in turns with its rivals",
        )


_NAMED = 3
"""Configurations that a doubt names."""


# --- the order -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ContenderField:
    """Contenders that are compared with one another, each identified by its index; an interim value."""

    study: Study
    contenders: Sequence[ScoredCandidate]
    """Those with a value of every objective."""
    scores: Sequence[float]
    draws: Resamples
    verified: frozenset[Key]
    """The points that were measured again for this goal."""

    def foremost(self, places: Sequence[int]) -> int:
        """Return the contender to choose: the highest score among those that hold the bounds.

        A contender that was verified for this goal is preferred unless another is surely better: an
        unverified top figure suffers from selection bias. If none holds the bounds, it is the one that misses
        them least.
        """
        holding = [index for index in places if self.contenders[index].feasible]
        if not holding:
            return min(places, key=self.order)
        top = min(holding, key=self.order)
        proven = [index for index in holding if self.is_verified(index)]
        steady = min(proven, key=self.order, default=top)
        sure = self.draws.above(top, steady) >= self.study.budget.enough
        return top if sure or self.is_verified(top) else steady

    def is_verified(self, index: int) -> bool:
        """Return whether a contender was measured again for this goal."""
        return key(self.contenders[index].candidate.point) in self.verified

    def promising(self, index: int, team: Sequence[int], wins: Sequence[int], resamples: int) -> list[int]:
        """Return the loads of a configuration that are worth verifying: among frequent winners, the best.

        A verified load is kept unless another wins more than twice as often. The next load that may well be
        better is added.
        """
        most = max(wins[i] for i in team)
        first = index
        if most and not (self.is_verified(index) and 2 * wins[index] >= most):
            first = max((i for i in team if 2 * wins[i] >= most), key=self.scores.__getitem__)
        others = [i for i in team if i != first and wins[i] >= BESIDE * resamples]
        return [first, *sorted(others, key=lambda i: -wins[i])[: MOST_LOADS - 1]]

    def order(self, index: int) -> tuple[bool, float, float]:
        """Sort key: contenders that hold the bounds by score, then the others by how far they miss."""
        contender = self.contenders[index]
        return not contender.feasible, 0.0 if contender.feasible else contender.miss, -self.scores[index]


def _rank_group(study: Study, group: Sequence[ScoredCandidate], resamples: int) -> Ranking:
    """Rank the contenders of one load, or of all."""
    ranked = [contender for contender in group if contender.ranked]
    field = _ContenderField(
        study=study,
        contenders=ranked,
        scores=scores([contender.objectives for contender in ranked], study.goal),
        draws=Resamples.of(study, ranked, resamples),
        verified=verified_points(study),
    )
    teams: dict[Key, list[int]] = {}
    for index, contender in enumerate(ranked):
        teams.setdefault(key(contender.configuration), []).append(index)
    chosen = sorted(map(field.foremost, teams.values()), key=field.order)
    best = field.foremost(chosen) if chosen and ranked[chosen[0]].feasible else None
    judged = {index: _row_of(study, ranked[index]) for index in chosen}
    chosen.sort(key=lambda index: (index != best, _standing(study, judged[index]), field.order(index)[1:]))
    default = next((index for index in chosen if ranked[index].default), None)
    wins = field.draws.wins()
    gains = _gains(field, chosen, default)
    rows = []
    for rank, (index, gain) in enumerate(zip(chosen, gains, strict=True), 1):
        team = teams[key(ranked[index].configuration)]
        share = sum(wins[i] for i in team) / resamples
        promising_points = tuple(
            ranked[i].candidate.point for i in field.promising(index, team, wins, resamples)
        )
        row = replace(judged[index], rank=rank)
        rows.append(replace(row, share=share, promising=promising_points, gain=gain))
    failed_contenders: dict[Key, ScoredCandidate] = {}
    for contender in sorted(group, key=lambda contender: contender.miss):
        if key(contender.configuration) not in teams:
            failed_contenders.setdefault(key(contender.configuration), contender)
    rows += [
        _row_of(study, contender, rank)
        for rank, contender in enumerate(failed_contenders.values(), len(rows) + 1)
    ]
    result = Ranking(rows=tuple(rows), default=next((row for row in rows if row.default), None))
    return (
        result
        if best is None
        else _with_conclusions(result, field, chosen, teams[key(ranked[best].configuration)])
    )


def _standing(study: Study, row: RankedConfiguration) -> int:
    """Return 0 if the bounds hold as far as was seen, 1 if that is undecided, 2 if they are broken."""
    if row.feasible:
        return 0
    candidate = study.candidates[key(row.point)]
    measured = all(search_hint(candidate, bound.query) is not None for bound in study.goal.constraints)
    works = all(trial.state is TrialState.DONE for trial in candidate.trials)
    if row.verdict is Verdict.UNDECIDED and not row.miss and measured and works:
        return 0
    return 2 if row.verdict is Verdict.BROKEN else 1


def _gains(field: _ContenderField, chosen: Sequence[int], default: int | None) -> list[Gain | None]:
    """Return the gain of each over the default, from the draws of both."""
    if default is None:
        return [None] * len(chosen)
    scores = field.draws.scores
    ends = load_numpy().quantile(scores[:, list(chosen)] - scores[:, [default]], (0.025, 0.975), axis=0)
    return [
        Gain(
            times=_ratio(field.scores[index] - field.scores[default]),
            low=_ratio(float(low)),
            high=_ratio(float(high)),
            sure=field.draws.beats(index, default),
        )
        for index, low, high in zip(chosen, *ends, strict=True)
    ]


def _ratio(logarithm: float) -> float:
    """Return the ratio; infinite when compared with 0."""
    return math.inf if logarithm > _LARGEST_LOG else math.exp(logarithm)


_LARGEST_LOG = 500.0


def _row_of(study: Study, contender: ScoredCandidate, rank: int = 0) -> RankedConfiguration:
    """Return the row of a contender, without its comparison with others."""
    telling = contender.candidate.quoted_trials
    failed = contender.candidate.trials[-1] if contender.candidate.failed else None
    return RankedConfiguration(
        rank=rank,
        point=contender.candidate.point,
        objectives=contender.objectives,
        judgements=judge_candidate(study, contender.candidate),
        feasible=contender.feasible,
        chance=contender.chance,
        miss=contender.miss,
        share=0.0,
        promising=(contender.candidate.point,),
        default=contender.default,
        trials=len(telling),
        verified=contender.verified,
        doubts=tuple(dict.fromkeys(code for trial in telling for code in trial.doubts)),
        failure=failed.failure if failed else "",
        kind=failed.kind if failed else "",
        configuration=configuration_label(study, contender.candidate.point),
    )


# --- the verdict -----------------------------------------------------------------------------------


def _with_conclusions(
    result: Ranking, field: _ContenderField, chosen: Sequence[int], team: Sequence[int]
) -> Ranking:
    """Add how certain the first row is, its rivals, and the cheaper rows among these."""
    best, index = result.rows[0], chosen[0]
    margin = math.log1p(NEAR)
    near_best = field.draws.near_best(index, team, margin)
    near = [
        (row, other, field.scores[index] - field.scores[other] <= ALIKE)
        for row, other in zip(result.rows[1:], chosen[1:], strict=False)
        if row.feasible and field.draws.above(index, other) < field.study.budget.enough
    ]
    comparable = [(row, other) for row, other, alike in near if alike and (row.verified or not best.verified)]
    costs = {row.rank: _row_cost(field.study, row) for row in (best, *(row for row, _ in comparable))}
    likely = {
        row.rank: share
        for row, other in comparable
        if _costs_less(costs[row.rank], costs[1])
        and (share := field.draws.near_best(other, [other], margin)) >= ABOUT_AS_LIKELY * near_best
    }
    rivals = tuple(row for row, _, _ in near)
    cheaper = min(
        (row for row in rivals if row.rank in likely),
        key=lambda row: (*costs[row.rank], row.rank),
        default=None,
    )
    return replace(
        result,
        best=best,
        near_best=near_best,
        rivals=rivals,
        cheaper=cheaper,
        cheaper_near=0.0 if cheaper is None else likely[cheaper.rank],
        safe=None if best.verdict is Verdict.HELD else _safe_row(result, field),
    )


def _safe_row(result: Ranking, field: _ContenderField) -> RankedConfiguration | None:
    """Return the best point, at any load, whose intervals show that all bounds hold."""
    ranks = {key(field.study.configuration(row.point)): row.rank for row in result.rows}
    rows = {
        index: _row_of(field.study, contender, ranks[key(contender.configuration)])
        for index, contender in enumerate(field.contenders)
        if contender.feasible
    }
    held = [index for index, row in rows.items() if row.verdict is Verdict.HELD]
    return rows[field.foremost(held)] if held else None


def _row_cost(study: Study, row: RankedConfiguration) -> tuple[float, float, bool]:
    """Return the cost of a row: instances x threads x ..., memory, and whether it is not the default."""
    axes = {axis.name for axis in study.space.axes} | study.default.keys()
    values = {**study.job.config, **study.settings, **row.point}
    counts = [values.get(name) for name in axes if _RESOURCE.fullmatch(name)]
    numbers = [n for n in counts if isinstance(n, int | float) and not isinstance(n, bool)]
    # 0 leaves the number to the runtime, which takes all it can.
    resources = math.prod(n if n > 0 else math.inf for n in numbers)
    memory = estimate(study, study.candidates[key(row.point)], _MEMORY)
    return resources, memory.value if memory is not None else math.inf, not row.default


def _costs_less(one: tuple[float, float, bool], other: tuple[float, float, bool]) -> bool:
    """Return whether one costs less than another, with memory only by a relevant difference."""
    if one[0] != other[0]:
        return one[0] < other[0]
    if one[1] * (1 + ALIKE) < other[1] or other[1] * (1 + ALIKE) < one[1]:
        return one[1] < other[1]
    return one[2] < other[2]


# --- one configuration ------------------------------------------------------------------------------

_MOST = 8
"""Most names in a message."""


def find_configuration(study: Study, ranked: Ranking, name: str) -> RankedConfiguration:
    """Return the row of a configuration by its name or its number, at its best load.

    Raises:
        RequestError: the study has no such configuration.
    """
    match = NAMED.fullmatch(name.strip().removeprefix("#"))
    numbers = {configuration_number(study, row.point): row for row in reversed(ranked.rows)}
    if match is not None and match["number"] in numbers and match["model"] in {None, base_name(study)}:
        return numbers[match["number"]]
    names = [f"{base_name(study)}_{number}" for number in sorted(numbers, key=_order)]
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    raise RequestError(
        f"The study {study.id[:6]} has no configuration '{name}'; it has {', '.join(names[:_MOST])}{more}."
    )


def _order(number: str) -> int:
    return int(number) if number.isdigit() else 0


def winner(study: Study, find_result: Callable[[str], Result | None]) -> Result:
    """Pool the Results of the trials behind the figures of the best configuration.

    Args:
        study: the study; its goal decides what is best.
        find_result: returns a Result by its id; None if it is not stored.

    Raises:
        RequestError: the study has no winner, or the Results of its trials are not stored.
    """
    name = study.name or study.id[:6]
    best = ranking(study).best
    if best is None:
        raise RequestError(f"The study {name} has no winner: no measurement shows that its bounds hold.")
    stored = [find_result(trial.result) for trial in study.candidates[key(best.point)].quoted_trials]
    results = [result for result in stored if result is not None]
    if not results:
        raise RequestError(
            f"The results of the trials of the study {name} are not in the store. A study is compared by the "
            "results of its winner, so compare it where they are."
        )
    doubt = Doubt(
        code="study-winner",
        seen=f"it is the best of {len(study.candidates)} points of the study {name}, chosen for its figures",
        advice="add `run` to measure the winners in turns, in fresh processes",
    )
    pooled = merge(results)
    return replace(pooled, doubts=(*pooled.doubts, doubt))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A configuration of one of several models."""

    rank: int
    """From 1, over all models."""
    study: Study
    row: RankedConfiguration
    """With its rank in its own study."""
    share: float
    """Share of resamples in which it is the best of all models, by the errors within each study."""


def rank_models(studies: Sequence[Study], top: int | None = None) -> tuple[ModelRow, ...]:
    """Rank the configurations of several studies together, by their common objectives.

    Only those that probably hold the bounds of their own study, and have a value of every objective, have a
    place. Figures of different models are compared as they are: what the machine did differently from one
    study to the next is in no share.

    Args:
        studies: at least one; all have the same objectives.
        top: number of configurations; all if None.

    Raises:
        RequestError: the studies have different objectives.
    """
    goals = {tuple(map(str, study.goal.objectives)): study.goal for study in studies}
    if len(goals) > 1:
        first, other = [" and ".join(aims) for aims in goals][:2]
        raise RequestError(
            f"Models with different objectives cannot be ranked together: '{first}' and '{other}'."
        )
    rows: list[tuple[Study, RankedConfiguration]] = []
    draws: list[Resamples] = []
    for place, study in enumerate(studies):
        contenders = {key(each.candidate.point): each for each in scored_candidates(study)}
        placed = [row for row in ranking(study).rows if _has_place(row)]
        rows += [(study, row) for row in placed]
        draws.append(Resamples.of(study, [contenders[key(row.point)] for row in placed], RESAMPLES, place))
    if not rows:
        return ()
    (goal,) = goals.values()
    heights = scores([row.objectives for _, row in rows], goal)
    wins = Resamples.side_by_side(draws).wins()
    order = sorted(range(len(rows)), key=lambda place: (-heights[place], place))[:top]
    return tuple(
        ModelRow(rank=rank, study=rows[place][0], row=rows[place][1], share=wins[place] / RESAMPLES)
        for rank, place in enumerate(order, 1)
    )


def _has_place(row: RankedConfiguration) -> bool:
    return row.feasible and not row.failure and None not in row.objectives

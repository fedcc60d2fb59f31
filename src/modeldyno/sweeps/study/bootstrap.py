"""Bootstrap the ranking of a study: draws of each candidate's score, and of whether its bounds hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from modeldyno.base.metrics.doubt import OTHER_WORK
from modeldyno.base.stats.statistics import load_numpy
from modeldyno.sweeps.study.pooled_estimate import (
    Estimate,
    Spread,
    probability_of_bounds,
    run_to_run_spread,
    seen_estimate,
    total_miss,
)
from modeldyno.sweeps.study.search_space import Key, Point, key
from modeldyno.sweeps.study.study import Candidate, TrialPurpose

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.sweeps.study.goal import Goal, Objective
    from modeldyno.sweeps.study.study import Study, Trial

FEASIBLE = 0.5
"""A candidate is feasible if its bounds hold with more than this probability."""
_NEARLY_BEST = 0.05
"""How much worse than the best of a search, in logarithms, a point may be that is verified as its best."""
_WORST_VALUE = 1e-300
"""Stands in for a value without a logarithm, of an objective to maximize: the worst possible."""
_DETECTION_SHARE = 0.5
"""Value that stands in for zero of an objective to minimize: a share of the smallest positive value.

This is the common practice for values below the limit of detection: no failure among ten thousand requests is
better than one failure, but not infinitely better.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredCandidate:
    """A candidate with everything that it is judged by."""

    candidate: Candidate
    configuration: Point
    load: Point
    objectives: tuple[Estimate | None, ...]
    chance: float
    """Probability that it works and holds all bounds."""
    miss: float
    default: bool = False

    @property
    def verified(self) -> int:
        """Number of trials that verified it."""
        return sum(trial.stage is TrialPurpose.VERIFY for trial in self.candidate.quoted_trials)

    @property
    def ranked(self) -> bool:
        """Whether it has a value of every objective."""
        return None not in self.objectives

    @property
    def feasible(self) -> bool:
        """Whether it probably holds all bounds."""
        return self.ranked and self.chance > FEASIBLE


def scored_candidates(study: Study) -> list[ScoredCandidate]:
    """Return a contender for every measured point, in the order of the first trials.

    One whose outputs show what those of the others do not has no objectives: it may do other work.
    """
    goal, default = study.goal, study.configuration(study.default)
    loads = study.loads
    spreads = {query: run_to_run_spread(study, query) for query in goal.queries}
    bounds = [spreads[bound.query] for bound in goal.constraints]
    shown = [_other_work(candidate) for candidate in study.candidates.values() if not candidate.failed]
    same = frozenset.intersection(*shown) if shown else frozenset()
    return [
        ScoredCandidate(
            candidate=candidate,
            configuration=(configuration := study.configuration(candidate.point)),
            load={name: candidate.point[name] for name in loads if name in candidate.point},
            objectives=tuple(
                seen_estimate(candidate.quoted_trials, o.query, spreads[o.query])
                if _other_work(candidate) <= same
                else None
                for o in goal.objectives
            ),
            chance=probability_of_bounds(candidate, goal, bounds),
            miss=total_miss(candidate, goal),
            default=configuration == default,
        )
        for candidate in study.candidates.values()
    ]


def _other_work(candidate: Candidate) -> frozenset[str]:
    """Return the doubts of a candidate that say what its outputs show of the work that it does."""
    return frozenset(code for trial in candidate.quoted_trials for code in trial.doubts) & OTHER_WORK


def verified_points(study: Study) -> frozenset[Key]:
    """Return the points that were measured again as likely the best by the goal of a study.

    A study may have got its goal after it was verified for another. A run of verifying trials is for this one
    if it has a point that was the best of the search until then, or nearly so.
    """
    points: set[Key] = set()
    for start, trials in _verifying_runs(study):
        before = replace(study, trials=tuple(t for t in study.trials[:start] if not _is_verifying(t)))
        searched = [c for c in scored_candidates(before) if c.feasible]
        by_point = dict(
            zip(
                (key(c.candidate.point) for c in searched),
                scores([c.objectives for c in searched], study.goal) if searched else (),
                strict=True,
            )
        )
        again = {key(trial.point) for trial in trials}
        best = max(by_point.values(), default=-math.inf)
        if not by_point or any(by_point.get(point, -math.inf) >= best - _NEARLY_BEST for point in again):
            points |= again
    return frozenset(points)


def _verifying_runs(study: Study) -> Iterator[tuple[int, list[Trial]]]:
    """Yield each run of verifying trials without a search between them, and the index of its first."""
    for verifying, group in groupby(enumerate(study.trials), lambda item: _is_verifying(item[1])):
        if verifying:
            numbered = list(group)
            yield numbered[0][0], [trial for _, trial in numbered]


def _is_verifying(trial: Trial) -> bool:
    return trial.stage is TrialPurpose.VERIFY


def scores(estimates: Sequence[Sequence[Estimate | None]], goal: Goal) -> list[float]:
    """Return for each contender the weighted mean of the logarithms of its objectives; more is better.

    Args:
        estimates: the estimates of each contender; each has a value of every objective.
        goal: the goal with these objectives.
    """
    total_weight = sum(objective.weight for objective in goal.objectives)
    columns = (
        [
            o.weight / total_weight * o.sign * log
            for log in _logarithms([e for e in column if e is not None], o)
        ]
        for o, column in zip(goal.objectives, zip(*estimates, strict=True), strict=False)
    )
    return [sum(row) for row in zip(*columns, strict=True)]


def _logarithms(estimates: Sequence[Estimate], objective: Objective) -> list[float]:
    values = [estimate.value for estimate in estimates]
    smallest = min((value for value in values if value > 0), default=1.0)
    floor = _WORST_VALUE if objective.maximize else _DETECTION_SHARE * smallest
    return [math.log(value if value > 0 else floor) for value in values]


def draw_logarithms(
    estimates: Sequence[Estimate], objective: Objective, between: Spread, resamples: int, source: Any
) -> Any:
    """Draw the logarithms of values: an array of resamples x values.

    The spread from run to run is itself an estimate: each resample has its own, the same for all values,
    drawn from the scaled inverse chi-square distribution with its degrees of freedom.
    """
    np = load_numpy()
    centres = np.array(_logarithms(estimates, objective))
    errors = np.array([e.error if e.value > 0 else 0.0 for e in estimates])
    runs = np.array([e.between for e in estimates])
    factor = between.degrees / source.chisquare(between.degrees, (resamples, 1))
    own = np.maximum(0.0, errors**2 - runs**2)
    return centres + np.sqrt(own + factor * runs**2) * source.standard_normal((resamples, len(estimates)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resamples:
    """Draws for contenders with a value of every objective: arrays of resamples x contenders."""

    scores: Any
    holds: Any
    """Whether the bounds hold."""

    @classmethod
    def of(
        cls, study: Study, contenders: Sequence[ScoredCandidate], resamples: int, *stream: int
    ) -> Resamples:
        """Draw; the same study gives the same draws, and independent ones in another stream."""
        np, goal = load_numpy(), study.goal
        source = np.random.default_rng([study.seed, *stream])
        total_weight = sum(objective.weight for objective in goal.objectives)
        scores = np.zeros((resamples, len(contenders)))
        for index, objective in enumerate(goal.objectives):
            estimates = [e for c in contenders if (e := c.objectives[index]) is not None]
            logs = draw_logarithms(
                estimates, objective, run_to_run_spread(study, objective.query), resamples, source
            )
            scores += objective.weight / total_weight * objective.sign * logs
        chances = np.array([contender.chance for contender in contenders])
        return cls(scores=scores, holds=source.random(scores.shape) < chances)

    @classmethod
    def side_by_side(cls, parts: Sequence[Resamples]) -> Resamples:
        """Return the draws of several studies as those of one; each has as many resamples."""
        np = load_numpy()
        return cls(
            scores=np.concatenate([part.scores for part in parts], axis=1),
            holds=np.concatenate([part.holds for part in parts], axis=1),
        )

    def _winners(self) -> Any:
        """Return the index of each resample's best contender that holds its bounds; -1 if none does."""
        np = load_numpy()
        if not self.scores.shape[1]:
            return np.empty(0, dtype=int)
        allowed = np.where(self.holds, self.scores, -np.inf)
        return np.where(self.holds.any(axis=1), allowed.argmax(axis=1), -1)

    def wins(self) -> list[int]:
        """Count the resamples in which each contender is the best."""
        winners = self._winners()
        counts: list[int] = (
            load_numpy().bincount(winners[winners >= 0], minlength=self.scores.shape[1]).tolist()
        )
        return counts

    def near_best(self, place: int, team: Sequence[int], margin: float) -> float:
        """Return the share of resamples in which a team is at most this much worse than the best.

        Args:
            place: the contender that must hold its bounds in them.
            team: the contenders of which the best that holds its bounds counts.
            margin: the largest difference of two scores, a logarithm.
        """
        np = load_numpy()
        allowed = np.where(self.holds, self.scores, -np.inf)
        near = allowed[:, list(team)].max(axis=1) >= allowed.max(axis=1) - margin
        return float((near & self.holds[:, place]).mean())

    def above(self, place: int, other: int) -> float:
        """Return the share of resamples in which one scores higher than another, ignoring bounds."""
        return float((self.scores[:, place] > self.scores[:, other]).mean())

    def beats(self, place: int, other: int) -> float:
        """Return the share of resamples in which one is the better choice of two, considering bounds."""
        better = ~self.holds[:, other] | (self.scores[:, place] > self.scores[:, other])
        return float((self.holds[:, place] & better).mean())

"""What the estimates of a study leave open, as draws: how good each may be, and whether its bounds hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.core.stats.statistics import load_numpy
from modeldyno.core.study.pooled_estimate import Estimate, Spread, chance, claims, joined, learnt, miss
from modeldyno.core.study.search_space import Point
from modeldyno.core.study.study import Candidate, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.metrics.metric import Query
    from modeldyno.core.study.goal import Goal, Objective
    from modeldyno.core.study.study import Study

FEASIBLE = 0.5
"""A candidate counts as one that holds its bounds where this is more likely than not."""
_NOTHING = 1e-300
"""In place of a value that has no logarithm, of what is to be made larger: nothing makes good for it."""
_BELOW = 0.5
"""Of what is to be made smaller, what nothing counts as: a share of the least that is more than nothing.

So is a measurement below the limit of detection commonly taken: that no request of ten thousand failed is
better than that one did, but not endlessly.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A candidate with all that it is judged by."""

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
        """Count the trials that verified it."""
        return sum(trial.stage is Stage.VERIFY for trial in self.candidate.telling)

    @property
    def ranked(self) -> bool:
        """Whether it has a value of every objective."""
        return None not in self.objectives

    @property
    def feasible(self) -> bool:
        """Whether it rather holds all bounds than not."""
        return self.ranked and self.chance > FEASIBLE


def contenders(study: Study) -> list[Contender]:
    """Give every point that was measured, in the order of the first trials."""
    goal, default = study.goal, study.configuration(study.default)
    loads = study.loads
    spreads = {query: learnt(study, query) for query in goal.queries}
    bounds = [spreads[bound.query] for bound in goal.constraints]
    return [
        Contender(
            candidate=candidate,
            configuration=(configuration := study.configuration(candidate.point)),
            load={name: candidate.point[name] for name in loads if name in candidate.point},
            objectives=tuple(_estimated(candidate, o.query, spreads[o.query]) for o in goal.objectives),
            chance=chance(candidate, goal, bounds),
            miss=miss(candidate, goal),
            default=configuration == default,
        )
        for candidate in study.candidates.values()
    ]


def _estimated(candidate: Candidate, query: Query, between: Spread) -> Estimate | None:
    return joined(claims(candidate.telling, query), between)


def scores(found: Sequence[Sequence[Estimate | None]], goal: Goal) -> list[float]:
    """Give of each the weighted mean of the logarithms of its objectives, each such that more is better.

    Args:
        found: those that are compared; each has a value of every objective.
        goal: whose objectives these are.
    """
    whole = sum(objective.weight for objective in goal.objectives)
    columns = (
        [o.weight / whole * o.sign * log for log in _logarithms([e for e in column if e is not None], o)]
        for o, column in zip(goal.objectives, zip(*found, strict=True), strict=False)
    )
    return [sum(row) for row in zip(*columns, strict=True)]


def _logarithms(found: Sequence[Estimate], objective: Objective) -> list[float]:
    values = [estimate.value for estimate in found]
    least = min((value for value in values if value > 0), default=1.0)
    floor = _NOTHING if objective.maximize else _BELOW * least
    return [math.log(value if value > 0 else floor) for value in values]


def drawn(
    found: Sequence[Estimate], objective: Objective, between: Spread, resamples: int, source: Any
) -> Any:
    """Draw the logarithm of each value: an array of resamples x values.

    The spread from run to run is itself an estimate: in each resample it is another one, the same for
    all, drawn from the scaled inverse chi-square distribution that its degrees of freedom leave open.
    """
    np = load_numpy()
    centres = np.array(_logarithms(found, objective))
    errors = np.array([e.error if e.value > 0 else 0.0 for e in found])
    runs = np.array([e.between for e in found])
    factor = between.degrees / source.chisquare(between.degrees, (resamples, 1))
    own = np.maximum(0.0, errors**2 - runs**2)
    return centres + np.sqrt(own + factor * runs**2) * source.standard_normal((resamples, len(found)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resamples:
    """Draws of contenders that have a value of every objective: arrays of resamples x contenders."""

    scores: Any
    holds: Any
    """Whether the bounds hold."""

    @classmethod
    def of(cls, study: Study, found: Sequence[Contender], resamples: int) -> Resamples:
        """Draw; the same study gives the same draws."""
        np, goal = load_numpy(), study.goal
        source = np.random.default_rng(study.seed)
        whole = sum(objective.weight for objective in goal.objectives)
        scores = np.zeros((resamples, len(found)))
        for place, objective in enumerate(goal.objectives):
            estimates = [e for c in found if (e := c.objectives[place]) is not None]
            logs = drawn(estimates, objective, learnt(study, objective.query), resamples, source)
            scores += objective.weight / whole * objective.sign * logs
        chances = np.array([contender.chance for contender in found])
        return cls(scores=scores, holds=source.random(scores.shape) < chances)

    def _winners(self) -> Any:
        """Give the place of the best one that holds its bounds, of each resample; -1 where none does."""
        np = load_numpy()
        if not self.scores.shape[1]:
            return np.empty(0, dtype=int)
        allowed = np.where(self.holds, self.scores, -np.inf)
        return np.where(self.holds.any(axis=1), allowed.argmax(axis=1), -1)

    def wins(self) -> list[int]:
        """Count the resamples in which each is the best."""
        winners = self._winners()
        found: list[int] = (
            load_numpy().bincount(winners[winners >= 0], minlength=self.scores.shape[1]).tolist()
        )
        return found

    def certainty(self, place: int, team: Sequence[int]) -> float:
        """Give the share of resamples in which the best is of a team, and this one holds its bounds."""
        own = load_numpy().isin(self._winners(), team)
        return float((own & self.holds[:, place]).mean())

    def above(self, place: int, other: int) -> float:
        """Give the share of resamples in which one scores higher than another, whatever the bounds."""
        return float((self.scores[:, place] > self.scores[:, other]).mean())

    def beats(self, place: int, other: int) -> float:
        """Give the share of resamples in which one is the better choice of two, the bounds included."""
        better = ~self.holds[:, other] | (self.scores[:, place] > self.scores[:, other])
        return float((self.holds[:, place] & better).mean())

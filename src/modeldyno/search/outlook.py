"""What is expected of points that were not measured: how good they are, and how far they break the bounds.

Where a closed loop, or a process, sets the pace, throughput x latency is what is under way at a time; so
one model of throughput tells of both, and of a latency only its ratio to the mean has to be learnt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from modeldyno.core.study import State
from modeldyno.search.history import value
from modeldyno.search.surrogate import Chart, Prior, Surrogate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from modeldyno.core.goal import Constraint
    from modeldyno.core.metric import Query
    from modeldyno.core.objective import Goal
    from modeldyno.core.space import Point
    from modeldyno.core.study import Study

    Array = NDArray[np.float64]

_RATES = ("throughput", "request_rate", "batch_rate", "goodput")
_TIMES = ("latency", "service_time")
_WORK = ("concurrency", "batch_size")
"""Axes that multiply what is under way at a time."""
_YIELD = 0.5
"""Share of a change of what is under way that is believed to become throughput; the rest becomes latency."""
_DRAWS = 48
_CAUTION = 1.0
_TINY = 1e-300
_RATE, _TAIL, _PLAIN = Prior(), Prior(effect=0.1, local=0.04, noise=0.08), Prior(effect=0.3, noise=0.02)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A metric, and the process that was fitted to it, or to its ratio to the mean latency."""

    query: Query
    surrogate: Surrogate
    slope: float
    """Of its logarithm over that of what is under way; the process has the rest."""
    anchor: int | None = None
    """The output that is the throughput which it is told from."""
    floor: float = 0.0
    """What is added to its values, for some were 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is believed after so many measurements."""

    goal: Goal
    outputs: tuple[Output, ...]
    chart: Chart
    failing: tuple[Array, Array] | None
    """Coordinates of what was tried, and whether it failed; None where nothing did."""

    @classmethod
    def of(cls, study: Study) -> Outlook | None:
        """Learn from a study; None where nothing was measured yet that could teach anything."""
        chart = Chart.of(study.space.axes)
        tried = [c for c in study.candidates.values() if _placed(study, c.point)]
        told = [c for c in tried if not c.failed]
        points = [c.point for c in told]
        places, under_way = chart.locate(points), work(points)
        counts = np.array([len(c.telling) for c in told], dtype=float)
        table = {q: np.array([_mean(c.telling, q) for c in told]) for q in study.goal.queries}
        rate = next((q for q in table if q.metric in _RATES and np.isfinite(table[q]).any()), None)
        outputs: list[Output] = []
        for query in sorted(table, key=lambda q: q is not rate):
            found, known = table[query], np.isfinite(table[query])
            coupled = rate is not None and query.metric in _TIMES
            if coupled and rate is not None:
                known = known & np.isfinite(table[rate]) & (table[rate] > 0)
            if not known.any():
                continue
            floor = 0.0 if (found[known] > 0).all() else 1e-3 * max(float(np.abs(found[known]).max()), _TINY)
            logs = np.log(np.clip(found[known] + floor, _TINY, None))
            slope, prior = _belief(query)
            if coupled and rate is not None:
                logs, slope, prior = logs + np.log(table[rate][known]), 1.0, _TAIL
            fitted = Surrogate.fit(chart, places[known], logs - slope * under_way[known], counts[known], prior)
            outputs.append(
                Output(query=query, surrogate=fitted, slope=slope, anchor=0 if coupled else None, floor=floor)
            )
        if not any(o.query in {output.query for output in outputs} for o in study.goal.objectives):
            return None
        bad = np.array([c.failed for c in tried])
        everywhere = chart.locate([c.point for c in tried])
        return cls(
            goal=study.goal,
            outputs=tuple(outputs),
            chart=chart,
            failing=(everywhere, bad) if bad.any() else None,
        )

    def draws(self, points: Sequence[Point]) -> tuple[Array, Array]:
        """Give points x draws of the score, and of the summed logarithms by which bounds are exceeded."""
        places, under_way = self.chart.locate(points), work(points)
        normals = _normals(len(self.outputs))
        drawn: dict[Query, Array] = {}
        for output, luck in zip(self.outputs, normals, strict=True):
            mean, error = output.surrogate.predict(places)
            logs = mean[:, None] + _CAUTION * error[:, None] * luck + (output.slope * under_way)[:, None]
            if output.anchor is not None:
                logs = logs - drawn[self.outputs[output.anchor].query]
            drawn[output.query] = logs
        floors = {output.query: output.floor for output in self.outputs}
        shape = (len(points), _DRAWS)
        weight = sum(o.weight for o in self.goal.objectives)
        score, excess = np.zeros(shape), np.zeros(shape)
        for objective in self.goal.objectives:
            if objective.query in drawn:
                share = objective.weight / weight
                score += drawn[objective.query] * (share if objective.maximize else -share)
        for bound in self.goal.constraints:
            if bound.query in drawn:
                excess += np.clip(_over(bound, drawn[bound.query], floors[bound.query]), 0, None)
        return score, excess

    def works(self, points: Sequence[Point]) -> Array:
        """Give the probability that a point gives anything at all, by what became of those around it."""
        if self.failing is None:
            return np.ones(len(points))
        places, bad = self.failing
        near = np.exp(-2.0 * self.chart.apart(self.chart.locate(points), places).sum(axis=0))
        return np.asarray(1 - (near * bad).sum(axis=1) / (near.sum(axis=1) + 0.3))


def _over(bound: Constraint, logs: Array, floor: float) -> Array:
    """Give by how much, in logarithms, a bound is exceeded; negative where it holds."""
    far = logs - math.log(max(bound.bound + floor, _TINY))
    return far if bound.at_most else -far


def _belief(query: Query) -> tuple[float, Prior]:
    """Give what is believed of a metric before it is measured: how it goes with the work, and how it spreads."""
    if query.metric in _RATES:
        return _YIELD, _RATE
    if query.metric in _TIMES:
        return 1 - _YIELD, _RATE
    return 0.0, _PLAIN


def work(points: Sequence[Point]) -> Array:
    """Give the logarithms of the samples that are under way at a time, but for what all have in common."""
    return np.array([sum(math.log(float(point[n])) for n in _WORK if n in point) for point in points])


def _placed(study: Study, point: Point) -> bool:
    """Say whether a point has a place in the space: a value on every axis that matters."""
    return set(study.space.completed(point)) <= set(point)


def _mean(trials: Sequence[object], query: Query) -> float:
    """Give the geometric mean of what trials say, or the mean where one says nothing at all."""
    found = [v for trial in trials if (v := value(trial, query)) is not None]  # type: ignore[arg-type]
    if not found:
        return math.nan
    return math.exp(sum(map(math.log, found)) / len(found)) if min(found) > 0 else sum(found) / len(found)


def _normals(count: int) -> Array:
    """Give outputs x draws of normal numbers that fill space evenly, by Roberts's additive recurrence."""
    root = 2.0
    for _ in range(60):
        root = (1 + root) ** (1 / (count + 1))
    steps = root ** -np.arange(1, count + 1)
    even = (0.5 + steps[:, None] * np.arange(1, _DRAWS + 1)) % 1
    inverse = NormalDist().inv_cdf
    return np.array([[inverse(min(max(u, 1e-6), 1 - 1e-6)) for u in row] for row in even.tolist()])


__all__ = ["Outlook", "State", "work"]

"""What is expected of points that were not measured: how good they are, and how far they break the bounds.

Where a closed loop, or a process, sets the pace, throughput x latency is what is under way at a time; so
one model of throughput tells of both, and of a latency only its ratio to the mean has to be learnt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from modeldyno.adapters.strategies.gaussian_process import Chart, Prior, Surrogate
from modeldyno.adapters.strategies.study_history import foremost, placed
from modeldyno.core.metrics.metric import Query
from modeldyno.core.study.goal import Goal
from modeldyno.core.study.pooled_estimate import blur, hint
from modeldyno.core.study.search_space import key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from modeldyno.core.metrics.constraints import Constraint
    from modeldyno.core.study.search_space import Point
    from modeldyno.core.study.study import Candidate, Study

    Array = NDArray[np.float64]

_RATES = ("throughput", "request_rate", "batch_rate")
_TIMES = ("latency", "service_time")
_WORK = ("concurrency", "rate", "batch_size")
"""Axes that multiply what is under way at a time, or that comes in a second."""
_YIELD = 0.5
"""Power of what is under way with which throughput is believed to grow; latency has the rest."""
_RATE = Prior(effect=0.4, local=0.06, noise=0.035)
_TAIL = Prior(effect=0.1, local=0.04, noise=0.08)
_OTHER = Prior(effect=0.3, local=0.06, noise=0.02)
_UNSEEN = 0.5
"""Points that work which are taken for granted everywhere."""
_DRAWS = 48
_LEARNT = 96
"""Most points that are learnt from."""
_SMALL, _TINY = 1e-3, 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A metric, and the process that was fitted to it, or to its ratio to the mean latency."""

    query: Query
    surrogate: Surrogate
    slope: float
    """Power of what is under way that the process does not have to learn."""
    coupled: bool = False
    """Whether it is told from the first output, a rate."""
    floor: float = 0.0
    """What is added to its values, where some of them have no logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is believed after so many measurements."""

    goal: Goal
    chart: Chart
    outputs: tuple[Output, ...]
    tried: Array
    """Coordinates of all that was tried."""
    failed: Array
    """Whether it failed."""

    @classmethod
    def of(cls, study: Study, leaders: Sequence[Candidate] | None = None) -> Outlook:
        """Learn from a study in which something is known of all that it is to improve.

        Of a long one from the best and the last measurements, for what is learnt grows with their cube.

        Args:
            study: what was measured.
            leaders: its `foremost`, where they are known already.
        """
        chart = Chart.of(study.space.axes)
        tried = [c for c in study.candidates.values() if placed(study, c.point)]
        if len(tried) > _LEARNT:
            first = foremost(study) if leaders is None else leaders
            best = {key(candidate.point) for candidate in first[: _LEARNT // 2]}
            late = tried[-_LEARNT // 2 :]
            tried = [*(c for c in tried[: -_LEARNT // 2] if key(c.point) in best), *late]
        return cls(
            goal=study.goal,
            chart=chart,
            outputs=tuple(_fitted(study, chart, [c for c in tried if not c.failed])),
            tried=chart.locate([c.point for c in tried]),
            failed=np.array([c.failed for c in tried], dtype=bool),
        )

    def draws(self, points: Sequence[Point], daring: float = 1.0) -> tuple[Array, Array]:
        """Give points x draws of the score, and of the summed logarithms by which bounds are exceeded.

        Args:
            points: at any place.
            daring: times that a score is farther from what is predicted than its error says.
        """
        logs = self._logs(points)
        score, excess = np.zeros((len(points), _DRAWS)), np.zeros((len(points), _DRAWS))
        whole = sum(objective.weight for objective in self.goal.objectives)
        for objective in self.goal.objectives:
            share = objective.weight / whole
            score += logs[objective.query] * (share if objective.maximize else -share)
        middle = score.mean(axis=1, keepdims=True)
        score = middle + daring * (score - middle)
        floors = {output.query: output.floor for output in self.outputs}
        for bound in self.goal.constraints:
            if bound.query in logs:
                excess += np.clip(_over(bound, logs[bound.query], floors[bound.query]), 0, None)
        return score, excess

    def _logs(self, points: Sequence[Point]) -> dict[Query, Array]:
        """Give points x draws of the logarithm of each metric."""
        places, under_way = self.chart.locate(points), work(points)
        logs: dict[Query, Array] = {}
        for output, luck in zip(self.outputs, _normals(len(self.outputs)), strict=True):
            mean, error = output.surrogate.predict(places)
            drawn = (mean + output.slope * under_way)[:, None] + error[:, None] * luck
            logs[output.query] = drawn - logs[self.outputs[0].query] if output.coupled else drawn
        return logs

    def works(self, points: Sequence[Point]) -> Array:
        """Give the probability that a point gives anything at all.

        That is by what became of those around it, and of those that have a value in common with it: of the
        value that has failed most.
        """
        chance = np.ones(len(points))
        if not self.failed.any():
            return chance
        places = self.chart.locate(points)
        near = np.exp(-2 * self.chart.apart(places, self.tried))
        chance -= near @ self.failed / (near.sum(axis=1) + _UNSEEN)
        for column, tried in zip(places.T, self.tried.T, strict=True):
            alike = (column[:, None] == tried[None, :]).astype(float)
            worked = alike @ (1.0 - self.failed)
            chance = np.minimum(chance, (worked + _UNSEEN) / (alike.sum(axis=1) + _UNSEEN))
        return chance


def work(points: Sequence[Point]) -> Array:
    """Give the logarithms of the samples that are under way, or come in, but for what all have in common."""
    return np.array([sum(math.log(float(p[name])) for name in _WORK if name in p) for p in points])


def _fitted(study: Study, chart: Chart, told: Sequence[Candidate]) -> list[Output]:
    """Fit a process to each metric of the goal that was measured; first a rate, from which times are told."""
    points = [candidate.point for candidate in told]
    places, under_way = chart.locate(points), work(points)
    counts = np.array([len(candidate.telling) for candidate in told], dtype=float)
    values = {query: _values(told, query) for query in study.goal.queries}
    rate = next((q for q in values if q.metric in _RATES and (values[q] > 0).any()), None)
    if _open_loop(study):
        rate = None
    outputs = []
    for query in sorted(values, key=lambda q: q != rate):
        coupled = rate is not None and query.metric in _TIMES
        known = np.isfinite(values[query])
        if coupled and rate is not None:
            known &= values[rate] > 0
        if not known.any():
            continue
        logs, floor = _logarithms(values[query][known])
        slope, prior = _belief(query, coupled=coupled)
        if coupled and rate is not None:
            logs = logs + np.log(values[rate][known])
        if not coupled:  # of a ratio of two that were measured at once, what disturbs both is no noise
            prior = replace(prior, noise=math.hypot(prior.noise, blur(study, query)))
        surrogate = Surrogate.fit(chart, places[known], logs - slope * under_way[known], counts[known], prior)
        outputs.append(Output(query=query, surrogate=surrogate, slope=slope, coupled=coupled, floor=floor))
    return outputs


def _open_loop(study: Study) -> bool:
    """Say whether requests come when they are due, whatever the server does."""
    load = study.job.load
    return any(axis.name == "rate" for axis in study.space.axes) or (load is not None and not load.closed)


def _values(told: Sequence[Candidate], query: Query) -> Array:
    found = (hint(candidate, query) for candidate in told)
    return np.array([math.nan if value is None else value for value in found], dtype=float)


def _logarithms(values: Array) -> tuple[Array, float]:
    """Give logarithms, and what was added before they were taken."""
    floor = 0.0 if (values > 0).all() else max(_SMALL * float(np.abs(values).max()), _TINY)
    return np.log(np.clip(values + floor, _TINY, None)), floor


def _belief(query: Query, *, coupled: bool) -> tuple[float, Prior]:
    """Give what is believed of a metric before it is measured: its slope, and the strengths of effects."""
    if coupled:
        return 1.0, _TAIL
    if query.metric in (*_RATES, *_TIMES):
        return _YIELD if query.metric in _RATES else 1 - _YIELD, _RATE
    return 0.0, _OTHER


def _over(bound: Constraint, logs: Array, floor: float) -> Array:
    """Give by how much, in logarithms, a bound is exceeded; negative where it holds."""
    beyond = logs - math.log(max(bound.bound + floor, _TINY))
    return beyond if bound.at_most else -beyond


def _normals(count: int) -> Array:
    """Give outputs x draws of normal numbers that fill space evenly, by Roberts's additive recurrence."""
    root = 2.0
    for _ in range(50):  # to the root of x^(count + 1) = x + 1
        root = (1 + root) ** (1 / (count + 1))
    steps = root ** -np.arange(1.0, count + 1)
    even = (0.5 + steps[:, None] * np.arange(1, _DRAWS + 1)) % 1
    inverse = NormalDist().inv_cdf
    return np.array([[inverse(share) for share in row] for row in even.tolist()])

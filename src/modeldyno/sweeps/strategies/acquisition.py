"""Predictions for unmeasured points: their score, and how far they violate the constraints.

In a closed loop, or in process, throughput x latency is the number of samples in flight (Little's law); so
one model of throughput predicts both, and for a latency only its ratio to the mean has to be learned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from modeldyno.base.metrics.metric import Query
from modeldyno.sweeps.strategies.gaussian_process import FeatureMap, Prior, Surrogate
from modeldyno.sweeps.strategies.study_history import has_all_axes, rank_candidates
from modeldyno.sweeps.study.goal import Goal
from modeldyno.sweeps.study.pooled_estimate import median_trial_error, search_hint
from modeldyno.sweeps.study.search_space import key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from modeldyno.base.metrics.constraints import Constraint
    from modeldyno.sweeps.study.search_space import Point
    from modeldyno.sweeps.study.study import Candidate, Study

    Array = NDArray[np.float64]

_RATES = ("throughput", "request_rate", "batch_rate")
_TIMES = ("latency", "service_time")
_IN_FLIGHT_AXES = ("concurrency", "rate", "batch_size")
"""Axes that multiply the samples in flight, or the arrivals per second."""
_THROUGHPUT_SLOPE = 0.5
"""Exponent of the samples in flight in the prior of throughput; latency has the rest."""
_RATE = Prior(effect=0.4, local=0.06, noise=0.035)
_TAIL = Prior(effect=0.1, local=0.04, noise=0.08)
_OTHER = Prior(effect=0.3, local=0.06, noise=0.02)
_PSEUDO_COUNT = 0.5
"""Pseudo-count of working points assumed everywhere."""
_DRAWS = 48
_MAX_FITTED = 96
"""Maximum number of points to fit."""
_SMALL, _TINY = 1e-3, 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricModel:
    """A metric, and the process fitted to it, or to its ratio to the mean latency."""

    query: Query
    surrogate: Surrogate
    slope: float
    """Exponent of the samples in flight that the process does not have to learn."""
    coupled: bool = False
    """Whether it is derived from the first output, a rate."""
    floor: float = 0.0
    """Offset added to its values, where some have no logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquisition:
    """The fitted model of a study: score and constraints at any point."""

    goal: Goal
    features: FeatureMap
    outputs: tuple[MetricModel, ...]
    tried: Array
    """Coordinates of all tried points."""
    failed: Array
    """Whether each failed."""

    @classmethod
    def of(cls, study: Study, leaders: Sequence[Candidate] | None = None) -> Acquisition:
        """Fit a study that has values of all objectives.

        A long study is fitted to its best and last measurements, as the cost grows with the cube of their
        number.

        Args:
            study: what was measured.
            leaders: its ranked candidates, if known already.
        """
        features = FeatureMap.of(study.space.axes)
        tried = [c for c in study.candidates.values() if has_all_axes(study, c.point)]
        if len(tried) > _MAX_FITTED:
            first = rank_candidates(study) if leaders is None else leaders
            best = {key(candidate.point) for candidate in first[: _MAX_FITTED // 2]}
            recent = tried[-_MAX_FITTED // 2 :]
            tried = [*(c for c in tried[: -_MAX_FITTED // 2] if key(c.point) in best), *recent]
        return cls(
            goal=study.goal,
            features=features,
            outputs=tuple(_fit_outputs(study, features, [c for c in tried if not c.failed])),
            tried=features.locate([c.point for c in tried]),
            failed=np.array([c.failed for c in tried], dtype=bool),
        )

    def draws(self, points: Sequence[Point], deviation_factor: float = 1.0) -> tuple[Array, Array]:
        """Return points x draws of the score, and of the summed log excess over the constraints.

        Args:
            points: any points of the space.
            deviation_factor: factor on the predicted deviation of a score.
        """
        logs = self._logs(points)
        score, excess = np.zeros((len(points), _DRAWS)), np.zeros((len(points), _DRAWS))
        total_weight = sum(objective.weight for objective in self.goal.objectives)
        for objective in self.goal.objectives:
            share = objective.weight / total_weight
            score += logs[objective.query] * (share if objective.maximize else -share)
        mean = score.mean(axis=1, keepdims=True)
        score = mean + deviation_factor * (score - mean)
        floors = {output.query: output.floor for output in self.outputs}
        for bound in self.goal.constraints:
            if bound.query in logs:
                excess += np.clip(_log_excess(bound, logs[bound.query], floors[bound.query]), 0, None)
        return score, excess

    def _logs(self, points: Sequence[Point]) -> dict[Query, Array]:
        """Return points x draws of the logarithm of each metric."""
        coordinates, in_flight = self.features.locate(points), log_in_flight(points)
        logs: dict[Query, Array] = {}
        for output, normals in zip(self.outputs, _normals(len(self.outputs)), strict=True):
            mean, error = output.surrogate.predict(coordinates)
            samples = (mean + output.slope * in_flight)[:, None] + error[:, None] * normals
            logs[output.query] = samples - logs[self.outputs[0].query] if output.coupled else samples
        return logs

    def success_probability(self, points: Sequence[Point]) -> Array:
        """Return the probability that a point works at all.

        Estimated from the points around it, and from those that share a value with it: by the value that
        failed most.
        """
        probability = np.ones(len(points))
        if not self.failed.any():
            return probability
        coordinates = self.features.locate(points)
        weights = np.exp(-2 * self.features.apart(coordinates, self.tried))
        probability -= weights @ self.failed / (weights.sum(axis=1) + _PSEUDO_COUNT)
        for column, tried_column in zip(coordinates.T, self.tried.T, strict=True):
            shared = (column[:, None] == tried_column[None, :]).astype(float)
            worked = shared @ (1.0 - self.failed)
            probability = np.minimum(
                probability, (worked + _PSEUDO_COUNT) / (shared.sum(axis=1) + _PSEUDO_COUNT)
            )
        return probability


def log_in_flight(points: Sequence[Point]) -> Array:
    """Return the log of the samples in flight or arriving, up to a constant that all have in common."""
    numbers = [[p[name] for name in _IN_FLIGHT_AXES if not isinstance(p.get(name, ""), str)] for p in points]
    return np.array([sum(math.log(float(number)) for number in row) for row in numbers])


def _fit_outputs(study: Study, features: FeatureMap, candidates: Sequence[Candidate]) -> list[MetricModel]:
    """Fit a process to each measured metric of the goal; first a rate, from which times are derived."""
    points = [candidate.point for candidate in candidates]
    coordinates, in_flight = features.locate(points), log_in_flight(points)
    counts = np.array([len(candidate.quoted_trials) for candidate in candidates], dtype=float)
    values = {query: _values(candidates, query) for query in study.goal.queries}
    rate = next((q for q in values if q.metric in _RATES and (values[q] > 0).any()), None)
    if _open_loop(study):
        rate = None
    outputs = []
    for query in sorted(values, key=lambda q: q != rate):
        coupled = rate is not None and query.metric in _TIMES
        is_known = np.isfinite(values[query])
        if coupled and rate is not None:
            is_known &= values[rate] > 0
        if not is_known.any():
            continue
        logs, floor = _logarithms(values[query][is_known])
        slope, prior = _prior(query, coupled=coupled)
        if coupled and rate is not None:
            logs = logs + np.log(values[rate][is_known])
        if not coupled:  # in a ratio of two metrics of one measurement, common disturbances cancel
            prior = replace(prior, noise=math.hypot(prior.noise, median_trial_error(study, query)))
        surrogate = Surrogate.fit(
            features, coordinates[is_known], logs - slope * in_flight[is_known], counts[is_known], prior
        )
        outputs.append(
            MetricModel(query=query, surrogate=surrogate, slope=slope, coupled=coupled, floor=floor)
        )
    return outputs


def _open_loop(study: Study) -> bool:
    """Whether requests arrive on schedule, whatever the server does."""
    load = study.job.load
    return any(axis.name == "rate" for axis in study.space.axes) or (load is not None and not load.closed)


def _values(candidates: Sequence[Candidate], query: Query) -> Array:
    estimates = (search_hint(candidate, query) for candidate in candidates)
    return np.array([math.nan if value is None else value for value in estimates], dtype=float)


def _logarithms(values: Array) -> tuple[Array, float]:
    """Return logarithms, and the offset added before taking them."""
    floor = 0.0 if (values > 0).all() else max(_SMALL * float(np.abs(values).max()), _TINY)
    return np.log(np.clip(values + floor, _TINY, None)), floor


def _prior(query: Query, *, coupled: bool) -> tuple[float, Prior]:
    """Return the prior of a metric: its slope, and the strengths of effects."""
    if coupled:
        return 1.0, _TAIL
    if query.metric in (*_RATES, *_TIMES):
        return _THROUGHPUT_SLOPE if query.metric in _RATES else 1 - _THROUGHPUT_SLOPE, _RATE
    return 0.0, _OTHER


def _log_excess(bound: Constraint, logs: Array, floor: float) -> Array:
    """Return the log excess over a constraint; negative where it holds."""
    excess = logs - math.log(max(bound.bound + floor, _TINY))
    return excess if bound.at_most else -excess


def _normals(count: int) -> Array:
    """Return outputs x draws of normal quasi-random numbers, by Roberts's additive recurrence."""
    root = 2.0
    for _ in range(50):  # to the root of x^(count + 1) = x + 1
        root = (1 + root) ** (1 / (count + 1))
    steps = root ** -np.arange(1.0, count + 1)
    quasi_random = (0.5 + steps[:, None] * np.arange(1, _DRAWS + 1)) % 1
    inverse = NormalDist().inv_cdf
    return np.array([[inverse(share) for share in row] for row in quasi_random.tolist()])

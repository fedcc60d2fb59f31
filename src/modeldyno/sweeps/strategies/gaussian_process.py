"""Gaussian process over configurations, on the log scale.

Each axis has its own effect: linear in the logarithm of its values with a smooth remainder, or one level per
word. Any two axes interact in proportion to their own effects, as an axis without a main effect seldom
interacts (effect
heredity: Hamada and Wu 1992; additive kernels: Duvenaud et al. 2011). The remainder is local.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from modeldyno.base.job.knob import KnobValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.sweeps.study.search_space import Axis, Point

Array = NDArray[np.float64]

_LOG_RATIO = 3.0
"""Ratio of largest to smallest value from which an axis is scaled logarithmically."""
_MAX_FITTED = 32
"""Maximum number of measurements to fit the effect strengths: the last ones."""


# --- coordinates -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisScaling:
    """Coordinates of an axis: numbers from -1 to 1, words as integers."""

    name: str
    ordered: bool
    values: Array
    places: Array
    categories: dict[KnobValue, int]

    @classmethod
    def of(cls, axis: Axis) -> AxisScaling:
        """Scale logarithmically where numbers span a wide range, and by rank where one is zero."""
        if not axis.ordered or len(axis.values) == 1:
            categories = {value: place for place, value in enumerate(axis.values)}
            return cls(
                name=axis.name, ordered=False, values=np.zeros(1), places=np.zeros(1), categories=categories
            )
        values = np.array(axis.values, dtype=float)
        if values[0] > 0:
            raw = np.log(values) if values[-1] >= _LOG_RATIO * values[0] else values
        else:
            raw = np.arange(len(values), dtype=float)
        places = 2 * (raw - raw[0]) / (raw[-1] - raw[0]) - 1
        return cls(name=axis.name, ordered=True, values=values, places=places, categories={})

    def column(self, points: Sequence[Point]) -> Array:
        """Return the coordinates of points; where the axis does not matter, the middle."""
        if self.ordered:
            axis_values = np.array([float(point.get(self.name, math.nan)) for point in points])
            coordinates: Array = np.nan_to_num(np.interp(axis_values, self.values, self.places), nan=0.0)
            return coordinates
        return np.array([self.categories.get(point.get(self.name, ""), -1) for point in points], dtype=float)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMap:
    """The scalings of all axes with more than one value."""

    scales: tuple[AxisScaling, ...]

    @classmethod
    def of(cls, axes: Sequence[Axis]) -> FeatureMap:
        """Build the scalings."""
        return cls(scales=tuple(AxisScaling.of(axis) for axis in axes if len(axis.values) > 1))

    def locate(self, points: Sequence[Point]) -> Array:
        """Return points x axes coordinates."""
        columns = [scale.column(points) for scale in self.scales]
        return np.stack(columns, axis=1) if columns else np.zeros((len(points), 0))

    def pair_axes(self, first: Array, second: Array) -> tuple[AxisPair, ...]:
        """Pair the distinct values of each axis in both sets of points; there are few."""
        return tuple(
            AxisPair.of(first[:, axis], second[:, axis], ordered=scale.ordered)
            for axis, scale in enumerate(self.scales)
        )

    def apart(self, first: Array, second: Array, power: int = 1) -> Array:
        """Return first x second sums of powers of distances along the axes; for words 0 or 1."""
        distances = np.zeros((len(first), len(second)))
        for pair in self.pair_axes(first, second):
            distances += pair.spread(pair.gaps**power)
        return distances


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisPair:
    """The distinct values of an axis in two sets of points."""

    here: Array
    there: Array
    gaps: Array
    """Here x there distances."""
    ordered: bool
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]

    @classmethod
    def of(cls, first: Array, second: Array, *, ordered: bool) -> AxisPair:
        """Find the distinct values."""
        here, rows = np.unique(first, return_inverse=True)
        there, columns = np.unique(second, return_inverse=True)
        gaps = np.abs(here[:, None] - there[None, :])
        distances = gaps if ordered else (gaps > 0).astype(float)
        return cls(here=here, there=there, gaps=distances, ordered=ordered, rows=rows, columns=columns)

    def effect(self, reach: float) -> Array:
        """Return here x there covariances of the main effect of the axis, at a strength of 1."""
        if not self.ordered:
            return 1.0 - self.gaps
        return self.here[:, None] * self.there[None, :] + BEND * _matern(self.gaps / reach)

    def spread(self, table: Array) -> Array:
        """Expand a here x there table to first x second."""
        return np.asarray(table[self.rows][:, self.columns])


# --- the process -------------------------------------------------------------------------------------

_LEVEL = 9.0
"""Variance of the level, in addition to the mean of the measurements."""
BEND = 0.5
"""Variance of the smooth part of an effect, relative to its linear part."""
_JITTER = 1e-9
"""Variance that keeps a covariance invertible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Prior of a metric before anything is measured: medians, on the log scale."""

    effect: float = 0.4
    """Standard deviation of the linear effect of an axis over half of its range."""
    together: float = 0.5
    """Standard deviation of the interaction of two axes, relative to the product of their effects."""
    local: float = 0.06
    noise: float = 0.035


_PRIOR_DEVIATIONS = (1.0, 0.6, 0.7, 0.5, 0.4)
"""Standard deviations of the logs of effects, interactions, local part, noise, and reach."""
STEPS = (1.0, 1.0, 0.5)
"""Step sizes of the search for the maximum-likelihood strengths, in their standard deviations."""
_REACH = 0.9
"""Median correlation length of an effect, where the whole range is 2."""


def _matern(distance: Array) -> Array:
    """Return Matern's correlation for twice differentiable functions."""
    scaled = math.sqrt(5) * distance
    return np.asarray((1 + scaled + scaled * scaled / 3) * np.exp(-scaled))


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """A process fitted to measurements."""

    features: FeatureMap
    coordinates: Array
    """Measurements x axes."""
    theta: Array
    """The logarithms of strengths, as `kernel` takes them."""
    inverse: Array
    """Inverse of the Cholesky factor of their covariance: lower triangular."""
    weights: Array
    mean: float

    @classmethod
    def fit(
        cls, features: FeatureMap, coordinates: Array, logs: Array, counts: Array, prior: Prior
    ) -> Surrogate:
        """Fit logarithms `logs`, each the mean of `counts` measurements."""
        recent = slice(-_MAX_FITTED, None)
        mean = float(logs.mean())
        theta = _strengths(features, coordinates[recent], logs[recent] - mean, counts[recent], prior)
        covariance = kernel(features, coordinates, coordinates, theta) + _noise(theta, counts)
        inverse: Array = np.asarray(np.linalg.inv(np.linalg.cholesky(covariance)), dtype=float)
        weights: Array = inverse.T @ (inverse @ (logs - mean))
        return cls(
            features=features,
            coordinates=coordinates,
            theta=theta,
            inverse=inverse,
            weights=weights,
            mean=mean,
        )

    def predict(self, coordinates: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation of the logarithm at coordinates, without the noise."""
        cross_covariance = kernel(self.features, coordinates, self.coordinates, self.theta)
        projected = cross_covariance @ self.inverse.T
        variance = _variances(self.features, coordinates, self.theta) - (projected * projected).sum(axis=1)
        return self.mean + cross_covariance @ self.weights, np.sqrt(np.clip(variance, 1e-10, None))


def kernel(features: FeatureMap, first: Array, second: Array, theta: Array) -> Array:
    """Return first x second covariances.

    Args:
        features: the scalings of the axes.
        first: coordinates of points.
        second: coordinates of other points.
        theta: the logarithms of the strength of each axis, of interactions, of the local part, of the noise,
            and of the reach.
    """
    together, local, _, reach = np.exp(theta[-4:]).tolist()
    main_effects, squares, squared_distances = (np.zeros((len(first), len(second))) for _ in range(3))
    for pair, strength in zip(features.pair_axes(first, second), np.exp(2 * theta).tolist(), strict=False):
        single = pair.spread(strength * pair.effect(reach))
        main_effects += single
        squares += single * single
        squared_distances += pair.spread(pair.gaps * pair.gaps)
    pairs = 0.5 * (main_effects * main_effects - squares)
    return np.asarray(
        _LEVEL + main_effects + together**2 * pairs + local**2 * _matern(np.sqrt(squared_distances) / reach)
    )


def _variances(features: FeatureMap, coordinates: Array, theta: Array) -> Array:
    """Return only the diagonal of `kernel`."""
    ordered = np.array([scale.ordered for scale in features.scales], dtype=bool)
    single = np.where(ordered, coordinates * coordinates + BEND, 1.0) * np.exp(2 * theta[:-4])
    main_effects = single.sum(axis=1)
    pairs = 0.5 * (main_effects * main_effects - (single * single).sum(axis=1))
    together, local = np.exp(theta[-4:-2])
    return np.asarray(_LEVEL + main_effects + together**2 * pairs + local**2)


def _noise(theta: Array, counts: Array) -> Array:
    return np.diag(np.exp(2 * theta[-2]) / counts + _JITTER)


# --- effect strengths --------------------------------------------------------------------------------


def _strengths(
    features: FeatureMap, coordinates: Array, residuals: Array, counts: Array, prior: Prior
) -> Array:
    """Search the most likely strengths by coordinate search with decreasing steps."""
    axes = len(features.scales)
    medians = [prior.effect] * axes + [prior.together, prior.local, prior.noise, _REACH]
    prior_mean: Array = np.log(np.array(medians))
    spread = np.array([_PRIOR_DEVIATIONS[0]] * axes + list(_PRIOR_DEVIATIONS[1:]))
    covariance = _Covariance.of(features, coordinates)

    def fitness(theta: Array) -> float:
        root = np.linalg.cholesky(covariance(theta) + _noise(theta, counts))
        whitened = np.linalg.solve(root, residuals)
        penalty = 0.5 * (((theta - prior_mean) / spread) ** 2).sum()
        return float(-0.5 * whitened @ whitened - np.log(np.diag(root)).sum() - penalty)

    best, theta = fitness(prior_mean), prior_mean
    for step in STEPS:
        for index in range(len(prior_mean)):
            for sign in (1, -1):
                candidate = theta.copy()
                candidate[index] += sign * step * spread[index]
                if (value := fitness(candidate)) > best:
                    best, theta = value, candidate
                    break
    return theta


@dataclass(slots=True, kw_only=True)
class _Covariance:
    """The kernel of points with themselves, for many strengths; effects are cached per reach."""

    pairs: tuple[AxisPair, ...]
    apart: Array
    reach: float = math.nan
    effects: Array
    near: Array

    @classmethod
    def of(cls, features: FeatureMap, coordinates: Array) -> _Covariance:
        apart = np.sqrt(features.apart(coordinates, coordinates, power=2))
        empty = np.zeros((0, *apart.shape))
        return cls(pairs=features.pair_axes(coordinates, coordinates), apart=apart, effects=empty, near=empty)

    def __call__(self, theta: Array) -> Array:
        if theta[-1] != self.reach:
            self.reach = float(theta[-1])
            reach = math.exp(self.reach)
            tables = [pair.spread(pair.effect(reach)) for pair in self.pairs]
            self.effects = np.stack(tables) if tables else self.effects
            self.near = _matern(self.apart / reach)
        single = np.exp(2 * theta[:-4])[:, None, None] * self.effects
        main_effects = single.sum(axis=0)
        pairs = 0.5 * (main_effects * main_effects - (single * single).sum(axis=0))
        together, local = np.exp(2 * theta[-4:-2])
        return np.asarray(_LEVEL + main_effects + together * pairs + local * self.near)

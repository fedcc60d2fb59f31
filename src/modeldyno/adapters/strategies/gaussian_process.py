"""What was measured, as a smooth function of the configuration: a Gaussian process on the log scale.

Each axis has an effect of its own, linear in the logarithm of its values with a smooth remainder, or one
for each of its words. Any two axes act together in proportion to what they do alone, for an axis that does
nothing alone seldom does anything with another (the heredity of effects: Hamada and Wu 1992; additive
kernels: Duvenaud et al. 2011). Whatever is left is local.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from modeldyno.core.spec.knob import KnobValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.study.search_space import Axis, Point

Array = NDArray[np.float64]

_WIDE = 3.0
"""Largest over smallest value from which on an axis counts by ratios."""
_FITTED = 32
"""Most measurements that the strengths of effects are learnt from: the last ones."""


# --- coordinates -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Where the values of an axis lie: numbers between -1 and 1, words at whole numbers."""

    name: str
    ordered: bool
    values: Array
    places: Array
    words: dict[KnobValue, int]

    @classmethod
    def of(cls, axis: Axis) -> Scale:
        """Take a logarithmic scale where numbers span a wide range, and their order where there is a zero."""
        if not axis.ordered or len(axis.values) == 1:
            words = {value: place for place, value in enumerate(axis.values)}
            return cls(name=axis.name, ordered=False, values=np.zeros(1), places=np.zeros(1), words=words)
        values = np.array(axis.values, dtype=float)
        if values[0] > 0:
            raw = np.log(values) if values[-1] >= _WIDE * values[0] else values
        else:
            raw = np.arange(len(values), dtype=float)
        places = 2 * (raw - raw[0]) / (raw[-1] - raw[0]) - 1
        return cls(name=axis.name, ordered=True, values=values, places=places, words={})

    def column(self, points: Sequence[Point]) -> Array:
        """Give the coordinates of points; an axis that does not matter there lies in the middle."""
        if self.ordered:
            known = np.array([float(point.get(self.name, math.nan)) for point in points])
            placed: Array = np.nan_to_num(np.interp(known, self.values, self.places), nan=0.0)
            return placed
        return np.array([self.words.get(point.get(self.name, ""), -1) for point in points], dtype=float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The scales of all axes that have more than one value."""

    scales: tuple[Scale, ...]

    @classmethod
    def of(cls, axes: Sequence[Axis]) -> Chart:
        """Make the scales."""
        return cls(scales=tuple(Scale.of(axis) for axis in axes if len(axis.values) > 1))

    def locate(self, points: Sequence[Point]) -> Array:
        """Give points x axes coordinates."""
        columns = [scale.column(points) for scale in self.scales]
        return np.stack(columns, axis=1) if columns else np.zeros((len(points), 0))

    def pair(self, first: Array, second: Array) -> tuple[Pair, ...]:
        """Pair the values that each axis has here and there; of either there are few."""
        return tuple(
            Pair.of(first[:, place], second[:, place], ordered=scale.ordered)
            for place, scale in enumerate(self.scales)
        )

    def apart(self, first: Array, second: Array, power: int = 1) -> Array:
        """Give first x second sums of powers of the distances along the axes; those of words are 0 or 1."""
        summed = np.zeros((len(first), len(second)))
        for pair in self.pair(first, second):
            summed += pair.spread(pair.gaps**power)
        return summed


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The distinct values of an axis at some points and at others."""

    here: Array
    there: Array
    gaps: Array
    """Here x there distances."""
    ordered: bool
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]

    @classmethod
    def of(cls, first: Array, second: Array, *, ordered: bool) -> Pair:
        """Find them."""
        here, rows = np.unique(first, return_inverse=True)
        there, columns = np.unique(second, return_inverse=True)
        gaps = np.abs(here[:, None] - there[None, :])
        kept = gaps if ordered else (gaps > 0).astype(float)
        return cls(here=here, there=there, gaps=kept, ordered=ordered, rows=rows, columns=columns)

    def effect(self, reach: float) -> Array:
        """Give here x there covariances of what the axis does alone, at a strength of 1."""
        if not self.ordered:
            return 1.0 - self.gaps
        return self.here[:, None] * self.there[None, :] + BEND * _matern(self.gaps / reach)

    def spread(self, table: Array) -> Array:
        """Give first x second values of a table of here x there."""
        return np.asarray(table[self.rows][:, self.columns])


# --- the process -------------------------------------------------------------------------------------

_LEVEL = 9.0
"""Variance of the level, beyond the mean of what was measured."""
BEND = 0.5
"""Variance of the smooth part of an effect, as a share of that of its linear part."""
_JITTER = 1e-9
"""Variance that keeps a covariance invertible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is believed of a metric before anything is measured: medians, on the log scale."""

    effect: float = 0.4
    """Standard deviation of the linear effect of an axis over half of its range."""
    together: float = 0.5
    """Of that of two axes together, as a share of the product of theirs."""
    local: float = 0.06
    noise: float = 0.035


_SPREADS = (1.0, 0.6, 0.7, 0.5, 0.4)
"""Standard deviations of the logarithms of effects, together, local, noise, and reach."""
STEPS = (1.0, 1.0, 0.5)
"""Of the search for the likeliest strengths, in their standard deviations."""
_REACH = 0.9
"""Median of the length over which an effect stays alike, where the whole range is 2."""


def _matern(distance: Array) -> Array:
    """Give Matern's correlation for functions that have two derivatives."""
    scaled = math.sqrt(5) * distance
    return np.asarray((1 + scaled + scaled * scaled / 3) * np.exp(-scaled))


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """A process that has seen the measurements."""

    chart: Chart
    seen: Array
    """Measurements x axes."""
    theta: Array
    """As `kernel` takes it."""
    inverse: Array
    """Of the root of their covariance: lower triangular."""
    weights: Array
    mean: float

    @classmethod
    def fit(cls, chart: Chart, seen: Array, found: Array, counts: Array, prior: Prior) -> Surrogate:
        """Learn from logarithms `found`, each the mean of so many measurements."""
        kept = slice(-_FITTED, None)
        mean = float(found.mean())
        theta = _strengths(chart, seen[kept], found[kept] - mean, counts[kept], prior)
        covariance = kernel(chart, seen, seen, theta) + _noise(theta, counts)
        inverse: Array = np.asarray(np.linalg.inv(np.linalg.cholesky(covariance)), dtype=float)
        weights: Array = inverse.T @ (inverse @ (found - mean))
        return cls(chart=chart, seen=seen, theta=theta, inverse=inverse, weights=weights, mean=mean)

    def predict(self, places: Array) -> tuple[Array, Array]:
        """Give mean and standard deviation of the logarithm at places, without the noise."""
        across = kernel(self.chart, places, self.seen, self.theta)
        reduced = across @ self.inverse.T
        variance = _variances(self.chart, places, self.theta) - (reduced * reduced).sum(axis=1)
        return self.mean + across @ self.weights, np.sqrt(np.clip(variance, 1e-10, None))


def kernel(chart: Chart, first: Array, second: Array, theta: Array) -> Array:
    """Give first x second covariances.

    Args:
        chart: the scales of the axes.
        first: coordinates of points.
        second: coordinates of others.
        theta: the logarithms of the strength of each axis, of that of two together, of what is local, of
            the noise, and of the reach.
    """
    together, local, _, reach = np.exp(theta[-4:]).tolist()
    whole, squares, apart = (np.zeros((len(first), len(second))) for _ in range(3))
    for pair, strength in zip(chart.pair(first, second), np.exp(2 * theta).tolist(), strict=False):
        single = pair.spread(strength * pair.effect(reach))
        whole += single
        squares += single * single
        apart += pair.spread(pair.gaps * pair.gaps)
    pairs = 0.5 * (whole * whole - squares)
    return np.asarray(_LEVEL + whole + together**2 * pairs + local**2 * _matern(np.sqrt(apart) / reach))


def _variances(chart: Chart, places: Array, theta: Array) -> Array:
    """Give the diagonal of `kernel` alone."""
    ordered = np.array([scale.ordered for scale in chart.scales], dtype=bool)
    single = np.where(ordered, places * places + BEND, 1.0) * np.exp(2 * theta[:-4])
    whole = single.sum(axis=1)
    pairs = 0.5 * (whole * whole - (single * single).sum(axis=1))
    together, local = np.exp(theta[-4:-2])
    return np.asarray(_LEVEL + whole + together**2 * pairs + local**2)


def _noise(theta: Array, counts: Array) -> Array:
    return np.diag(np.exp(2 * theta[-2]) / counts + _JITTER)


# --- its strengths -----------------------------------------------------------------------------------


def _strengths(chart: Chart, seen: Array, found: Array, counts: Array, prior: Prior) -> Array:
    """Search the likeliest strengths, one after the other, by steps that become smaller."""
    axes = len(chart.scales)
    medians = [prior.effect] * axes + [prior.together, prior.local, prior.noise, _REACH]
    centre: Array = np.log(np.array(medians))
    spread = np.array([_SPREADS[0]] * axes + list(_SPREADS[1:]))
    covariance = _Covariance.of(chart, seen)

    def fitness(theta: Array) -> float:
        root = np.linalg.cholesky(covariance(theta) + _noise(theta, counts))
        white = np.linalg.solve(root, found)
        odds = 0.5 * (((theta - centre) / spread) ** 2).sum()
        return float(-0.5 * white @ white - np.log(np.diag(root)).sum() - odds)

    best, theta = fitness(centre), centre
    for step in STEPS:
        for place in range(len(centre)):
            for sign in (1, -1):
                moved = theta.copy()
                moved[place] += sign * step * spread[place]
                if (value := fitness(moved)) > best:
                    best, theta = value, moved
                    break
    return theta


@dataclass(slots=True, kw_only=True)
class _Covariance:
    """The kernel of some points with themselves, for many strengths: effects are kept while the reach is."""

    pairs: tuple[Pair, ...]
    apart: Array
    reach: float = math.nan
    effects: Array
    near: Array

    @classmethod
    def of(cls, chart: Chart, seen: Array) -> _Covariance:
        apart = np.sqrt(chart.apart(seen, seen, power=2))
        nothing = np.zeros((0, *apart.shape))
        return cls(pairs=chart.pair(seen, seen), apart=apart, effects=nothing, near=nothing)

    def __call__(self, theta: Array) -> Array:
        if theta[-1] != self.reach:
            self.reach = float(theta[-1])
            reach = math.exp(self.reach)
            tables = [pair.spread(pair.effect(reach)) for pair in self.pairs]
            self.effects = np.stack(tables) if tables else self.effects
            self.near = _matern(self.apart / reach)
        single = np.exp(2 * theta[:-4])[:, None, None] * self.effects
        whole = single.sum(axis=0)
        pairs = 0.5 * (whole * whole - (single * single).sum(axis=0))
        together, local = np.exp(2 * theta[-4:-2])
        return np.asarray(_LEVEL + whole + together * pairs + local * self.near)

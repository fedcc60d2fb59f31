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

from modeldyno.core.knob import KnobValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from modeldyno.core.space import Axis, Point

    Array = NDArray[np.float64]

_WIDE = 3.0
"""Largest over smallest value from which on an axis counts by ratios."""
_FITTED = 64
"""Most measurements that the strengths of effects are learnt from."""


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
            return np.nan_to_num(np.interp(known, self.values, self.places), nan=0.0)
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

    def apart(self, first: Array, second: Array) -> Array:
        """Give axes x first x second distances; those of words are 0 or 1."""
        gaps: Array = np.abs(first.T[:, :, None] - second.T[:, None, :])
        for place, scale in enumerate(self.scales):
            if not scale.ordered:
                gaps[place] = gaps[place] > 0
        return gaps


# --- the process -------------------------------------------------------------------------------------

_LEVEL = 9.0
"""Variance of the level, beyond the mean of what was measured."""
_BEND = 0.5
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
    root: Array
    """Of their covariance: lower triangular."""
    weights: Array
    mean: float

    @classmethod
    def fit(cls, chart: Chart, seen: Array, found: Array, counts: Array, prior: Prior) -> Surrogate:
        """Learn from logarithms `found` of what so many measurements each gave in the mean."""
        kept = slice(max(0, len(seen) - _FITTED), None)
        mean = float(found.mean())
        theta = _strengths(chart, seen[kept], found[kept] - mean, counts[kept], prior)
        covariance = _kernel(chart, seen, seen, theta) + np.diag(np.exp(2 * theta[-2]) / counts)
        root: Array = np.asarray(np.linalg.cholesky(covariance + _JITTER * np.eye(len(seen))), dtype=float)
        weights = _solved(root, found - mean)
        return cls(chart=chart, seen=seen, theta=theta, root=root, weights=weights, mean=mean)

    def predict(self, places: Array) -> tuple[Array, Array]:
        """Give mean and standard deviation of the logarithm at places, without the noise."""
        across = _kernel(self.chart, places, self.seen, self.theta)
        mean = self.mean + across @ self.weights
        reduced = np.linalg.solve(self.root, across.T)
        variance = _diagonal(self.chart, places, self.theta) - (reduced * reduced).sum(axis=0)
        return mean, np.sqrt(np.clip(variance, 1e-10, None))


def _solved(root: Array, right: Array) -> Array:
    return np.asarray(np.linalg.solve(root.T, np.linalg.solve(root, right)))


def _effects(chart: Chart, first: Array, second: Array, gaps: Array, theta: Array) -> Array:
    """Give axes x first x second covariances of the effects that axes have alone."""
    reach = math.exp(theta[-1])
    single = np.empty_like(gaps)
    for place, scale in enumerate(chart.scales):
        if scale.ordered:
            linear = first[:, place, None] * second[None, :, place]
            single[place] = linear + _BEND * _matern(gaps[place] / reach)
        else:
            single[place] = 1.0 - gaps[place]
        single[place] *= math.exp(2 * theta[place])
    return single


def _kernel(chart: Chart, first: Array, second: Array, theta: Array, gaps: Array | None = None) -> Array:
    """Give first x second covariances.

    `theta`: the logarithms of the strength of each axis, of that of two together, of what is local, of the
    noise, and of the reach.
    """
    gaps = chart.apart(first, second) if gaps is None else gaps
    single = _effects(chart, first, second, gaps, theta)
    whole = single.sum(axis=0)
    pairs = 0.5 * (whole * whole - (single * single).sum(axis=0))
    together, local, _, reach = np.exp(theta[-4:])
    near = _matern(np.sqrt((gaps * gaps).sum(axis=0)) / reach)
    return np.asarray(_LEVEL + whole + together**2 * pairs + local**2 * near)


def _diagonal(chart: Chart, places: Array, theta: Array) -> Array:
    """Give the variances of `_kernel` alone."""
    ordered = np.array([scale.ordered for scale in chart.scales], dtype=bool)
    single = np.where(ordered, places * places + _BEND, 1.0) * np.exp(2 * theta[:-4])
    whole = single.sum(axis=1)
    pairs = 0.5 * (whole * whole - (single * single).sum(axis=1))
    together, local = np.exp(theta[-4:-2])
    return np.asarray(_LEVEL + whole + together**2 * pairs + local**2)


def _strengths(chart: Chart, seen: Array, found: Array, counts: Array, prior: Prior) -> Array:
    """Search the likeliest strengths, one after the other, by steps that become smaller."""
    axes = len(chart.scales)
    medians = [prior.effect] * axes + [prior.together, prior.local, prior.noise, _REACH]
    centre = np.log(np.array(medians))
    spread = np.array([_SPREADS[0]] * axes + list(_SPREADS[1:]))
    gaps = chart.apart(seen, seen)

    def fitness(theta: Array) -> float:
        covariance = _kernel(chart, seen, seen, theta, gaps) + np.diag(
            np.exp(2 * theta[-2]) / counts + _JITTER
        )
        root = np.linalg.cholesky(covariance)
        white = np.linalg.solve(root, found)
        odds = 0.5 * (((theta - centre) / spread) ** 2).sum()
        return float(-0.5 * white @ white - np.log(np.diag(root)).sum() - odds)

    best, theta = fitness(centre), centre
    for step in (1.0, 0.5, 0.25):
        for place in range(len(centre)):
            for sign in (1, -1):
                moved = theta.copy()
                moved[place] += sign * step * spread[place]
                if (value := fitness(moved)) > best:
                    best, theta = value, moved
                    break
    return theta

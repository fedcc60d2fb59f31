"""Drift detection: is a trend or a level shift left in a series of samples, in the order taken?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from modeldyno.base.stats import student_t
from modeldyno.base.stats.statistics import (
    NORMAL,
    Samples,
    autocorrelation_time,
    load_numpy,
    reduce_to_block_means,
)

_SIGNIFICANT = 0.0005
_RELEVANT = 0.01
_DRIFT_BLOCKS = 256
_DRIFT_FEWEST = 8

_Kind: TypeAlias = Literal["trend", "level shift"]
_Fit: TypeAlias = "tuple[_Kind, Samples, float]"  # kind, its shape about 0, p-value


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A trend or level shift in a series."""

    kind: _Kind
    """Whether the level moves steadily or jumps."""
    size: float
    """Change from the beginning to the end as a fraction of the larger of both; negative when falling."""
    p_value: float
    """Probability of seeing as much in a steady series with the same autocorrelation."""
    start: int
    """Index of the sample by which most of the change has happened."""


def find_drift(samples: Samples, chance: float = _SIGNIFICANT, relevant: float = _RELEVANT) -> Drift | None:
    """Return the trend or level shift that is both significant and relevant, or None.

    The test uses the ranks of at most 256 block means, so that neither outliers nor the shape of the
    distribution matter. The autocorrelation of the residuals is accounted for, so that slow noise is not
    taken for drift.

    Args:
        samples: in the order taken.
        chance: greatest p-value that counts as significant.
        relevant: smallest change that counts, as a fraction of the larger end.
    """
    if samples.size < _DRIFT_FEWEST:
        return None
    blocks, length, median = _winsorised_blocks(samples)
    if float(blocks.max() - blocks.min()) <= relevant * abs(median):
        return None
    ranks = _centred_ranks(blocks)
    kind, shape, p_value = min(_fit_trend(ranks), _fit_shift(ranks), key=lambda fit: fit[2])
    fitted = float(blocks.mean()) + float(shape @ blocks) / float(shape @ shape) * shape[[0, -1]]
    first, last = map(float, fitted.clip(blocks.min(), blocks.max()))
    size = (last - first) / max(abs(first), abs(last))
    if p_value > chance or abs(size) < relevant:
        return None
    moved = abs(shape - shape[0]) >= abs(shape[-1] - shape[0]) / 2
    return Drift(kind=kind, size=size, p_value=p_value, start=int(moved.argmax()) * length)


def _winsorised_blocks(samples: Samples) -> tuple[Samples, int, float]:
    """Return block means of the samples clipped at p5 and p95, the block length, and the median."""
    np = load_numpy()
    n = samples.size
    ends = [n // 20, n // 2, n - 1 - n // 20]
    low, median, high = map(float, np.partition(samples, ends)[ends])
    return *reduce_to_block_means(np.clip(samples, low, high), _DRIFT_BLOCKS), median


def _centred_ranks(values: Samples) -> Samples:
    """Return centred ranks; ties share theirs."""
    np = load_numpy()
    ordered = np.sort(values)
    twice = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    ranks: Samples = (twice - twice.mean()) / 2
    return ranks


def _fit_trend(ranks: Samples) -> _Fit:
    """Fit a straight line and one that levels off after a quarter, as a warm-up does; return the better."""
    np = load_numpy()
    ramps = [np.maximum(0.0, ranks.size / part - np.arange(ranks.size)) for part in (1, 4)]
    shapes = [ramp - ramp.mean() for ramp in ramps]
    shape = max(shapes, key=lambda s: abs(float(s @ ranks)) / math.sqrt(float(s @ s)))
    return "trend", shape, 2 * len(shapes) * NORMAL.cdf(-_z_score(ranks, shape, used=2))


def _fit_shift(ranks: Samples) -> _Fit:
    """Fit a level shift between a tenth from the beginning and a tenth from the end.

    The p-value is that of the greatest standardised difference over all cuts (Miller and Siegmund
    1982, "Maximally selected chi square statistics").
    """
    np = load_numpy()
    m = ranks.size
    edge = max(2, m // 10)
    cuts = np.arange(edge, m - edge + 1)
    gains = np.abs(np.cumsum(ranks)[cuts - 1]) / np.sqrt(cuts * (m - cuts))
    cut = int(cuts[gains.argmax()])
    shape = np.where(np.arange(m) < cut, cut / m - 1, cut / m)
    z = max(1.0, _z_score(ranks, shape, used=3))
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    p_value = density * ((z - 1 / z) * 2 * math.log((m - edge) / edge) + 4 / z)
    return "level shift", shape, min(1.0, p_value)


def _z_score(ranks: Samples, shape: Samples, *, used: int) -> float:
    """Return the standardised effect of the shape as a normal deviate.

    The residuals underestimate their own autocorrelation; taking half of their effective size as degrees
    of freedom makes up for it (found by simulation of AR(1) series).
    """
    scale = math.sqrt(float(shape @ shape))
    effect = float(shape @ ranks) / scale
    residuals = ranks - effect / scale * shape
    power = float(residuals @ residuals)
    exact = power <= 1e-6 * effect**2
    time = 1.0 if exact else autocorrelation_time(residuals, used)
    df = max(1.0, ranks.size / time / 2 - used)
    t = abs(effect) / math.sqrt(max(power, 1e-6 * effect**2) * time / (ranks.size - used))
    return student_t.approximate_normal_deviate(t, df)

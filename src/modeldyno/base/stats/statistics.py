"""Statistics of samples: quantiles, confidence intervals, effective sample size, outliers.

Samples are one-dimensional float64 arrays in the order in which they were taken, not empty and
finite. Intervals are two-sided at 95 %. Samples taken one after another in one process are rarely
independent, so every interval allows for autocorrelation by an effective sample size; a series
without evidence of autocorrelation keeps the exact interval of independent samples.
"""

from __future__ import annotations

import math
from functools import lru_cache
from operator import mul
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeAlias

from modeldyno.base.stats import student_t

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    import numpy as np

Samples: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"
IntervalEnds: TypeAlias = tuple[float, float]
Statistic: TypeAlias = float | str  # "mean", or p for the p-quantile

NORMAL = NormalDist()
_TAIL = 0.025  # probability that a 95 % interval leaves out at either end
Z = NORMAL.inv_cdf(1 - _TAIL)
"""Half-width of a 95 % interval in standard errors."""
_MEDIAN = 0.5


@lru_cache(maxsize=1)
def load_numpy() -> ModuleType:
    """Import numpy on first use, not when the command line starts."""
    import numpy  # noqa: ICN001 - keeps start-up fast

    return numpy


def empty_samples(size: int) -> Samples:
    """Return an uninitialised array for so many samples."""
    array: Samples = load_numpy().empty(size)
    return array


def unpack_samples(block: bytes) -> Samples:
    """Return the little-endian float64 numbers of a block, read-only, without copying."""
    numbers: Samples = load_numpy().frombuffer(block, dtype="<f8")
    return numbers


def pool_runs(runs: Sequence[Samples]) -> Samples:
    """Join the samples of several processes into one array."""
    joined: Samples = runs[0] if len(runs) == 1 else load_numpy().concatenate(runs)
    return joined


def quantile(samples: Samples, p: float) -> float:
    """Return the nearest-rank quantile: the ceil(p n)-th smallest of n samples."""
    n = samples.size
    rank = math.ceil(round(p * n, 6))  # rounded, because 0.07 x 100 is a little more than 7
    index = min(n, max(1, rank)) - 1
    return float(load_numpy().partition(samples, index)[index])


# --- effective size ---------------------------------------------------------------------------------

_CERTIFIED_RISK = 0.01  # probability that a certified percentile has fewer than two samples beyond it
_LONGEST = 8192  # longer series are reduced to block means: same long-run variance, less work
_FEWEST_BLOCKS = 16  # needed to judge an autocorrelation
_FALSE_CORRELATION = 0.2
_LEVELS = (0.5, 0.9, 0.95, 0.99)  # where the events of rarer percentiles are looked for
_NEGLIGIBLE = 1.05  # autocorrelation time up to which independent samples keep their exact interval
_PATIENCE = 8  # orders without improvement after which the search for the best one ends


@lru_cache(maxsize=64)
def certified_floor(p: float) -> int:
    """Return the effective sample size from which the p-quantile is certified.

    The smallest n with P(Binomial(n, 1 - q) <= 1) <= 0.01, where q is the greater of p and 1 - p:
    with 99 % confidence at least two samples lie beyond the quantile. This is the early stopping of
    MLPerf LoadGen and Endpoints: 11, 64, 130, 662, 6636 for p50, p90, p95, p99, p99.9.
    """
    q = max(p, 1 - p)
    low, high = 1, 2
    while q ** (high - 1) * (q + high * (1 - q)) > _CERTIFIED_RISK:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if q ** (middle - 1) * (q + middle * (1 - q)) > _CERTIFIED_RISK:
            low = middle
        else:
            high = middle
    return high


def effective_size(samples: Samples, p: float | None = None) -> float:
    """Return the effective sample size: how many independent samples these are worth, at most their number.

    For the mean from the autocorrelation of the samples; for the p-quantile from that of its event, that a
    sample lies beyond it. A rare event hardly shows its own autocorrelation, so that of the commoner events
    that include it limits its size (see `_thinned_time`).
    """
    if p is None:
        return samples.size / _correlation_time(samples)
    events = _events_beyond(samples, p)
    share = float(events.mean()) or min(p, 1 - p)
    time = _correlation_time(events)
    for level in _LEVELS:
        if level < max(p, 1 - p):
            commoner = _events_beyond(samples, level if p >= _MEDIAN else 1 - level)
            thinned = _thinned_time(commoner, share)
            time = max(time, thinned if thinned > _NEGLIGIBLE else 1.0)
    return samples.size / time


def clustered_size(samples: Samples, blocks: Sequence[int], p: float | None = None) -> float:
    """Return the effective size of samples that depend on each other in ways that their order does not show.

    The gaps between the tokens of all streams of a server are such: a slow step of the server is in every
    stream, and a slow stream has many gaps. Blocks of time that no stream outlasts are nearly independent, so
    the variation between blocks says what the samples are worth: the variance of a share of them is that of
    a ratio over clusters of unequal size (Cochran 1977, Sampling Techniques, 9A.1), and the quantile is as
    certain as the share of samples beyond it (Woodruff 1952, "Confidence intervals for medians and other
    position measures").

    Args:
        samples: block after block.
        blocks: number of samples in each block, at least 1 in one of them.
        p: of the quantile whose size it is; None for the mean.
    """
    np = load_numpy()
    if len(blocks) < 2:
        return 1.0
    values = samples if p is None else _events_beyond(samples, p)
    counts, edges = np.array(blocks, float), np.concatenate([[0], np.cumsum(blocks)])
    sums = np.diff(np.concatenate([[0.0], np.cumsum(values)])[edges])
    excess = sums - values.mean() * counts
    size, degrees = _independent_windows(excess)
    variance = float(excess @ excess) / (counts.size - 1) / size / float(counts.mean()) ** 2
    variance *= (student_t.upper_tail_quantile(_TAIL, degrees) / Z) ** 2
    spread = float(values.var())
    return samples.size if spread >= variance * samples.size else max(1.0, spread / variance)


def _independent_windows(excess: Samples) -> tuple[float, float]:
    """Return the effective number of windows in succession, and the degrees of freedom of their variance.

    Fewer than 16 cannot show how they are correlated; they count as windows that share what lies across their
    common edge.
    """
    n = excess.size
    if n < _FEWEST_BLOCKS:
        return n / _SHARED, float(n - 1)
    size = max(_LEAST_WINDOWS, effective_size(excess))
    return size, _degrees_of_freedom(size, n)


def _events_beyond(samples: Samples, p: float) -> Samples:
    """Return 1 for each sample on the rarer side of the p-quantile, else 0."""
    limit = quantile(samples, p)
    beyond: Samples = (samples > limit if p >= _MEDIAN else samples <= limit).astype(float)
    return beyond


def _thinned_time(events: Samples, share: float) -> float:
    """Return the autocorrelation time of rarer events, if chance picks this share of the samples from events.

    Events that come in spells, such as calls beside a busy neighbour, pass their spells on to each part of
    themselves: if a share s of the samples is thinned to r, picked independently, an autocovariance c becomes
    (r / s)^2 c, and the time t becomes 1 + (t - 1) (r / s) (1 - s) / (1 - r). Rarer events may be more
    clustered than that, hardly less.
    """
    overall_share = float(events.mean())
    if not share <= overall_share < 1:
        return 1.0
    return 1 + (_correlation_time(events) - 1) * share / overall_share * (1 - overall_share) / (1 - share)


def _correlation_time(series: Samples) -> float:
    """Return the samples per independent sample: 1 without evidence of autocorrelation."""
    return autocorrelation_time(series) if _is_correlated(series) else 1.0


def _is_correlated(series: Samples) -> bool:
    """Check whether neighbours, or neighbouring block means at any scale, are significantly correlated.

    Von Neumann's lag-one test on means of 1, 4, 16 ... samples, at 20 % over all scales: taking
    independent samples for correlated ones widens an interval a little, the reverse breaks it.
    """
    scales = max(1, ((series.size // _FEWEST_BLOCKS).bit_length() + 1) // 2)
    limit = NORMAL.inv_cdf(1 - _FALSE_CORRELATION / scales)
    for scale in range(scales):
        series = _block_means(series, 4) if scale else series
        n = series.size
        deviations = series - series.mean()
        power = float(deviations @ deviations)
        if power <= 1e-24 * n * float(series[0]) ** 2:  # constant, but for rounding
            return False
        lag_one = float(deviations[1:] @ deviations[:-1]) / power
        if (lag_one + 1 / n) * math.sqrt(n) > limit:
            return True
    return False


def _block_means(series: Samples, length: int) -> Samples:
    """Return the means of consecutive blocks; a shorter rest is left out."""
    blocks = series.size // length
    means: Samples = series[: blocks * length].reshape(blocks, length).mean(axis=1)
    return means


def reduce_to_block_means(series: Samples, most: int) -> tuple[Samples, int]:
    """Return at most `most` block means, and the block length; length 1 leaves the series as it is."""
    length = -(-series.size // most)
    return (series if length == 1 else _block_means(series, length)), length


def autocorrelation_time(series: Samples, used: int = 1) -> float:
    """Return n var(mean) / var(sample), at least 1: the samples per independent sample.

    The greater of two estimates, as either errs on the low side: from the series, and from means of
    blocks half as long as the first estimate, which reveal slow correlation behind short noise.
    """
    blocks, length = reduce_to_block_means(series, _LONGEST)
    spread = float(blocks.var())
    time = max(1.0, _spectral_time(blocks, used))
    coarse = max(2, round(time / 2))
    means = _block_means(blocks, coarse)
    if means.size >= _FEWEST_BLOCKS and (coarse_spread := float(means.var())):
        time = max(time, coarse * coarse_spread / spread * _spectral_time(means, used))
    return min(max(1.0, length * spread / float(series.var()) * time), float(series.size))


def _spectral_time(series: Samples, used: int) -> float:
    """Return the autocorrelation time of a fitted autoregression, its order chosen by AIC.

    The long-run variance is the spectrum at zero of the fitted process, as in coda's effectiveSize.
    The sum of the coefficients is corrected for its small-sample bias, -(used + 3 rho) / n, `used`
    being the parameters of the level (Kendall 1954; Marriott and Pope 1954).
    """
    n = series.size
    coefficients, innovation, variance = _autoregression(series - series.mean())
    total = sum(coefficients)
    total = min(total + (used + 3 * total) / n, 1 - 1 / n)
    return innovation / variance / (1 - total) ** 2


def _autoregression(deviations: Samples) -> tuple[list[float], float, float]:
    """Fit by Levinson-Durbin; return the coefficients and the variances of innovations and series."""
    n = deviations.size
    covariances = [float(deviations @ deviations) / n]
    best: list[float] = []
    fitted: list[float] = []
    variance = best_variance = covariances[0]
    lowest = n * math.log(variance)
    for order in range(1, min(int(10 * math.log10(n)), n // 4) + 1):
        covariances.append(float(deviations[order:] @ deviations[:-order]) / n)
        explained = sum(map(mul, fitted, covariances[order - 1 : 0 : -1]))
        reflection = (covariances[order] - explained) / variance
        fitted = [a - reflection * b for a, b in zip(fitted, fitted[::-1], strict=True)]
        fitted.append(reflection)
        variance *= 1 - reflection**2
        if variance <= 1e-12 * covariances[0] or order > len(best) + _PATIENCE:
            break
        criterion = n * math.log(variance) + 2 * order
        if criterion < lowest:
            lowest, best, best_variance = criterion, fitted, variance
    return best, best_variance, covariances[0]


# --- intervals within a process ---------------------------------------------------------------------


def mean_interval(samples: Samples, size: float | None = None) -> IntervalEnds:
    """Return the 95 % interval of the mean, by Student's t on the effective sample size.

    Args:
        samples: in the order taken.
        size: their effective size, where already known.
    """
    if samples.size == 1:
        return -math.inf, math.inf
    size = effective_size(samples) if size is None else size
    mean = float(samples.mean())
    half = (
        student_t.upper_tail_quantile(_TAIL, _degrees_of_freedom(size, samples.size))
        * float(samples.std(ddof=1))
        / math.sqrt(size)
    )
    # The mean of samples that are never negative is not negative.
    least = 0.0 if float(samples.min()) >= 0 else -math.inf
    return max(least, mean - half), mean + half


def quantile_interval(samples: Samples, p: float, size: float | None = None) -> IntervalEnds:
    """Return the 95 % interval of the p-quantile from binomial order statistics.

    Correlated samples count as fewer trials, and fewer still because their effective size is itself
    estimated from the rarer side of the quantile. An end is infinite where no rank exists. Below the
    certified floor the tail end is infinite, unless there are so many samples that one beyond the quantile
    would most likely have been seen (see `extreme_floor`): then it is the most extreme sample, extended the
    farther the fewer independent samples there are (see `_tail_factor`). Such a percentile is not
    certified, yet can satisfy a bound that all samples keep.

    Args:
        samples: in the order taken.
        p: a fraction between 0 and 1.
        size: their effective size for this quantile, where already known.
    """
    n = samples.size
    size = effective_size(samples, p) if size is None else size
    shrinkage = (
        1.0
        if size == n
        else Z / student_t.upper_tail_quantile(_TAIL, _degrees_of_freedom(2 * min(p, 1 - p) * size, n))
    )
    bounds = rank_interval(samples, p, max(1, int(size * shrinkage**2)))
    # However uncertain the size: that all samples lie on the rarer side of the quantile is hardly possible.
    if size >= 2 * math.ceil(math.log(_TAIL) / math.log(min(p, 1 - p))):
        low, high = float(samples.min()), float(samples.max())
        bounds = (max(bounds[0], low), bounds[1]) if p >= _MEDIAN else (bounds[0], min(bounds[1], high))
    if size >= certified_floor(p):
        return bounds
    # The few samples in the tail hardly show their own autocorrelation: that of all samples limits it, too.
    overall, floor = effective_size(samples), extreme_floor(p)
    if n < floor or overall < _LEAST_OVERALL * floor:
        return _open_tail(bounds, p)
    reach = _tail_factor(min(size, overall), p)
    if p >= _MEDIAN:
        return bounds[0], _moved_up(float(samples.max()), reach)
    return -_moved_up(-float(samples.min()), reach), bounds[1]


def rank_interval(samples: Samples, p: float, trials: int) -> IntervalEnds:
    """Return the 95 % interval of the p-quantile by binomial ranks; an end without a rank is infinite.

    Args:
        samples: in any order.
        p: a fraction between 0 and 1.
        trials: independent ones that the samples are worth, at least 1.
    """
    n = samples.size
    lower, upper = _binomial_ranks(trials, p)
    indices = [
        max(0, math.floor((lower - 0.5) * n / trials - 0.5)),
        min(n - 1, math.ceil((upper - 0.5) * n / trials - 0.5)),
    ]
    low, high = map(float, load_numpy().partition(samples, indices)[indices])
    return low if lower >= 1 else -math.inf, high if upper <= trials else math.inf


def ratio_interval(amounts: Samples, counts: Samples) -> IntervalEnds:
    """Return the 95 % interval of the ratio of two sums over windows, such as seconds of work per request.

    Fieller's interval (1954, "Some problems in interval estimation") of the ratio of two means, on the
    effective number of windows: that of what each amount exceeds the ratio times its count by. With equal
    counts it is the interval of a mean, with equal amounts the inverse of one. Unlike the linearised interval
    of a ratio (Cochran 1977, Sampling Techniques, chapter 6) it is not too narrow for few windows of unequal
    counts. It has no upper end if the mean count may be 0.

    Args:
        amounts: the sum of each window, in the order taken.
        counts: what each is divided by; not negative, and not all 0.
    """
    n, least = amounts.size, 0.0 if float(amounts.min()) >= 0 else -math.inf
    if n == 1:
        return least, math.inf
    amount, count = float(amounts.mean()), float(counts.mean())
    ratio = float(amounts.sum()) / float(counts.sum())
    excess = amounts - ratio * counts
    size, degrees = _independent_windows(excess)
    scale = student_t.upper_tail_quantile(_TAIL, degrees) ** 2 / size
    of_counts, joint, of_amounts = _second_moments(amounts - amount, counts - count)
    curvature = count**2 - scale * of_counts
    spread = count**2 * float(excess @ excess) / (n - 1) - scale * (of_amounts * of_counts - joint**2)
    middle, root = amount * count - scale * joint, math.sqrt(scale * max(0.0, spread))
    if curvature <= 0:
        bounded = least == 0 and spread > 0 and curvature < 0
        return (max(0.0, (middle - root) / curvature) if bounded else least), math.inf
    return max(least, min(ratio, (middle - root) / curvature)), max(ratio, (middle + root) / curvature)


_LEAST_WINDOWS = 6.0
"""Least effective number of 16 windows and more: of one long trend the interval is as wide as its range."""
_SHARED = 1.5
"""Windows that are worth one independent one, if neighbours share what lies across their edge: pi / 2 if all
that is counted lasts as long as a window, on average over where the edges fall, and 1 if it is short."""


def _second_moments(amounts: Samples, counts: Samples) -> tuple[float, float, float]:
    """Return the variance of the counts, the covariance, and the variance of the amounts, from deviations."""
    degrees = amounts.size - 1
    return (
        float(counts @ counts) / degrees,
        float(amounts @ counts) / degrees,
        float(amounts @ amounts) / degrees,
    )


def share_interval(count: int, of: int) -> IntervalEnds:
    """Return the 95 % Wilson interval of a proportion, `count` of `of`."""
    share = count / of
    middle = share + Z * Z / (2 * of)
    half = Z * math.sqrt((share * (1 - share) + Z * Z / (4 * of)) / of)
    return (middle - half) / (1 + Z * Z / of), (middle + half) / (1 + Z * Z / of)


def extreme_floor(p: float) -> int:
    """Return how many independent samples have one beyond the p-quantile with 97.5 % probability.

    All n lie on the near side of the quantile with probability q^n, where q is the greater of p and
    1 - p, for any distribution (Wilks 1941, Determination of Sample Sizes for Setting Tolerance Limits).
    It is at most 2.5 %, as at any end of a 95 % interval, from 6, 36, 72, 368 and 3,688 samples on, for p50,
    p90, p95, p99 and p99.9.
    """
    return math.ceil(math.log(_TAIL) / math.log(max(p, 1 - p)))


_LEAST_OVERALL = 1 / 3
"""The effective size of all samples must be at least this share of `extreme_floor`: else slow spells may
outlast the samples."""


def _tail_factor(size: float, p: float) -> float:
    """Return the factor by which the p-quantile may exceed the most extreme sample.

    With `size` independent samples, the probability mass beyond all of them is below 1 - 0.025^(1/size)
    with 97.5 % confidence. Where that is more than the mass beyond the quantile, the quantile may lie
    farther out than all samples: by at most the ratio of the two, if the tail is no heavier than that of a
    Pareto distribution of index 1, whose mean is infinite already.
    """
    beyond: float = 1 - _TAIL ** (1 / size)
    return max(1.0, beyond / min(p, 1 - p))


def _moved_up(extreme: float, reach: float) -> float:
    """Return a number moved up by a factor; a negative one moves towards zero."""
    return extreme * reach if extreme >= 0 else extreme / reach


def _degrees_of_freedom(size: float, n: int) -> float:
    """Return the degrees of freedom of a variance: fewer where the effective size is an estimate."""
    return size - 1 if size == n else size / 2 - 1


def _open_tail(bounds: IntervalEnds, p: float) -> IntervalEnds:
    """Return the interval unbounded on the side of the tail."""
    return (bounds[0], math.inf) if p >= _MEDIAN else (-math.inf, bounds[1])


@lru_cache(maxsize=256)
def _binomial_ranks(n: int, p: float) -> tuple[int, int]:
    """Return the ranks, from 1, between which the quantile lies; 0 and n + 1 where no rank bounds it.

    The lower is the greatest l with P(B < l) <= 0.025, the upper the least u with
    P(B >= u) <= 0.025, B being Binomial(n, p).
    """
    np = load_numpy()
    spread = 8 * math.sqrt(n * p * (1 - p)) + 8
    first, last = max(0, int(n * p - spread)), min(n, int(n * p + spread))
    k = np.arange(first, last)
    start = math.lgamma(n + 1) - math.lgamma(first + 1) - math.lgamma(n - first + 1)
    start += first * math.log(p) + (n - first) * math.log1p(-p)
    steps = np.log((n - k) / (k + 1)) + math.log(p / (1 - p))
    mass = np.exp(start + np.concatenate(([0.0], np.cumsum(steps))))  # P(B = first ... last)
    lower = first + int((np.cumsum(mass) <= _TAIL).sum())
    upper = last + 1 - int((np.cumsum(mass[::-1]) <= _TAIL).sum())
    return lower, upper


# --- intervals over processes -----------------------------------------------------------------------

_BOOTSTRAP = 5  # least processes for a bootstrap
_RESAMPLES = 10_000
_GRID = 512


def pooled_interval(
    runs: Sequence[Samples], statistic: Statistic, sizes: Sequence[float] | None = None
) -> IntervalEnds:
    """Return the 95 % interval of ``"mean"`` or of a p-quantile over fresh processes.

    Five or more: a bootstrap over processes. Two to four: from the lowest to the highest end of the
    processes' own intervals, which encloses the range of their statistics (the range alone covers a
    p99 in fewer than half of the cases). One: the interval within the run.

    Args:
        runs: samples of each process, in the order taken.
        statistic: ``"mean"``, or the p of a quantile.
        sizes: the effective size of each run for this statistic, where already known.
    """
    if sizes is None:
        sizes = [effective_size(run, None if isinstance(statistic, str) else statistic) for run in runs]
    if len(runs) < _BOOTSTRAP:
        alone = len(runs) == 1
        own = [
            _own_interval(run, statistic, size, alone=alone) for run, size in zip(runs, sizes, strict=True)
        ]
        bounds = min(low for low, _ in own), max(high for _, high in own)
    else:
        bounds = _bootstrap(runs, statistic)
    if isinstance(statistic, str) or len(runs) == 1:
        return bounds
    return bounds if sum(sizes) >= certified_floor(statistic) else _open_tail(bounds, statistic)


def _own_interval(run: Samples, statistic: Statistic, size: float, *, alone: bool) -> IntervalEnds:
    """Return the interval within a process; a single sample of one of several processes is exact."""
    if run.size == 1 and not alone:
        return float(run[0]), float(run[0])
    if isinstance(statistic, str):
        return mean_interval(run, size)
    return quantile_interval(run, statistic, size)


def _bootstrap(runs: Sequence[Samples], statistic: Statistic) -> IntervalEnds:
    """Return the expanded percentile interval of processes drawn with replacement.

    Expanded (Hesterberg 2015, "What teachers should know about the bootstrap"): with k processes
    the tail is Phi(-t sqrt(k / (k - 1))) instead of 2.5 %; plain, five would cover only 84 %.
    """
    np = load_numpy()
    k = len(runs)
    weights = _resamples(k)
    if isinstance(statistic, str):
        sums = np.array([run.sum() for run in runs])
        replicates = (weights @ sums) / (weights @ np.array([run.size for run in runs]))
    else:
        replicates = _resampled_quantiles(runs, weights, statistic)
    tail = NORMAL.cdf(-math.sqrt(k / (k - 1)) * student_t.upper_tail_quantile(_TAIL, k - 1))
    cut = int(tail * _RESAMPLES)
    ordered = np.sort(replicates)
    return float(ordered[cut]), float(ordered[-1 - cut])


@lru_cache(maxsize=4)
def _resamples(k: int) -> Samples:
    """Return how often each of k processes is in each resample, (_RESAMPLES, k).

    As floats, still exact: their product is some twenty times as fast as one of integers.
    """
    drawn: Samples = load_numpy().random.default_rng(k).multinomial(k, [1 / k] * k, size=_RESAMPLES)
    return drawn.astype(float)


def _resampled_quantiles(runs: Sequence[Samples], weights: Samples, p: float) -> Samples:
    """Return the quantile of each resample, on a grid of samples evenly spaced in rank.

    The quantile of a mixture lies between the least and the greatest of its parts' quantiles, so
    the grid spans only these. weights: how often each process is in each resample.
    """
    np = load_numpy()
    own = [quantile(run, p) for run in runs]
    between = [np.sort(run[(run >= min(own)) & (run <= max(own))]) for run in runs]
    candidates = np.sort(np.concatenate(between))
    grid: Samples = candidates[np.linspace(0, candidates.size - 1, _GRID).round().astype(int)]
    below = [int((run < min(own)).sum()) for run in runs]
    counts = np.array([np.searchsorted(b, grid, side="right") for b in between], float) + np.c_[below]
    sizes = np.array([run.size for run in runs])
    ranks = np.ceil(np.round(p * (weights @ sizes), 6))
    quantiles: Samples = grid[(weights @ counts >= ranks[:, None]).argmax(axis=1)]
    return quantiles


# --- outliers and drift -----------------------------------------------------------------------------


def count_outliers(samples: Samples) -> int:
    """Count the samples farther than ten robust standard deviations from the median.

    The modified Z-score on the median absolute deviation, with hyperfine's threshold of 14.826 such
    deviations. It is 0 where more than half of the samples are equal, and the mean absolute
    deviation takes its place (Iglewicz and Hoaglin 1993, "How to detect and handle outliers").
    """
    np = load_numpy()
    distances = np.abs(samples - np.median(samples))
    deviation = 1.4826 * float(np.median(distances)) or 1.2533 * float(distances.mean())
    return int((distances > 10 * deviation).sum())

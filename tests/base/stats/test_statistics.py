from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter
from scipy.stats import binom

from modeldyno.base.stats import statistics
from modeldyno.base.stats.drift import find_drift

if TYPE_CHECKING:
    from modeldyno.base.stats.statistics import Samples

RNG = np.random.default_rng(0)


def lognormal(n: int, sigma: float = 0.1, rho: float = 0.0, seed: int = 1) -> Samples:
    noise = np.random.default_rng(seed).standard_normal(n) * math.sqrt(1 - rho**2)
    noise[0] /= math.sqrt(1 - rho**2)
    durations: Samples = 0.01 * np.exp(sigma * lfilter([1.0], [1.0, -rho], noise))
    return durations


DURATIONS = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60).map(np.array)
FRACTIONS = st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.9, 0.95, 0.99])

AWKWARD = {
    "one": np.array([0.01]),
    "two": np.array([0.01, 0.02]),
    "constant": np.full(500, 0.1),
    "zero": np.zeros(50),
    "two values": np.where(RNG.random(300) < 0.5, 0.01, 0.02),
    "one odd value": np.where(np.arange(300) == 7, 1.0, 0.01),
    "alternating": np.where(np.arange(300) % 2 == 0, 0.01, 0.02),
    "halves": np.where(np.arange(300) < 150, 0.01, 0.02),
    "coarse clock": np.round(RNG.exponential(1.0, 1000)) * 1e-3,
    "straight line": np.linspace(1.0, 2.0, 100),
    "random walk": 10 + np.cumsum(RNG.standard_normal(2000)) / 50,
    "around zero": np.linspace(-1.0, 1.0, 101),
    "few": np.linspace(1.0, 2.0, 9),
    "period": np.tile([1.0, 1.0, 1.0, 2.0], 100),
}


@pytest.mark.parametrize(
    ("p", "floor"), [(0.5, 11), (0.75, 24), (0.9, 64), (0.95, 130), (0.99, 662), (0.999, 6636), (0.1, 64)]
)
def test_the_certified_floors_are_those_of_mlperf(p: float, floor: int) -> None:
    """The floors are those of LoadGen's early stopping, and alike at both tails."""
    assert statistics.certified_floor(p) == floor


def test_the_quantile_is_by_nearest_rank() -> None:
    """The p-quantile of n samples is the ceil(p n)-th smallest, whatever the rounding of p n."""
    samples = np.arange(100.0, 0.0, -1.0)
    assert [statistics.quantile(samples, p) for p in (0.07, 0.5, 0.501, 0.99, 0.999)] == [7, 50, 51, 99, 100]


@settings(deadline=None)  # a shared machine may pause any example
@given(samples=DURATIONS, p=FRACTIONS, seed=st.integers(0, 99))
def test_the_quantile_does_not_depend_on_the_order(samples: Samples, p: float, seed: int) -> None:
    """Shuffling the samples leaves every quantile as it was."""
    shuffled = np.random.default_rng(seed).permutation(samples)
    assert statistics.quantile(shuffled, p) == statistics.quantile(samples, p)


@settings(deadline=None)  # a shared machine may pause any example
@given(samples=DURATIONS, p=FRACTIONS)
def test_an_interval_contains_its_estimate(samples: Samples, p: float) -> None:
    """The estimate lies within its interval, whatever the samples."""
    low, high = statistics.quantile_interval(samples, p)
    assert low <= statistics.quantile(samples, p) <= high
    low, high = statistics.mean_interval(samples)
    assert low <= float(samples.mean()) <= high


@settings(deadline=None)  # a shared machine may pause any example
@given(samples=DURATIONS, p=FRACTIONS, power=st.integers(-30, 30))
def test_an_interval_scales_with_its_samples(samples: Samples, p: float, power: int) -> None:
    """In another unit the intervals are the same durations."""
    unit = 2.0**power
    low, high = statistics.quantile_interval(samples, p)
    assert statistics.quantile_interval(unit * samples, p) == (unit * low, unit * high)
    low, high = statistics.mean_interval(samples)
    assert statistics.mean_interval(unit * samples) == (unit * low, unit * high)


@settings(deadline=None)  # a shared machine may pause any example
@given(runs=st.lists(DURATIONS, min_size=1, max_size=7), statistic=st.sampled_from(["mean", 0.5, 0.9]))
def test_an_interval_over_processes_is_in_order(runs: list[Samples], statistic: str | float) -> None:
    """The ends of an interval over processes are in order, whatever their sizes."""
    low, high = statistics.pooled_interval(runs, statistic)
    assert low <= high


@pytest.mark.parametrize("samples", AWKWARD.values(), ids=AWKWARD)
def test_awkward_samples_have_statistics(samples: Samples) -> None:
    """No samples, however few, tied or smooth, lead to an exception, a warning or NaN."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        numbers = [
            *statistics.mean_interval(samples),
            *(end for p in (0.01, 0.5, 0.99) for end in statistics.quantile_interval(samples, p)),
            *(end for count in (2, 5) for end in statistics.pooled_interval([samples] * count, 0.5)),
            *statistics.pooled_interval([samples] * 6, "mean"),
            statistics.count_outliers(samples),
        ]
        drift = find_drift(samples)
        sizes = [statistics.effective_size(samples, p) for p in (None, 0.5, 0.9)]
    assert not any(math.isnan(number) for number in numbers)
    assert all(1 <= size <= samples.size for size in sizes)
    assert drift is None or (not math.isnan(drift.size) and 0 <= drift.start < samples.size)


@pytest.mark.parametrize(
    ("n", "p"), [(1, 0.5), (11, 0.5), (100, 0.5), (130, 0.95), (5000, 0.99), (10**6, 0.999)]
)
def test_the_ranks_are_those_of_the_binomial_distribution(n: int, p: float) -> None:
    """Each rank leaves at most 2.5 % beyond it, and its neighbour further in would leave more."""
    lower, upper = statistics._binomial_ranks(n, p)
    assert binom.cdf(lower - 1, n, p) <= 0.025 < binom.cdf(lower, n, p)
    assert binom.sf(upper - 1, n, p) <= 0.025 < binom.sf(upper - 2, n, p)


def test_a_percentile_of_too_few_samples_can_be_broken_but_never_held() -> None:
    """Where one beyond the quantile need not have been seen, the end on the side of the tail is infinite."""
    samples = lognormal(350)
    low, high = statistics.quantile_interval(samples, 0.99)
    assert 0 < low < math.inf
    assert high == math.inf
    low, high = statistics.quantile_interval(samples, 0.01)
    assert low == -math.inf
    assert 0 < high < math.inf
    assert all(map(math.isfinite, statistics.quantile_interval(lognormal(700), 0.99)))


def test_a_percentile_that_is_no_claim_is_bounded_by_the_slowest_of_enough_samples() -> None:
    """With 72 independent samples the chance that none lies beyond the p95 is 2.5 %, whatever they are."""
    assert [statistics.extreme_floor(p) for p in (0.5, 0.1, 0.95, 0.99, 0.999)] == [6, 36, 72, 368, 3688]
    samples = np.random.default_rng(3).permutation(100).astype(float)
    assert statistics.quantile_interval(samples, 0.95)[1] == 99
    assert statistics.quantile_interval(samples, 0.05)[0] == 0
    assert statistics.quantile_interval(lognormal(100, rho=0.9), 0.95)[1] == math.inf


def test_samples_that_seem_alike_by_chance_do_not_leave_a_percentile_open() -> None:
    """Of 100 independent samples the end is finite in nearly all runs, and never below the slowest."""
    runs = [lognormal(100, seed=seed) for seed in range(200)]
    ends = [statistics.quantile_interval(run, 0.95)[1] for run in runs]
    assert np.mean(np.isfinite(ends)) > 0.97
    assert all(end >= run.max() for end, run in zip(ends, runs, strict=True))
    assert max(ends) < 20 * max(run.max() for run in runs)
    lows = [statistics.quantile_interval(-run, 0.05)[0] for run in runs]
    assert np.mean(np.isfinite(lows)) > 0.97
    assert all(low <= -run.max() for low, run in zip(lows, runs, strict=True))


def test_what_is_beyond_the_slowest_sample_grows_as_they_are_worth_fewer() -> None:
    """72 independent samples bound the p95 themselves; 24 do at 2.8 times the slowest, 15 at 4.4 times it."""
    assert [round(statistics._tail_factor(size, 0.95), 1) for size in (72, 24, 15)] == [1.0, 2.8, 4.4]
    assert (statistics._moved_up(2.0, 4.0), statistics._moved_up(-2.0, 4.0)) == (8.0, -0.5)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8, 0.95])
def test_spells_of_slow_samples_are_not_ruled_out_by_a_run_that_saw_none(rho: float) -> None:
    """Where 6 % take a thousand times as long, in spells, the end is below that in no more than 2.5 %."""
    edge = float(np.exp(statistics.NORMAL.inv_cdf(0.94)))
    scale, spread = _of_lognormal()
    ends = []
    for seed in range(600):
        ranks = (lognormal(100, rho=rho, seed=seed) / scale) ** (1 / spread)  # lognormal of spread 1
        ends.append(statistics.quantile_interval(np.where(ranks > edge, 1000.0, 1 + ranks / 100), 0.95)[1])
    assert np.mean(np.array(ends) < 1000) <= 0.025


def _of_lognormal() -> tuple[float, float]:
    samples = lognormal(200_000)
    return float(np.median(samples)), float(np.log(samples).std())


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.2, 0.5, 0.9])
def test_the_slowest_sample_is_a_bound_of_the_percentile_that_it_is_taken_for(rho: float) -> None:
    """Among 2,000 runs of 80 and of 100 samples it lies below the p95 in no more than 2.5 %."""
    truth = float(np.exp(statistics.NORMAL.inv_cdf(0.95) * float(np.log(lognormal(200_000)).std())))
    scale = float(np.median(lognormal(200_000)))
    for n in (80, 100):
        highs = [statistics.quantile_interval(lognormal(n, rho=rho, seed=i), 0.95)[1] for i in range(2000)]
        assert np.mean(np.array(highs) < truth * scale) <= 0.025


def test_the_interval_of_a_share_is_wilsons() -> None:
    """It has the share within, also where nothing was counted."""
    assert statistics.share_interval(0, 100) == pytest.approx((0, 0.03699), abs=1e-4)
    assert statistics.share_interval(10, 100) == pytest.approx((0.0552, 0.1744), abs=1e-4)


def test_the_interval_of_a_ratio_is_that_of_a_mean_where_one_side_is_equal() -> None:
    """With equal counts it is the mean's interval, with equal amounts the inverse of one."""
    samples = np.random.default_rng(1).gamma(4, 1, 40)
    low, high = statistics.mean_interval(samples)
    assert statistics.ratio_interval(samples, np.full(40, 2.0)) == pytest.approx((low / 2, high / 2))
    assert statistics.ratio_interval(np.full(40, 3.0), samples) == pytest.approx((3 / high, 3 / low))


def gaps_of_a_batch(
    rng: np.random.Generator, streams: int, steps: int, tokens: int
) -> tuple[Samples, Samples]:
    """Simulate a server that gives every stream a token in each step: gaps by time, and when they ended.

    A step is longer while a new stream begins, and steps drift over time; streams have `tokens` on average.
    """
    left, began = rng.geometric(1 / tokens, streams), np.full(streams, True)
    drift = lfilter([1.0], [1.0, -0.99], rng.standard_normal(steps) * 0.05 * math.sqrt(1 - 0.99**2))
    times, now, gaps, when = np.zeros(streams), 0.0, [], []
    for noise in drift + rng.normal(0, 0.08, steps):
        now += 0.02 * math.exp(noise) * (1 + 0.8 * int(began.sum()))
        gaps += (now - times[~began]).tolist()
        when += [now] * int((~began).sum())
        times[:] = now
        left -= 1
        began = left <= 0
        left[began] = rng.geometric(1 / tokens, int(began.sum()))
    return np.array(gaps), np.array(when)


@pytest.mark.no_cover
@pytest.mark.parametrize("runs", [150, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("steps", "parts"), [(1500, 7), (6000, 64)])
def test_intervals_of_gaps_that_streams_share_cover_the_truth(steps: int, parts: int, runs: int) -> None:
    """The median, p95 and p99 of gaps by blocks; to count gaps one by one would cover four times in five."""
    tokens = 60 if parts < 16 else 20
    fractions = (0.5, 0.95, 0.99)
    many = [gaps_of_a_batch(np.random.default_rng([seed, 1]), 8, 6000, tokens)[0] for seed in range(40)]
    truth = np.quantile(np.concatenate(many), fractions)
    covered = np.zeros(3)
    for seed in range(runs):
        gaps, when = gaps_of_a_batch(np.random.default_rng(seed), 8, steps, tokens)
        blocks = np.histogram(when, np.linspace(when[0], when[-1], parts + 1))[0].tolist()
        for place, p in enumerate(fractions):
            size = statistics.clustered_size(gaps, blocks, p)
            low, high = statistics.pooled_interval([gaps], p, [size])
            covered[place] += low <= truth[place] <= high
    assert (covered / runs >= 0.94 - 3 * math.sqrt(0.94 * 0.06 / runs)).all(), covered / runs


def test_samples_in_one_block_are_worth_one() -> None:
    """Nothing shows how they vary; equal samples are worth their number, and no sample more than itself."""
    samples = lognormal(100)
    assert statistics.clustered_size(samples, [100]) == 1.0
    assert statistics.clustered_size(np.ones(100), [50, 50]) == 100
    assert statistics.clustered_size(samples, [1] * 100, 0.5) == pytest.approx(100, rel=0.2)
    assert 1 <= statistics.clustered_size(np.repeat([0.0, 1.0], 50), [50, 50]) < 2


@pytest.mark.no_cover
@pytest.mark.parametrize(("count", "rho"), [(4, 0.0), (8, 0.0), (40, 0.0), (80, 0.6)])
def test_the_interval_of_a_ratio_covers_the_truth(count: int, rho: float) -> None:
    """Of unequal counts, and amounts that depend on them, 95 in 100 hold 0.5; alike windows must be many."""
    rng, covered, loads = np.random.default_rng(count), 0, 1000
    for _ in range(loads):
        counts = np.asarray(rng.poisson(30, count) + 1.0, float)
        noise: Samples = lfilter([1.0], [1.0, -rho], rng.standard_normal(count + 20))[20:]
        low, high = statistics.ratio_interval(counts * (0.5 + 0.1 * noise), counts)
        covered += low <= 0.5 <= high
    assert covered / loads > 0.95 - 3 * (0.95 * 0.05 / loads) ** 0.5


def test_the_interval_of_a_ratio_is_open_where_nothing_bounds_it() -> None:
    """One window shows no variation, a count that may be 0 no upper end, negative amounts no lower one.

    Of one long trend it is as wide as its range.
    """
    one = np.array([1.0])
    assert statistics.ratio_interval(one, one) == (0.0, math.inf)
    assert statistics.ratio_interval(-one, one) == (-math.inf, math.inf)
    low, high = statistics.ratio_interval(np.ones(3), np.array([0.0, 0.0, 1.0]))
    assert (0 < low < 3, high) == (True, math.inf)
    assert statistics.ratio_interval(np.array([-1.0, 2.0, 1.0]), np.array([0.0, 0.0, 1.0]))[1] == math.inf
    assert statistics.ratio_interval(np.arange(20.0), np.ones(20)) == pytest.approx((0, 19), abs=1.5)
    assert statistics.ratio_interval(np.full(5, 2.0), np.full(5, 0.1)) == pytest.approx((20, 20))


def test_one_sample_bounds_nothing() -> None:
    """The interval of one sample is the whole line."""
    assert statistics.mean_interval(np.array([1.0])) == (-math.inf, math.inf)
    assert statistics.quantile_interval(np.array([1.0]), 0.5) == (-math.inf, math.inf)


def test_independent_samples_count_in_full() -> None:
    """Samples without evidence of correlation have the exact interval of independent ones."""
    samples = lognormal(100)
    assert statistics.effective_size(samples) == 100
    ordered = np.sort(samples)
    assert statistics.quantile_interval(samples, 0.5) == (ordered[39], ordered[60])


@pytest.mark.parametrize("n", [3000, 100_000])
@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_the_effective_size_of_correlated_samples_is_theirs(n: int, rho: float) -> None:
    """The effective size of an AR(1) series is about n (1 - rho) / (1 + rho), also when thinned."""
    result = [statistics.effective_size(lognormal(n, rho=rho, seed=seed)) for seed in range(20)]
    assert float(np.median(result)) == pytest.approx(n * (1 - rho) / (1 + rho), rel=0.15)


def test_slow_noise_behind_fast_noise_is_seen() -> None:
    """Correlation too weak to show between neighbours still lowers the effective size."""
    sizes = []
    for seed in range(20):
        slow = np.log(lognormal(20_000, sigma=1.0, rho=0.995, seed=seed))
        fast = np.log(lognormal(20_000, sigma=3.0, seed=seed + 100))
        sizes.append(statistics.effective_size(np.exp(0.01 * (slow + fast))))
    # var(slow) = 1, var(fast) = 9, and the autocorrelation time of the slow part is 399.
    assert float(np.median(sizes)) == pytest.approx(20_000 / (0.1 * 399 + 0.9), rel=0.35)


def in_spells(n: int, seed: int, share: float = 0.2, length: float = 300.0) -> Samples:
    """Return calls of which a share takes four times as long, in spells of so many calls on average."""
    rng = np.random.default_rng(seed)
    between = length * (1 - share) / share
    slow = [rng.random() < share]
    for chance in rng.random(n - 1):
        slow.append(slow[-1] ^ (chance < 1 / (length if slow[-1] else between)))
    return np.exp(0.1 * rng.standard_normal(n)) * np.where(slow, 4.0, 1.0)


@pytest.mark.no_cover
def test_a_rare_percentile_has_the_spells_of_a_common_one() -> None:
    """Where a p90 has too few effective samples, the p99 has too, and its interval covers it.

    Of 7,000 calls in some five slow spells, 70 lie beyond the p99, and do not show that they come in spells.
    """
    truth = 4 * math.exp(0.1 * statistics.NORMAL.inv_cdf(0.95))  # 5 % of the slow calls lie beyond it
    runs = [in_spells(7000, seed) for seed in range(60)]
    sizes = [[statistics.effective_size(run, p) for p in (0.9, 0.99)] for run in runs]
    ends = [statistics.quantile_interval(run, 0.99, size) for run, (_, size) in zip(runs, sizes, strict=True)]

    assert not any(common < 64 and rare >= 662 for common, rare in sizes)
    assert np.mean([low <= truth <= high for low, high in ends]) >= 0.9


def test_a_rare_percentile_of_independent_samples_keeps_its_size() -> None:
    """What is measured at commoner percentiles takes less than 5 % of the samples away."""
    kept = [statistics.effective_size(lognormal(7000, seed=seed), 0.99) for seed in range(40)]
    assert np.mean(kept) > 0.95 * 7000
    low = [statistics.effective_size(-lognormal(7000, seed=seed), 0.01) for seed in range(40)]
    assert low == pytest.approx(kept, rel=0.02)


def test_two_to_four_processes_have_their_range() -> None:
    """With two to four processes the interval is the range of their own statistics."""
    runs = [np.full(20, level) for level in (3.0, 1.0, 2.0)]
    assert statistics.pooled_interval(runs, "mean") == (1.0, 3.0)
    assert statistics.pooled_interval(runs, 0.5) == (1.0, 3.0)
    assert statistics.pooled_interval(runs, 0.9) == (1.0, math.inf)


def test_one_process_has_its_own_interval() -> None:
    """With one process the interval is that within the run."""
    run = lognormal(200)
    assert statistics.pooled_interval([run], "mean") == statistics.mean_interval(run)
    assert statistics.pooled_interval([run], 0.9) == statistics.quantile_interval(run, 0.9)


@pytest.mark.no_cover
@pytest.mark.parametrize("processes", [5, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("statistic", ["mean", 0.5])
def test_the_bootstrap_over_processes_covers_the_truth(processes: int, statistic: str | float) -> None:
    """Where processes differ more than their samples, the interval covers the level of all."""
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(60):
        levels = 1 + 0.1 * rng.standard_normal((processes, 1))
        runs = list(levels + 0.02 * rng.standard_normal((processes, 60)))
        low, high = statistics.pooled_interval(runs, statistic)
        hits += low <= 1 <= high
    assert 53 <= hits <= 60  # 95 % and less than three standard errors


def test_the_bootstrap_is_repeatable() -> None:
    """The same samples always give the same interval."""
    runs = [lognormal(100, seed=seed) for seed in range(6)]
    assert statistics.pooled_interval(runs, 0.5) == statistics.pooled_interval(runs, 0.5)


def test_outliers_are_counted() -> None:
    """A stall among ordinary samples is an outlier, and ordinary spread is none."""
    samples = lognormal(1000)
    assert statistics.count_outliers(samples) == 0
    samples[[10, 500]] = 0.1
    assert statistics.count_outliers(samples) == 2


def test_outliers_among_equal_samples_are_counted() -> None:
    """Where most samples are equal, neighbouring ticks of the clock are no outliers but a stall is."""
    samples = np.full(1000, 0.010)
    samples[::5] = 0.011
    assert statistics.count_outliers(samples) == 0
    samples[3] = 0.5
    assert statistics.count_outliers(samples) == 1


def test_a_trend_is_found_with_its_size() -> None:
    """A steady climb is a trend of about the size that it has."""
    drift = find_drift(lognormal(1000) * np.linspace(1.0, 1.2, 1000))
    assert drift is not None
    assert drift.kind == "trend"
    assert drift.size == pytest.approx(0.2 / 1.2, abs=0.04)
    assert drift.start == pytest.approx(500, abs=5)


def test_a_fall_that_levels_off_is_found_from_its_start() -> None:
    """A warm-up left at the beginning is a falling trend that is over soon."""
    drift = find_drift(lognormal(1000) * (1.5 + np.maximum(0, 1 - np.arange(1000) / 250)))
    assert drift is not None
    assert drift.kind == "trend"
    assert drift.size < -0.3
    assert 100 <= drift.start <= 250


def test_a_level_shift_is_found_with_its_place() -> None:
    """A jump is a level shift of about its size, and starts where it starts."""
    drift = find_drift(lognormal(2000) * np.where(np.arange(2000) < 700, 1.0, 0.8))
    assert drift is not None
    assert drift.kind == "level shift"
    assert drift.size == pytest.approx(-0.2, abs=0.05)
    assert drift.start == pytest.approx(700, abs=30)


def test_a_jump_from_zero_is_found() -> None:
    """A jump away from zero is as large as can be, and no division by zero."""
    drift = find_drift(np.where(np.arange(100) < 51, 0.0, 1.0))
    assert drift is not None
    assert drift.size == pytest.approx(1.0)


def test_nothing_falls_by_more_than_all_of_it() -> None:
    """From nine times to once is a fall of eight ninths, though it is more than the median."""
    drift = find_drift(lognormal(1000) * np.linspace(9.0, 1.0, 1000))
    assert drift is not None
    assert -1 < drift.size < -0.8


def test_a_small_change_is_no_drift() -> None:
    """A change under 1 % of the median is not drift, however evident, nor within little noise."""
    assert find_drift(np.linspace(1.0, 1.005, 1000)) is None
    steady = 1 + 0.02 * np.random.default_rng(1).standard_normal(100_000)
    assert find_drift(steady + np.linspace(0, 0.007, 100_000)) is None


def test_few_samples_show_no_drift() -> None:
    """Seven samples are too few to tell."""
    assert find_drift(np.arange(1.0, 8.0)) is None


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("rho", "n"), [(0.0, 100), (0.0, 1000), (0.5, 200), (0.5, 2000), (0.9, 500), (0.9, 3000)]
)
def test_steady_noise_is_no_drift(rho: float, n: int) -> None:
    """Slow noise is not taken for drift in more than about 1 % of series."""
    result = [find_drift(lognormal(n, rho=rho, seed=seed)) is not None for seed in range(300)]
    assert sum(result) <= 9  # 1 % and three standard errors


def test_outliers_make_no_drift() -> None:
    """A burst of stalls neither makes a drift nor hides one."""
    samples = lognormal(1000)
    samples[600:620] *= 50
    assert find_drift(samples) is None
    assert find_drift(samples * np.linspace(1.0, 1.3, 1000)) is not None


def test_samples_are_stored_and_joined() -> None:
    """Blocks of bytes come back as the numbers that they hold, and several as one array."""
    numbers = np.array([1.0, 2.5])
    assert statistics.unpack_samples(numbers.astype("<f8").tobytes()).tolist() == [1.0, 2.5]
    assert statistics.pool_runs([numbers]) is numbers
    assert statistics.pool_runs([numbers, numbers]).tolist() == [1.0, 2.5, 1.0, 2.5]
    assert statistics.empty_samples(3).size == 3


@pytest.mark.parametrize("p", [0.95, 0.05])
def test_a_quantile_is_not_beyond_all_of_some_correlated_samples(p: float) -> None:
    """Twelve spells of ten alike: too few for a rank, enough for a p95 not to be below all of them."""
    spells = np.repeat(np.random.default_rng(3).lognormal(0, 0.1, 12), 10)
    low, high = statistics.quantile_interval(spells, p, 12.0)
    assert (low if p > 0.5 else high) == (spells.min() if p > 0.5 else spells.max())
    assert (high if p > 0.5 else -low) == math.inf

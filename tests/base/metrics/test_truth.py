"""Known truth in virtual time: rule 20 of MEASURING.md, on the stop rule that the probes run.

Calls take about 10 ms of a clock that only the calls move. Every run is drawn afresh, warmed up and
stopped by `measure_until_stable` under PLAN, and then asked for its intervals: docs/explanation/measuring.md.
The slow tests hold 10,000 runs to them exactly; the others make RUNS runs, and allow beyond the
bounds what the binomial error of so few explains: SLACK standard errors, 7.8 points at 94 %. Sources whose
runs are long, such as the most correlated ones, are simulated in the slow tests alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.signal import lfilter
from scipy.stats import norm

from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import fraction_of
from modeldyno.base.metrics.stop_rule import StopRuleResult, measure_until_stable
from modeldyno.base.stats import statistics
from modeldyno.base.stats.statistics import Samples

pytestmark = pytest.mark.no_cover  # to trace its branches would double the time of a simulation

PLAN = Plan(max_time=30.0)  # the rest by default: p50 to 2 %, 20 samples, 1 s
TAILS = ("p90", "p95", "p99")
CALL = 0.010
LENGTH = 3700  # more calls than 30 s hold
RUNS = 100
DRIFTING_RUNS = 30
SLOW_RUNS = 10_000
SLACK = 3.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A stationary source of durations, with its true mean and quantiles, in seconds."""

    name: str
    draw: Callable[[np.random.Generator, int], Samples]
    mean: float
    quantile: Callable[[float], float]


def lognormal(sigma: float, rho: float = 0.0) -> Source:
    """Durations whose logarithms are an AR(1) process with the correlation rho between neighbours."""

    def draw(rng: np.random.Generator, runs: int) -> Samples:
        noise = rng.standard_normal((runs, LENGTH)) * math.sqrt(1 - rho**2)
        noise[:, 0] /= math.sqrt(1 - rho**2)  # so that the first is as spread as the others
        level: Samples = CALL * np.exp(sigma * lfilter([1.0], [1.0, -rho], noise, axis=1))
        return level

    return Source(
        name=f"lognormal {sigma:g}" + (f", rho {rho:g}" if rho else ""),
        draw=draw,
        mean=CALL * math.exp(sigma**2 / 2),
        quantile=lambda p: CALL * math.exp(sigma * float(norm.ppf(p))),
    )


def exponential() -> Source:
    return Source(
        name="exponential",
        draw=lambda rng, runs: rng.exponential(CALL, (runs, LENGTH)),
        mean=CALL,
        quantile=lambda p: -CALL * math.log1p(-p),
    )


def bimodal(sigma: float = 0.05) -> Source:
    """70 % of the calls about 10 ms, 30 % about 15 ms."""

    def draw(rng: np.random.Generator, runs: int) -> Samples:
        mode = np.where(rng.random((runs, LENGTH)) < 0.7, CALL, 1.5 * CALL)
        return mode * np.exp(sigma * rng.standard_normal((runs, LENGTH)))

    def below(x: float) -> float:
        return float(
            0.7 * norm.cdf(math.log(x / CALL) / sigma) + 0.3 * norm.cdf(math.log(x / CALL / 1.5) / sigma)
        )

    return Source(
        name="70/30 bimodal",
        draw=draw,
        mean=1.15 * CALL * math.exp(sigma**2 / 2),
        quantile=lambda p: float(brentq(lambda x: below(x) - p, CALL / 2, 4 * CALL)),
    )


STATIONARY = (
    lognormal(0.1),
    lognormal(0.3),
    bimodal(),
    exponential(),
    lognormal(0.1, rho=0.5),
    lognormal(0.3, rho=0.5),
    lognormal(0.1, rho=0.9),
    lognormal(0.3, rho=0.9),
)
QUICK = (lognormal(0.1), bimodal(), exponential(), lognormal(0.1, rho=0.5), lognormal(0.1, rho=0.9))
QUICK_TAILS = (lognormal(0.1), lognormal(0.1, rho=0.5))


@dataclass(slots=True, kw_only=True)
class VirtualTime:
    """Calls of known durations, times the level at that moment, and the clock that they move."""

    durations: Samples
    level: Callable[[float], float] | None = None
    now: float = 0.0
    made: int = 0

    def draw(self, n: int) -> Samples:
        """Make n calls."""
        taken = self.durations[self.made : self.made + n]
        self.made += n
        if self.level is None:
            self.now += float(taken.sum())
            return taken
        return np.array([self._levelled(duration, self.level) for duration in taken])

    def _levelled(self, duration: float, level: Callable[[float], float]) -> float:
        taken = duration * level(self.now)
        self.now += taken
        return taken

    def clock(self) -> float:
        """Tell the virtual time."""
        return self.now


@dataclass(slots=True, kw_only=True)
class Tally:
    """What many runs of one source gave, as shares of the runs."""

    covered: dict[str, float]
    median_bias: float
    false_drift: float


def simulated(source: Source, runs: int, tails: tuple[str, ...]) -> Tally:
    plan = Plan(max_time=PLAN.max_time, percentiles=tails)
    rng = np.random.default_rng(20)
    truths = {name: source.quantile(fraction_of(name) or 0.0) for name in ("p50", *tails)}
    hits = dict.fromkeys(("mean", *truths), 0)
    medians, drifts = [], 0
    for made in range(0, runs, 200):
        for durations in source.draw(rng, min(200, runs - made)):
            time = VirtualTime(durations=durations)
            paced = measure_until_stable(time.draw, plan=plan, clock=time.clock)
            drifts += paced.drift is not None or not paced.settled
            medians.append(statistics.quantile(paced.samples, 0.5))
            low, high = statistics.mean_interval(paced.samples)
            hits["mean"] += low <= source.mean <= high
            for name, truth in truths.items():
                low, high = statistics.quantile_interval(paced.samples, fraction_of(name) or 0.0)
                hits[name] += low <= truth <= high
    tally = Tally(
        covered={name: count / runs for name, count in hits.items()},
        median_bias=float(np.mean(medians)) / truths["p50"] - 1,
        false_drift=drifts / runs,
    )
    print(f"{source.name}, {runs:,} runs: {tally}")
    return tally


def slack(bound: float, runs: int) -> float:
    """What the binomial error of few runs explains; nothing is allowed to the full 10,000."""
    return SLACK * math.sqrt(bound * (1 - bound) / runs) if runs < SLOW_RUNS else 0.0


def assert_within(share: float, least: float, most: float, runs: int) -> None:
    assert least - slack(least, runs) <= share <= most + slack(most, runs)


def many(sources: tuple[Source, ...], quick: tuple[Source, ...]) -> list[object]:
    """Sources with RUNS runs by default, and with SLOW_RUNS under the marker `slow`."""
    return [
        *(pytest.param(source, RUNS, id=source.name) for source in quick),
        *(
            pytest.param(source, SLOW_RUNS, id=f"{source.name}, all runs", marks=pytest.mark.slow)
            for source in sources
        ),
    ]


@pytest.mark.parametrize(("source", "runs"), many(STATIONARY, QUICK))
def test_a_steady_source_is_measured_as_it_is(source: Source, runs: int) -> None:
    """The intervals of mean and median cover the truth in 94 to 97 % of runs.

    Neither the warm-up nor the stop rule moves the median by 1 %. At most 1 % of independent sources,
    and 5 % of correlated ones, seem to drift.
    """
    tally = simulated(source, runs, ())
    for statistic in ("mean", "p50"):
        assert_within(tally.covered[statistic], 0.94, 0.97, runs)
    assert abs(tally.median_bias) < 0.01
    assert_within(tally.false_drift, 0.0, 0.05 if "rho" in source.name else 0.01, runs)


@pytest.mark.parametrize(("source", "runs"), many(STATIONARY, QUICK_TAILS))
def test_the_intervals_of_requested_percentiles_cover_the_truth(source: Source, runs: int) -> None:
    """The intervals of p90, p95 and p99, when requested, cover the truth in 94.3 to 98.8 % of runs."""
    tally = simulated(source, runs, TAILS)
    for statistic in TAILS:
        assert_within(tally.covered[statistic], 0.943, 0.988, runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drifting:
    """Lognormal durations times a level that changes with time; `moment` is drawn in each run."""

    name: str
    sigma: float
    level: Callable[[float, float], float]
    moments: tuple[float, float] = (0.0, 0.0)


DRIFTING = (
    Drifting(name="climbing 20 % a second", sigma=0.1, level=lambda t, _: 1 + 0.2 * t),
    Drifting(name="climbing 10 % a second", sigma=0.03, level=lambda t, _: 1 + 0.1 * t),
    Drifting(name="climbing 2 % a second", sigma=0.3, level=lambda t, _: 1 + 0.02 * t),
    Drifting(name="15 % up", sigma=0.3, level=lambda t, at: 1.15 if t > at else 1.0, moments=(2.0, 8.0)),
    Drifting(name="20 % down", sigma=0.3, level=lambda t, at: 0.8 if t > at else 1.0, moments=(2.0, 8.0)),
)
WARMING = (
    Drifting(
        name="10 times slower, fading in 0.1 s", sigma=0.03, level=lambda t, _: 1 + 9 * math.exp(-t / 0.1)
    ),
    Drifting(
        name="3 times slower, fading in 0.3 s", sigma=0.1, level=lambda t, _: 1 + 2 * math.exp(-t / 0.3)
    ),
    Drifting(name="3 times slower, fading in 1 s", sigma=0.01, level=lambda t, _: 1 + 2 * math.exp(-t)),
    Drifting(name="3 times slower, fading in 1 s, noisy", sigma=0.1, level=lambda t, _: 1 + 2 * math.exp(-t)),
)


def paced_runs(source: Drifting, runs: int) -> list[StopRuleResult]:
    rng = np.random.default_rng(21)
    results = []
    for _ in range(runs):
        moment = rng.uniform(*source.moments)
        durations = CALL * np.exp(source.sigma * rng.standard_normal(LENGTH + 1000))
        time = VirtualTime(durations=durations, level=lambda t, at=moment: source.level(t, at))  # type: ignore[misc]
        results.append(measure_until_stable(time.draw, plan=PLAN, clock=time.clock))
    return results


def several(sources: tuple[Drifting, ...]) -> list[object]:
    """Every other source with DRIFTING_RUNS runs, and all with SLOW_RUNS under the marker `slow`."""
    return [
        *(pytest.param(source, DRIFTING_RUNS, id=source.name) for source in sources[::2]),
        *(
            pytest.param(source, SLOW_RUNS, id=f"{source.name}, all runs", marks=pytest.mark.slow)
            for source in sources
        ),
    ]


@pytest.mark.parametrize(("source", "runs"), several(DRIFTING))
def test_a_drifting_source_is_found_out(source: Drifting, runs: int) -> None:
    """A trend or a level shift leaves its evidence in at least 95 % of runs."""
    evident = sum(paced.drift is not None or not paced.settled for paced in paced_runs(source, runs))
    print(f"{source.name}, {runs:,} runs: found in {evident / runs:.4f}")
    assert_within(evident / runs, 0.95, 1.0, runs)


@pytest.mark.parametrize(("source", "runs"), several(WARMING))
def test_the_median_after_a_long_warm_up_is_unbiased(source: Drifting, runs: int) -> None:
    """However slow the first calls are, the median of what is kept is within 1 % of the truth."""
    medians = [statistics.quantile(paced.samples, 0.5) for paced in paced_runs(source, runs)]
    assert abs(float(np.mean(medians)) / CALL - 1) < 0.01

"""Measurements: a number, or a distribution with its certificate.

Raw samples are kept and every statistic is derived from them, so that later readers can query any statistic.
Values are in the base unit of their metric.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING

from modeldyno.base.metrics.metric import ANSWERS, METRICS, STATISTICS, MetricRow, fraction_of
from modeldyno.base.stats import statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy import ndarray

SATURATED, CLIENT_LIMITED, INTERRUPTED = "saturated", "client-limited", "interrupted"
"""Codes of doubts that decide what a measurement is used for."""
WHY_VOID = {
    SATURATED: "the load was saturated",
    CLIENT_LIMITED: "the load was client-limited",
    "beyond-peak": "it is beyond what the machine can do",
    "answers-repeat": "inputs that were seen before are answered faster than new ones",
    "lazy-output": "the work is done when the output is read",
    "deferred-work": "work goes on after the calls",
    "earlier-output": "calls return what belongs to other inputs",
}
"""Why a measurement is void, by the code of the doubt."""


def why_void(code: str) -> str:
    """Return why a measurement is void; of a code of another version of ModelDyno, that it has this doubt."""
    return WHY_VOID.get(code, f"it has the doubt {code}")


SHORT_LOAD, LITTLE_LAW = "short-load", "little-law"
"""Codes of doubts of a load whose rates are withheld."""
RATES_OF_LOADS = frozenset({"throughput", "request_rate", "token_rate", "prompt_token_rate", "goodput"})
"""Metrics of a load that may be withheld."""
UNEARNED = frozenset(WHY_VOID) - {SATURATED, CLIENT_LIMITED}
"""Codes of doubts with which the time of a call is not that of the model's work."""
FEWEST_WINDOWS = 8
"""Windows of a ratio from which on their variation gives it an interval.

If neighbours are alike, it takes about 80 of them to see by how much: the interval of 20 windows with a
lag-one correlation of 0.3 covers 90 %.
"""
PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A 95 % confidence interval; an end is infinite if the samples do not bound it.

    For a count it is the certain range that uncounted operators leave open.
    """

    low: float
    high: float

    def half_width(self) -> float:
        """Half of the distance between the ends."""
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Everything that a reader needs to trust or doubt a Distribution."""

    n: int
    n_eff: float
    processes: int
    mean: float
    median: float
    std: float
    min: float
    max: float
    percentiles: dict[str, float | None]
    intervals: dict[str, Interval]
    outliers: int
    stop: str
    unmet: tuple[str, ...]
    warmup_dropped: int
    rejected: int
    clock: str
    clock_resolution: float
    timer_cost: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Distribution:
    """Raw samples, one block of little-endian float64 per process, and how they were taken."""

    runs: tuple[bytes, ...]
    """Samples of each process in the order taken; `bytes` is compact, immutable and JSON-ready."""
    stop: str = "converged"
    """Why measuring ended: converged, noise floor, time limit, sample limit or interrupted."""
    unmet: tuple[str, ...] = ()
    """The conditions that were not met, if it did not converge."""
    warmup_dropped: int = 0
    """Samples before the steady state, counted but excluded."""
    warmup_time: float = 0.0
    """Seconds of the warm-up."""
    rejected: int = 0
    """Samples excluded as physically invalid, such as across a suspension."""
    clock: str = "perf_counter_ns"
    clock_resolution: float = 0.0
    """Seconds; the smallest observed step of the clock."""
    timer_cost: float = 0.0
    """Seconds that reading the clock adds to a sample; included in it, never subtracted."""
    void: str = ""
    """Code of the doubt with which none of its statistics is valid: ``saturated``, if it has no steady value
    and only grows, ``client-limited``, if it says nothing about the server, or one of UNEARNED."""
    blocks: tuple[tuple[int, ...], ...] = ()
    """Of each process how many samples are in each block of time, if only blocks are nearly independent: the
    gaps between the tokens of many streams are, see `statistics.clustered_size`. Empty: the order of the
    samples shows how they depend on each other."""

    @classmethod
    def of(cls, *runs: Iterable[float], **how: object) -> Distribution:
        """Build from the samples of each process."""
        return replace(cls(runs=tuple(map(pack, runs))), **how)  # type: ignore[arg-type]

    def arrays(self) -> tuple[ndarray, ...]:
        """Return the samples of each process as read-only float64 arrays."""
        return _arrays(self.runs)

    def samples(self) -> ndarray:
        """Return all samples, process after process."""
        return _pool(self.runs)

    def __repr__(self) -> str:
        n, processes = len(self), len(self.runs)
        median = self.statistic("p50") if n else None
        return f"Distribution(n={n}, processes={processes}, median={median}, stop={self.stop!r})"

    def __len__(self) -> int:
        return sum(map(len, self.runs)) // 8

    def statistic(self, name: str) -> float:
        """Compute a statistic over the pool of processes, uncertified (percentiles by nearest rank)."""
        fraction = fraction_of(name)
        if fraction is not None:
            return statistics.quantile(self.samples(), fraction)
        return _STATISTICS[name](self)

    def interval(self, name: str) -> Interval | None:
        """Return the 95 % interval of the mean or a percentile; other statistics have none.

        The maximum of several processes has the range of theirs.
        """
        if name == "max" and len(self.runs) > 1:
            peaks = [float(run.max()) for run in self.arrays() if len(run)]
            return Interval(low=min(peaks), high=max(peaks))
        target: float | str | None = "mean" if name == "mean" else fraction_of(name)
        if target is None:
            return None
        interval = _interval(self.runs, self.blocks, target)
        if not self.void:
            return self._in_order(interval, float(target)) if self.missing(name) else interval
        # A growing value has no steady value below what was observed.
        return Interval(low=self.statistic(name) if self.void == SATURATED else -inf, high=inf)

    def _in_order(self, interval: Interval, fraction: float) -> Interval:
        """Return the interval of an uncertified percentile within the ends of lower and higher ones.

        Where those hold, this one does, too: it is no less than a lower percentile, no more than a higher.
        """
        others = {
            each: _interval(self.runs, self.blocks, each) for each in map(fraction_of, PERCENTILES) if each
        }
        return Interval(
            low=max([interval.low, *(other.low for each, other in others.items() if each < fraction)]),
            high=min([interval.high, *(other.high for each, other in others.items() if each > fraction)]),
        )

    def effective_size(self, name: str = "mean") -> float:
        """Return the effective sample size of the pool for this statistic, considering autocorrelation."""
        return sum(_effective_sizes(self.runs, self.blocks, fraction_of(name)))

    def missing(self, name: str) -> int:
        """Return the effective samples that a percentile lacks to be certified, or a spread of one sample.

        It is 0 for other statistics.
        """
        fraction = fraction_of(name)
        if fraction is None:
            return max(0, _LEAST[name] - len(self)) if name in _LEAST else 0
        lacking = statistics.certified_floor(fraction) - self.effective_size(name)
        return max(0, -int(-lacking // 1))

    def certified(self, name: str) -> float | None:
        """Return the statistic; None if it is void or a percentile below its certified floor."""
        return None if self.void or self.missing(name) else self.statistic(name)

    def pooled(self, other: Distribution) -> Distribution:
        """Add the samples of other fresh processes; the weaker reason to stop is kept."""
        return replace(
            self,
            runs=self.runs + other.runs,
            stop=self.stop if self.stop != "converged" else other.stop,
            unmet=tuple(dict.fromkeys(self.unmet + other.unmet)),
            warmup_dropped=self.warmup_dropped + other.warmup_dropped,
            warmup_time=self.warmup_time + other.warmup_time,
            rejected=self.rejected + other.rejected,
            clock_resolution=max(self.clock_resolution, other.clock_resolution),
            timer_cost=max(self.timer_cost, other.timer_cost),
            void=self.void or other.void,
            blocks=self.blocks + other.blocks if self.blocks and other.blocks else (),
        )

    def certificate(self) -> Certificate:
        """Derive the certificate."""
        intervals = {name: self.interval(name) for name in ("mean", *PERCENTILES, "max")}
        return Certificate(
            n=len(self),
            n_eff=self.effective_size(),
            processes=len(self.runs),
            mean=self.statistic("mean"),
            median=self.statistic("p50"),
            std=self.statistic("std"),
            min=self.statistic("min"),
            max=self.statistic("max"),
            percentiles={name: self.certified(name) for name in PERCENTILES},
            intervals={name: interval for name, interval in intervals.items() if interval is not None},
            outliers=statistics.count_outliers(self.samples()),
            stop=self.stop,
            unmet=self.unmet,
            warmup_dropped=self.warmup_dropped,
            rejected=self.rejected,
            clock=self.clock,
            clock_resolution=self.clock_resolution,
            timer_cost=self.timer_cost,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleScores:
    """The score of each labelled sample, so that two models can be compared sample by sample."""

    data: str
    """Digest of the samples and their labels."""
    values: bytes
    """One score a sample, in the order of the data, as little-endian float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSums:
    """What a ratio was divided from, window by window: its value is the sum of `amounts` by that of `counts`.

    Requests and the seconds they came in, seconds of work and the requests that took them.
    """

    amounts: bytes
    """The amount of each window in the order taken, as little-endian float64."""
    counts: bytes
    """What it is divided by, likewise."""

    def ratio(self) -> float:
        """Return the ratio of the sums."""
        amounts, counts = self._arrays()
        return float(amounts.sum()) / float(counts.sum())

    def interval(self) -> Interval:
        """Return its 95 % interval, from the variation between the windows."""
        low, high = statistics.ratio_interval(*self._arrays())
        return Interval(low=low, high=high)

    def _arrays(self) -> tuple[ndarray, ndarray]:
        return statistics.unpack_samples(self.amounts), statistics.unpack_samples(self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A metric, its scope, and its value: a number or a Distribution."""

    metric: str
    value: int | float | Distribution
    scope: str = ""
    """``""`` for the whole model; otherwise a module path, a dtype, a stage."""
    interval: Interval | None = None
    """95 % interval of an estimate; None for a count or a single observation."""
    runs: tuple[float, ...] = ()
    """The number of each process, if it varies between processes."""
    scores: SampleScores | None = None
    """Of an evaluation: what its value is the mean of."""
    windows: tuple[WindowSums, ...] = ()
    """Of a ratio: what the number of each process was divided from."""
    void: str = ""
    """Of a number: code of the doubt with which it is not valid, as `Distribution.void`."""

    @property
    def is_evaluation(self) -> bool:
        """Whether it is an estimate from labelled samples: its interval is not that of a count."""
        return self.interval is not None and not self.runs and self.row.family == ANSWERS

    @property
    def row(self) -> MetricRow:
        """The row of the table of metrics."""
        return METRICS[self.metric]

    @property
    def reported_statistic(self) -> str:
        """The statistic that this number is, if another tool reported it without samples; else empty."""
        is_statistic = self.scope in STATISTICS or fraction_of(self.scope) is not None
        return (
            self.scope
            if is_statistic and self.row.spread and not isinstance(self.value, Distribution)
            else ""
        )

    def _made_void(self, code: str) -> Measurement:
        if isinstance(self.value, Distribution):
            return replace(self, value=replace(self.value, void=code))
        return replace(self, void=code)

    def mean_with_ends(self) -> tuple[float, float, float]:
        """Return the lower end of the interval of the mean or number, its value, and the upper end."""
        if isinstance(self.value, Distribution):
            value, interval = self.value.statistic("mean"), self.value.interval("mean")
        else:
            value, interval = self.value, self.interval
        return (value, value, value) if interval is None else (interval.low, value, interval.high)

    def pooled(self, other: Measurement) -> Measurement:
        """Merge the same measurement of other fresh processes; counts must be equal."""
        if isinstance(self.value, Distribution) and isinstance(other.value, Distribution):
            return replace(self, value=self.value.pooled(other.value))
        if not self.runs:
            return self
        runs = self.runs + other.runs
        return replace(
            self,
            value=sum(runs) / len(runs),
            runs=runs,
            interval=interval_over_processes(runs),
            windows=self.windows + other.windows if self.windows and other.windows else (),
            void=self.void or other.void,
        )


def observed_number(
    metric: str, value: float, *, scope: str = "", interval: Interval | None = None
) -> Measurement:
    """Make the Measurement of a number that varies between processes, such as a load time."""
    return Measurement(metric=metric, value=value, scope=scope, interval=interval, runs=(value,))


def ratio_number(
    metric: str, amounts: Iterable[float], counts: Iterable[float], *, scope: str = ""
) -> Measurement:
    """Make the Measurement of a ratio of two sums over windows, such as requests per second, and keep both.

    Args:
        metric: what the ratio is.
        amounts: the sum of each window, in the order taken.
        counts: what each is divided by; not negative, and not all 0.
        scope: where it was measured.
    """
    sums = WindowSums(amounts=pack(amounts), counts=pack(counts))
    number = observed_number(metric, sums.ratio(), scope=scope, interval=sums.interval())
    return replace(number, windows=(sums,))


def interval_over_processes(runs: Iterable[float]) -> Interval:
    """Return the 95 % interval of the mean of a number that each of several fresh processes gave."""
    return _interval(tuple(pack((run,)) for run in runs), (), "mean")


def pack(samples: Iterable[float]) -> bytes:
    """Store numbers as little-endian float64."""
    if hasattr(samples, "astype"):  # an array of numpy, in one step
        return bytes(samples.astype("<f8").tobytes())
    block = samples if isinstance(samples, array) and samples.typecode == "d" else array("d", samples)
    if sys.byteorder == "big":  # pragma: no cover - no such machine in CI
        block = array("d", block)
        block.byteswap()
    return block.tobytes()


@lru_cache(maxsize=64)
def _arrays(runs: tuple[bytes, ...]) -> tuple[ndarray, ...]:
    return tuple(statistics.unpack_samples(run) for run in runs)


@lru_cache(maxsize=16)
def _pool(runs: tuple[bytes, ...]) -> ndarray:
    return statistics.pool_runs(_arrays(runs))


@lru_cache(maxsize=256)
def _interval(runs: tuple[bytes, ...], blocks: tuple[tuple[int, ...], ...], target: float | str) -> Interval:
    fraction = None if isinstance(target, str) else target
    low, high = statistics.pooled_interval(_arrays(runs), target, _effective_sizes(runs, blocks, fraction))
    return Interval(low=low, high=high)


@lru_cache(maxsize=256)
def _effective_sizes(
    runs: tuple[bytes, ...], blocks: tuple[tuple[int, ...], ...], fraction: float | None
) -> tuple[float, ...]:
    if not blocks:
        return tuple(statistics.effective_size(run, fraction) for run in _arrays(runs))
    return tuple(
        statistics.clustered_size(run, each, fraction)
        for run, each in zip(_arrays(runs), blocks, strict=True)
    )


def _standard_deviation(distribution: Distribution) -> float:
    samples = distribution.samples()
    return float(samples.std(ddof=1)) if len(samples) > 1 else 0.0


_LEAST = {"std": 2, "cv": 2}
"""Samples without which there is no such statistic."""

_STATISTICS: dict[str, Callable[[Distribution], float]] = {
    "mean": lambda d: float(d.samples().mean()),
    "min": lambda d: float(d.samples().min()),
    "max": lambda d: float(d.samples().max()),
    "std": _standard_deviation,
    "cv": lambda d: _standard_deviation(d) / mean if (mean := d.statistic("mean")) else 0.0,
    "n": lambda d: float(len(d)),
    "n_eff": lambda d: d.effective_size(),
}


TIMES_OF_CALLS = frozenset({"latency", "throughput", "batch_rate", "first_call"})
"""Metrics that say how long the work of a call takes."""


def void_unearned(measurements: Iterable[Measurement], codes: Iterable[str]) -> tuple[Measurement, ...]:
    """Make the times of calls void if a doubt says that they are not those of the model's work.

    Args:
        measurements: those of a run.
        codes: of its doubts.
    """
    code = next((code for code in codes if code in UNEARNED), "")
    return tuple(
        each._made_void(code) if code and each.metric in TIMES_OF_CALLS and not each.scope else each  # noqa: SLF001
        for each in measurements
    )


def pool_measurements(groups: Sequence[Sequence[Measurement]]) -> tuple[Measurement, ...]:
    """Merge the measurements of fresh processes by metric and scope."""
    merged: dict[tuple[str, str], Measurement] = {}
    for group in groups:
        for measurement in group:
            key = (measurement.metric, measurement.scope)
            merged[key] = merged[key].pooled(measurement) if key in merged else measurement
    return tuple(merged.values())

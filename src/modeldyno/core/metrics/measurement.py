"""What was measured: a number, or a distribution with its certificate.

Raw samples are kept and every statistic is derived from them, so that a later reader can ask what
nobody thought of when the run was made. Values are in the base unit of their metric.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING

from modeldyno.core.metrics.metric import METRICS, STATISTICS, Metric, fraction_of
from modeldyno.core.stats import statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy import ndarray

SATURATED = "saturated"
PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A 95 % confidence interval; an end is infinite where the samples do not bound it.

    Of a count it is what the operators that could not be counted leave open, for certain.
    """

    low: float
    high: float

    def half_width(self) -> float:
        """Half of the distance between the ends."""
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Everything that a reader needs in order to trust or doubt a Distribution (MEASURING.md)."""

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
    """The conditions that were not met when it ended otherwise than converged."""
    warmup_dropped: int = 0
    """Samples before the steady state, counted and left out."""
    warmup_time: float = 0.0
    """Seconds that the warm-up took."""
    rejected: int = 0
    """Samples left out because they were physically invalid, such as across a suspension."""
    clock: str = "perf_counter_ns"
    clock_resolution: float = 0.0
    """Seconds; the smallest step that the clock was seen to make."""
    timer_cost: float = 0.0
    """Seconds that reading the clock adds to a sample; included in it, never subtracted."""
    void: str = ""
    """Why none of its statistics is a claim: ``saturated``, where it has no steady value and only grows, or
    ``client-limited``, where it tells nothing of the server."""

    @classmethod
    def of(cls, *runs: Iterable[float], **how: object) -> Distribution:
        """Build from the samples of each process."""
        return replace(cls(runs=tuple(map(pack, runs))), **how)  # type: ignore[arg-type]

    def arrays(self) -> tuple[ndarray, ...]:
        """Give the samples of each process as read-only float64 arrays."""
        return _arrays(self.runs)

    def samples(self) -> ndarray:
        """Give all samples, process after process."""
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
        return _PLAIN[name](self)

    def interval(self, name: str) -> Interval | None:
        """Give the 95 % interval of the mean or a percentile; no other statistic has one."""
        target: float | str | None = "mean" if name == "mean" else fraction_of(name)
        if target is None:
            return None
        found = _interval(self.runs, target)
        if not self.void:
            return found
        # What only grows has no steady value below what was seen of it.
        return Interval(low=self.statistic(name) if self.void == SATURATED else -inf, high=inf)

    def effective_size(self, name: str = "mean") -> float:
        """Samples that the pool is worth for this statistic, allowing for autocorrelation."""
        return _effective_size(self.runs, fraction_of(name))

    def missing(self, name: str) -> int:
        """Effective samples that a percentile still lacks before it is a claim; 0 for all else."""
        fraction = fraction_of(name)
        if fraction is None:
            return 0
        lacking = statistics.certified_floor(fraction) - self.effective_size(name)
        return max(0, -int(-lacking // 1))

    def certified(self, name: str) -> float | None:
        """Give the statistic, or None for a percentile below its certified floor, and where it is void."""
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
        )

    def certificate(self) -> Certificate:
        """Derive the whole certificate."""
        intervals = {name: self.interval(name) for name in ("mean", *PERCENTILES)}
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
            intervals={name: found for name, found in intervals.items() if found is not None},
            outliers=statistics.outliers(self.samples()),
            stop=self.stop,
            unmet=self.unmet,
            warmup_dropped=self.warmup_dropped,
            rejected=self.rejected,
            clock=self.clock,
            clock_resolution=self.clock_resolution,
            timer_cost=self.timer_cost,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A metric, where it holds, and its value: a number or a Distribution."""

    metric: str
    value: int | float | Distribution
    scope: str = ""
    """``""`` for the whole model; else a module path, a dtype, a stage."""
    interval: Interval | None = None
    """95 % interval of a number that is an estimate; None for a count, or a single observation."""
    runs: tuple[float, ...] = ()
    """The number of each process, where it is not the same in all by nature."""

    @property
    def row(self) -> Metric:
        """The row of the table of metrics."""
        return METRICS[self.metric]

    @property
    def told(self) -> str:
        """The statistic that this number is, where another tool told it without its samples; else empty."""
        named = self.scope in STATISTICS or fraction_of(self.scope) is not None
        return self.scope if named and self.row.spread and not isinstance(self.value, Distribution) else ""

    def pooled(self, other: Measurement) -> Measurement:
        """Merge the same measurement of other fresh processes; a count must agree already."""
        if isinstance(self.value, Distribution) and isinstance(other.value, Distribution):
            return replace(self, value=self.value.pooled(other.value))
        if not self.runs:
            return self
        runs = self.runs + other.runs
        return replace(
            self,
            value=sum(runs) / len(runs),
            runs=runs,
            interval=_interval(tuple(pack((run,)) for run in runs), "mean"),
        )


def observed(metric: str, value: float, *, scope: str = "", interval: Interval | None = None) -> Measurement:
    """Make the Measurement of a number that varies from process to process, such as a load time."""
    return Measurement(metric=metric, value=value, scope=scope, interval=interval, runs=(value,))


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
    return tuple(statistics.unpack(run) for run in runs)


@lru_cache(maxsize=16)
def _pool(runs: tuple[bytes, ...]) -> ndarray:
    return statistics.pool(_arrays(runs))


@lru_cache(maxsize=256)
def _interval(runs: tuple[bytes, ...], target: float | str) -> Interval:
    low, high = statistics.pooled_interval(_arrays(runs), target)
    return Interval(low=low, high=high)


@lru_cache(maxsize=256)
def _effective_size(runs: tuple[bytes, ...], fraction: float | None) -> float:
    return sum(statistics.effective_size(run, fraction) for run in _arrays(runs))


def _spread(distribution: Distribution) -> float:
    samples = distribution.samples()
    return float(samples.std(ddof=1)) if len(samples) > 1 else 0.0


_PLAIN: dict[str, Callable[[Distribution], float]] = {
    "mean": lambda d: float(d.samples().mean()),
    "min": lambda d: float(d.samples().min()),
    "max": lambda d: float(d.samples().max()),
    "std": _spread,
    "cv": lambda d: _spread(d) / mean if (mean := d.statistic("mean")) else 0.0,
    "n": lambda d: float(len(d)),
    "n_eff": lambda d: d.effective_size(),
}


def pool_measurements(groups: Sequence[Sequence[Measurement]]) -> tuple[Measurement, ...]:
    """Merge the measurements of fresh processes, metric by metric and scope by scope."""
    merged: dict[tuple[str, str], Measurement] = {}
    for group in groups:
        for found in group:
            key = (found.metric, found.scope)
            merged[key] = merged[key].pooled(found) if key in merged else found
    return tuple(merged.values())

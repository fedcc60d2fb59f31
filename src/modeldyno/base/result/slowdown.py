"""By how much others on the machine may have slowed down what a Result has measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.metrics.metric import METRICS, Query
from modeldyno.base.stats.statistics import unpack_samples
from modeldyno.base.stats.units import MONEY, RATE, SECONDS

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

MOMENTS = 0.08
"""Relative difference of the same model on the same machine between two times.

Hosted machines differ by much more.
"""
_HALF = 0.5
"""Share of a core that a neighbour gets, and so the largest one that others are taken to have had while a
metric was measured, unless they had more in the whole pass."""
_MOST_TAKEN = 0.95
"""Largest share that others are taken to have had at all."""
_LEAST_SLOWDOWN = 1.005
"""Factor from which on others explain a difference."""
_SAID_AS_TIMES = 1.5
"""Factor from which on it is said as times, and not as a share."""
TAKEN = {"interference": "foreign_cpu", "steal": "steal"}
"""Doubts that others took time of the cores, and the metric that says how much."""
_MEASURED_BY = {
    "throughput": "throughput", "batch_rate": "throughput", "cost": "throughput", "latency": "latency",
}  # fmt: skip
"""Metrics of calls, and the one whose samples say how long each was measured."""


def slowdown_by_others(result: Result, query: Query) -> float:
    """Return by which factor others may have slowed down what a metric measures; 1 if no doubt says so.

    What others took of the cores is known of the whole timed pass, and much of it may have been taken while
    this metric was measured.
    """
    codes = {doubt.code for doubt in result.doubts}
    if METRICS[query.metric].unit not in {SECONDS, RATE, MONEY}:
        return 1.0
    taken = sum(result.number(metric) or 0.0 for code, metric in TAKEN.items() if code in codes)
    share = _share_taken(taken / _cores(result), result, query.metric) if taken else 0.0
    contradiction = (
        _contradiction(result) if "inconsistent" in codes and query.metric in _MEASURED_BY else 1.0
    )
    return max(1 / (1 - share), contradiction)


def explain_slowdown(factor: float, side: str) -> str | None:
    """Say by how much others may have slowed one side down; None if by less than half a percent."""
    if factor < _LEAST_SLOWDOWN:
        return None
    slower = f"{factor:.2g} times" if factor >= _SAID_AS_TIMES else f"{factor - 1:.0%}"
    return f"other processes may have made {side} up to {slower} slower"


def _share_taken(whole: float, result: Result, metric: str) -> float:
    """Return the share of the cores that others may have had while a metric was measured."""
    return min(_MOST_TAKEN, max(whole, min(_HALF, whole / _share_of_pass(result, metric))))


def _cores(result: Result) -> float:
    """Return the number of cores that could be used, at least one."""
    facts = result.environment.hardware
    limits = [facts.get("cpu_quota"), facts.get("cores_allowed"), len(result.job.plan.pin) or None]
    return max(1.0, min((float(n) for n in limits if isinstance(n, int | float)), default=1.0))


def _share_of_pass(result: Result, metric: str) -> float:
    """Return the share of the timed pass in which a metric was measured; 1 if that is not known."""
    seconds = {name: _seconds_of(result, name) for name in ("latency", "throughput")}
    own, whole = seconds.get(_MEASURED_BY.get(metric, ""), 0.0), sum(seconds.values())
    return own / whole if own else 1.0


def _seconds_of(result: Result, metric: str) -> float:
    """Return how long a metric of calls was measured, in all processes."""
    measurement = result.find(metric)
    if measurement is None:
        return 0.0
    if isinstance(measurement.value, Distribution):
        return float(sum(samples.sum() for samples in measurement.value.arrays()))
    return float(sum(unpack_samples(sums.counts).sum() for sums in measurement.windows))


def _contradiction(result: Result) -> float:
    """Return by which factor mean latency and rate of calls contradict each other, at least 1."""
    latency, rate = result.find("latency"), result.number("batch_rate")
    if latency is None or not isinstance(latency.value, Distribution) or not rate:
        return 1.0
    product = latency.value.statistic("mean") * rate
    return max(product, 1 / product)

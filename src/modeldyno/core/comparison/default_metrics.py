"""What a comparison judges: the few headlines of a gate, or every metric that two Results share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.comparison.comparison import SMALLEST_EFFECT
from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.metrics.metric import Better, Query
from modeldyno.core.stats.units import BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.core.metrics.measurement import Measurement
    from modeldyno.core.result.result import Result

ALL = ""
"""The name under which a mapping of smallest effects has the one of all other metrics."""
SMALLEST: Mapping[str, float] = {"process_memory": 0.05, "load_time": 0.25, "first_call": 0.25}
"""Smallest effects that matter, of metrics for which it is not the usual one."""
COARSE: Mapping[str, float] = {"process_memory": 256 * 1024}
"""Spans, in base units, within which numbers are the same: so much an allocator takes at once."""

HEADLINES = (
    "latency.p50",
    "step_time.p50",
    "time_to_first_token.p50",
    "time_per_output_token.p50",
    "process_memory.max",
    "allocated_peak",
    "error_rate",
)
"""What a gate judges unless it is told: the time of a call, or of what stands for one, and memory."""
COSTS = ("parameters", "weight_bytes", "macs", "memory_peak")
"""Likewise, of a model that was analysed and not run."""

_KIN = {
    "latency": "speed",
    "throughput": "speed",
    "batch_rate": "speed",
    "request_rate": "speed",
    "token_rate": "speed",
    "service_time": "speed",
    "goodput": "speed",
    "compute_time": "speed",
    "time_per_output_token": "pace",
    "inter_token_latency": "pace",
    "inter_chunk_latency": "pace",
    "allocator_reserved": "device",
    "allocated_peak": "device",
    "device_memory": "device",
    "energy": "power",
    "power": "power",
}
"""Metrics that move together, to the name of what they tell."""
_CIRCUMSTANCES = frozenset({
    "foreign_cpu", "steal", "context_switches", "preemptions", "major_faults", "disk_read", "disk_written",
    "temperature", "clock", "memory_clock", "idle_power", "send_lag", "client_cpu", "client_time",
    "pass_overhead", "unattributed", "coverage", "fragmentation", "memory_growth", "peak_flops",
    "peak_bandwidth",
})  # fmt: skip
"""What tells of the run or of the machine, not of the model."""


def headlines(baseline: Result, candidate: Result) -> tuple[Query, ...]:
    """Give the few queries that a gate judges: those that the baseline has, or else all that both have.

    What the candidate lacks of them is asked for all the same, lest a gate hold because nothing was measured.
    """
    for names in (HEADLINES, COSTS):
        if asked := tuple(query for query in map(Query.parse, names) if _has(baseline, query)):
            return asked
    return shared(baseline, candidate)


def shared(baseline: Result, candidate: Result) -> tuple[Query, ...]:
    """Give one query for each metric of the whole that both have, and that is better one way."""
    found = []
    for measurement in baseline.measurements:
        row, other = measurement.row, candidate.find(measurement.metric, measurement.scope)
        if measurement.scope or row.better is Better.NEITHER or row.name in _CIRCUMSTANCES or other is None:
            continue
        if isinstance(measurement.value, Distribution) is isinstance(other.value, Distribution):
            found.append(Query(metric=row.name, statistic=_statistic(measurement)))
    return tuple(found)


def _statistic(measurement: Measurement) -> str | None:
    """Choose the statistic that stands for a distribution: the peak of memory, the median of all else."""
    if not isinstance(measurement.value, Distribution):
        return None
    return "max" if measurement.row.unit == BYTES else "p50"


def _has(result: Result, query: Query) -> bool:
    found = result.find(query.metric, query.scope)
    return found is not None and isinstance(found.value, Distribution) is (query.statistic is not None)


def families(found: Iterable[tuple[Query, Measurement | None, Measurement | None]]) -> int:
    """Count what is judged together: kin count once, and counts do not err."""
    return len({
        (kin(query), query.scope)
        for query, before, after in found
        if before is not None and after is not None and not (exact(before) and exact(after))
    })  # fmt: skip


def kin(query: Query) -> str:
    """Name what a query tells, which is the same for metrics that move together."""
    return _KIN.get(query.metric, query.metric)


def exact(measurement: Measurement) -> bool:
    """Tell whether it is a count, which is the same in every process."""
    return not isinstance(measurement.value, Distribution) and not measurement.runs


def smallest_named(query: Query, given: Mapping[str, float]) -> float:
    """Find the smallest effect that matters, by the query, by its metric, or for all."""
    return given.get(str(query), given.get(query.metric, given.get(ALL, SMALLEST_EFFECT)))

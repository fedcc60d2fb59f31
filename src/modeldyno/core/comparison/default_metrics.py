"""The metrics that a comparison judges: the headlines of a gate, or every metric that both Results share."""

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
"""The key of the smallest effect of all other metrics in a mapping of smallest effects."""
SMALLEST: Mapping[str, float] = {"process_memory": 0.05, "load_time": 0.25, "first_call": 0.25}
"""Smallest effects that matter, for metrics with other than the usual one."""
ALLOCATION_STEPS: Mapping[str, float] = {"process_memory": 256 * 1024}
"""Differences, in base units, that count as none: an allocator takes so much at once."""

HEADLINES = (
    "latency.p50",
    "step_time.p50",
    "time_to_first_token.p50",
    "time_per_output_token.p50",
    "process_memory.max",
    "allocated_peak",
    "error_rate",
)
"""Default metrics of a gate: the time of a call, or its equivalent, and memory."""
COSTS = ("parameters", "weight_bytes", "macs", "memory_peak")
"""The same for a model that was analysed and not run."""

_FAMILIES = {
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
"""Metrics that move together, to the name of their family."""
_NOT_OF_THE_MODEL = frozenset({
    "foreign_cpu", "steal", "context_switches", "preemptions", "major_faults", "disk_read", "disk_written",
    "temperature", "clock", "memory_clock", "idle_power", "send_lag", "client_cpu", "client_time",
    "pass_overhead", "unattributed", "coverage", "fragmentation", "memory_growth", "peak_flops",
    "peak_bandwidth",
})  # fmt: skip
"""Metrics of the run or of the machine, not of the model."""


def headline_queries(baseline: Result, candidate: Result) -> tuple[Query, ...]:
    """Return the few queries that a gate judges: the headlines in the baseline, or else all that both have.

    Those that the candidate lacks are judged, too, so that a gate does not pass because nothing was measured.
    """
    for names in (HEADLINES, COSTS):
        if queries := tuple(query for query in map(Query.parse, names) if _has_query(baseline, query)):
            return queries
    return shared_queries(baseline, candidate)


def shared_queries(baseline: Result, candidate: Result) -> tuple[Query, ...]:
    """Return one query for each metric of the whole model that both have and that has a better direction."""
    queries = []
    for measurement in baseline.measurements:
        row, other = measurement.row, candidate.find(measurement.metric, measurement.scope)
        if (
            measurement.scope
            or row.better is Better.NEITHER
            or row.name in _NOT_OF_THE_MODEL
            or other is None
        ):
            continue
        if isinstance(measurement.value, Distribution) is isinstance(other.value, Distribution):
            queries.append(Query(metric=row.name, statistic=_default_statistic(measurement)))
    return tuple(queries)


def _default_statistic(measurement: Measurement) -> str | None:
    """Return the default statistic of a distribution: the maximum of memory, otherwise the median."""
    if not isinstance(measurement.value, Distribution):
        return None
    return "max" if measurement.row.unit == BYTES else "p50"


def _has_query(result: Result, query: Query) -> bool:
    measurement = result.find(query.metric, query.scope)
    return measurement is not None and isinstance(measurement.value, Distribution) is (
        query.statistic is not None
    )


def count_families(found: Iterable[tuple[Query, Measurement | None, Measurement | None]]) -> int:
    """Count the independent metrics judged together: a family counts once, and counts do not err."""
    return len({
        (metric_family(query), query.scope)
        for query, before, after in found
        if before is not None and after is not None and not (is_count(before) and is_count(after))
    })  # fmt: skip


def metric_family(query: Query) -> str:
    """Return the family of a query, which is the same for metrics that move together."""
    return _FAMILIES.get(query.metric, query.metric)


def is_count(measurement: Measurement) -> bool:
    """Return whether it is a count, which is the same in every process."""
    return not isinstance(measurement.value, Distribution) and not measurement.runs


def smallest_effect(query: Query, given: Mapping[str, float]) -> float:
    """Return the smallest effect that matters, by query, by metric, or for all."""
    return given.get(str(query), given.get(query.metric, given.get(ALL, SMALLEST_EFFECT)))

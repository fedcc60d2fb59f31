"""The metrics that a comparison judges: the headlines of a gate, or every metric that both Results share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.metrics.metric import END_TO_END, METRICS, Better, Query
from modeldyno.base.stats.units import BYTES
from modeldyno.comparison.change.comparison import SMALLEST_EFFECT
from modeldyno.engine.trace import regions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.base.metrics.metric import MetricRow
    from modeldyno.base.result.result import Result

ALL = ""
"""The key of the smallest effect of all other metrics in a mapping of smallest effects."""
_WHOLE = {"", END_TO_END}
"""Scopes of the whole model, and of the call with the functions around it."""
SMALLEST: Mapping[str, float] = {row.name: row.smallest for row in METRICS.values() if row.smallest}
"""Smallest effects that matter, for metrics with other than the usual one."""


def headline_queries(baseline: Result, candidate: Result) -> tuple[Query, ...]:
    """Return the few queries that a gate judges: those in the baseline that the table of metrics names.

    Of a model that was analysed and not run they are its costs; of calls with functions around the model,
    the latency of the call end to end as well. If there are none, all that both have.
    Those that the candidate lacks are judged, too, so that a gate does not pass because nothing was measured.
    """
    judged = [m for m in baseline.measurements if m.row.gate_rank and m.scope in _WHOLE]
    judged = sorted((m for m in judged if m.row.spread is _is_spread(m)), key=lambda m: m.row.gate_rank)
    measured = [m for m in judged if not m.row.computed]
    chosen = measured or judged
    queries = tuple(Query(metric=m.metric, scope=m.scope, statistic=m.row.statistic) for m in chosen)
    return queries or shared_queries(baseline, candidate)


def shared_queries(baseline: Result, candidate: Result) -> tuple[Query, ...]:
    """Return one query for each metric of the whole model that both have and that has a better direction.

    Of calls end to end it is their latency; that of a single stage is judged where it is asked for. Of two
    profiles of regions they are of each region that both have: its time, calls, memory and operators.
    """
    own_code = all(regions.PROBE in result.job.probes for result in (baseline, candidate))
    queries = []
    for measurement in baseline.measurements:
        row, other = measurement.row, candidate.find(measurement.metric, measurement.scope)
        if other is None or _is_spread(measurement) is not _is_spread(other):
            continue
        comparable = measurement.scope in _WHOLE and _has_direction(row)
        if _is_of_region(measurement, other) if own_code else comparable:
            statistic = _default_statistic(measurement)
            queries.append(Query(metric=row.name, scope=measurement.scope, statistic=statistic))
    return tuple(queries)


_COUNTS_OF_REGIONS = frozenset({"calls", "operator_calls"})
_OF_REGIONS = _COUNTS_OF_REGIONS | {"latency", "allocated", "allocated_peak"}
"""Metrics of a region that are compared: its total time follows from them, and has no interval."""


def _is_of_region(measurement: Measurement, other: Measurement) -> bool:
    """Whether it is compared: counts only if they differ, and not the size of the whole process."""
    _, place = regions.split_region_scope(measurement.scope)
    same_count = measurement.metric in _COUNTS_OF_REGIONS and measurement.value == other.value
    return measurement.metric in _OF_REGIONS and place != "process" and not same_count


def _has_direction(row: MetricRow) -> bool:
    return row.better is not Better.NEITHER and not row.environmental


def _default_statistic(measurement: Measurement) -> str | None:
    """Return the default statistic of a distribution: the maximum of memory, otherwise the median."""
    if not _is_spread(measurement):
        return None
    return "max" if measurement.row.unit == BYTES else "p50"


def _is_spread(measurement: Measurement) -> bool:
    return isinstance(measurement.value, Distribution)


def count_families(measured: Iterable[tuple[Query, Measurement | None, Measurement | None]]) -> int:
    """Count the independent metrics judged together: a family counts once, and counts do not err."""
    return len({
        (metric_family(query), query.scope)
        for query, before, after in measured
        if before is not None and after is not None and not (is_count(before) and is_count(after))
    })  # fmt: skip


def metric_family(query: Query) -> str:
    """Return the family of a query, which is the same for metrics that move together."""
    return METRICS[query.metric].family or query.metric


def is_count(measurement: Measurement) -> bool:
    """Return whether it is a count, which is the same in every process."""
    return not _is_spread(measurement) and not measurement.runs


def smallest_effect(query: Query, effects: Mapping[str, float]) -> float:
    """Return the smallest effect that matters, by query, by metric, or for all."""
    usual = METRICS[query.metric].smallest or SMALLEST_EFFECT
    return effects.get(str(query), effects.get(query.metric, effects.get(ALL, usual)))

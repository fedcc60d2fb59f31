"""The numbers of a Result, each with its query."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.base.metrics.constraints import Answer
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.metrics.metric import METRICS, Query, fraction_of
from modeldyno.base.stats.statistics import certified_floor
from modeldyno.base.stats.units import format_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.base.metrics.metric import MetricRow

STATISTICS_SHOWN = ("p50", "p90", "p95", "p99", "p99.9", "mean", "std", "min", "max")
"""The statistics of a distribution that are listed with all numbers."""
_MOST_FIGURES = 6


def list_numbers(measurements: Sequence[Measurement]) -> Iterator[tuple[Query, float]]:
    """Yield every number in base units with its query.

    A percentile with too few samples for certification has the query of the raw quantile.
    """
    answered = next((m.value for m in measurements if (m.metric, m.scope) == ("requests", "ok")), 0)
    for measurement in measurements:
        if isinstance(measurement.value, Distribution):
            for name in STATISTICS_SHOWN:
                part = "raw" if measurement.value.certified(name) is None else None
                query = Query(metric=measurement.metric, statistic=name, part=part, scope=measurement.scope)
                yield query, measurement.value.statistic(name)
        elif measurement.reported_statistic:  # by another tool: certified if enough requests were answered
            fraction = fraction_of(measurement.reported_statistic)
            assert not isinstance(answered, Distribution)
            uncertified = fraction is not None and answered < certified_floor(fraction)
            yield (
                Query(
                    metric=measurement.metric,
                    statistic=measurement.reported_statistic,
                    part="raw" if uncertified else None,
                ),
                measurement.value,
            )
        elif not measurement.void:
            yield Query(metric=measurement.metric, scope=measurement.scope), measurement.value


def format_main_figures(measurements: Sequence[Measurement]) -> tuple[str, ...]:
    """Format the main figures, such as ``latency.p50 4.10 ms``; if there are none, the first few."""
    unscoped = [measurement for measurement in measurements if not measurement.scope]
    numbers = dict(list_numbers(unscoped or measurements))
    rows = {query: METRICS[query.metric] for query in numbers}
    main = [query for query, row in rows.items() if row.main and query.statistic == row.statistic]
    main.sort(key=lambda query: rows[query].main)
    return tuple(
        f"{query} {format_quantity(numbers[query], query.unit, 3)}"
        for query in main or list(numbers)[:_MOST_FIGURES]
    )


# --- answers that documents with many Results keep --------------------------------------------------

_SCOPES = {"", "driver 0"}
"""The whole model; of per-driver metrics, only the first driver."""


def answers_under_load(measurements: Sequence[Measurement]) -> Iterator[Answer]:
    """Answer what a point of a load curve keeps of what was measured."""
    return _answers(measurements, lambda row: row.under_load)


def trial_answers(measurements: Sequence[Measurement]) -> Iterator[Answer]:
    """Answer what a trial of a study keeps of what was measured."""
    return _answers(measurements, lambda row: row.trial)


def _answers(
    measurements: Sequence[Measurement], kept: Callable[[MetricRow], tuple[str, ...] | None]
) -> Iterator[Answer]:
    for measurement in measurements:
        statistics: Sequence[str | None] | None = kept(measurement.row)
        if statistics is not None and measurement.scope in _SCOPES:
            for statistic in statistics if isinstance(measurement.value, Distribution) else (None,):
                query = Query(metric=measurement.metric, statistic=statistic, scope=measurement.scope)
                yield Answer.to(query, measurements)


def goal_answers(measurements: Sequence[Measurement], queries: Iterable[Query]) -> Iterator[Answer]:
    """Answer the queries of a goal that were measured."""
    for query in queries:
        with suppress(RunFailed, RequestError):
            yield Answer.to(query, measurements)

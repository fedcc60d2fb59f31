"""The numbers of a Result, each with the query that gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.metrics.metric import Query, fraction_of
from modeldyno.core.stats.statistics import certified_floor
from modeldyno.core.stats.units import format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.metrics.measurement import Measurement

STATISTICS_SHOWN = ("p50", "p90", "p95", "p99", "p99.9", "mean", "std", "min", "max")
"""The statistics of a distribution that are listed where somebody asks for all numbers."""
_MAIN = (
    ("latency", "p50"), ("step_time", "p50"), ("time_to_first_token", "p50"), ("token_rate", None),
    ("throughput", None), ("request_rate", None), ("error_rate", None), ("largest_batch", None),
    ("process_memory", "max"), ("device_memory", "max"), ("parameters", None), ("macs", None),
    ("memory_peak", None),
)  # fmt: skip
"""Metric and statistic of the figures that stand for a whole Result, in this order."""
_FEW = 6


def list_numbers(measurements: Sequence[Measurement]) -> Iterator[tuple[Query, float]]:
    """Give every number in base units, with the query that asks for it.

    A percentile that rests on too few samples to be a claim has the query of the raw quantile.
    """
    answered = next((m.value for m in measurements if (m.metric, m.scope) == ("requests", "ok")), 0)
    for found in measurements:
        if isinstance(found.value, Distribution):
            for name in STATISTICS_SHOWN:
                part = "raw" if found.value.certified(name) is None else None
                query = Query(metric=found.metric, statistic=name, part=part, scope=found.scope)
                yield query, found.value.statistic(name)
        elif found.told:  # by another tool: a percentile is a claim where enough requests were answered
            fraction = fraction_of(found.told)
            assert not isinstance(answered, Distribution)
            few = fraction is not None and answered < certified_floor(fraction)
            yield Query(metric=found.metric, statistic=found.told, part="raw" if few else None), found.value
        else:
            yield Query(metric=found.metric, scope=found.scope), found.value


def format_main_figures(measurements: Sequence[Measurement]) -> tuple[str, ...]:
    """Show the figures that stand for the whole, such as ``latency.p50 4.10 ms``; else the first few."""
    whole = [found for found in measurements if not found.scope]
    numbers = dict(list_numbers(whole or measurements))
    shown = [
        query
        for metric, statistic in _MAIN
        for query in numbers
        if (query.metric, query.statistic) == (metric, statistic)
    ]
    return tuple(
        f"{query} {format_quantity(numbers[query], query.unit, 3)}" for query in shown or list(numbers)[:_FEW]
    )

"""Table of several models under load on one server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.load import multi_model
from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.report.blocks import Table, clean, make_columns, shorten
from modeldyno.core.stats.units import SECONDS, format_quantity
from modeldyno.views.text import NAME_LIMIT, estimate, format_measurement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.metrics.measurement import Measurement
    from modeldyno.core.result.result import Result

_COLUMNS = ("throughput", "latency p50", "latency p99", "queue", "compute")


def without_cohosted(result: Result) -> Result:
    """Return a Result without the measurements of co-hosted models."""
    names = [str(other.name) for other in result.job.beside]
    return replace(
        result, measurements=tuple(multi_model.measurements_of_first_model(names, result.measurements))
    )


def cohosted_table(result: Result) -> Iterator[Table]:
    """Tabulate the models of one server; nothing for a single model or without measurements."""
    if not result.job.beside or not any(
        measurement.metric == "latency" for measurement in result.measurements
    ):
        return
    names = [str(other.name) for other in result.job.beside]
    parts = [
        (
            result.name,
            result.job.load,
            tuple(multi_model.measurements_of_first_model(names, result.measurements)),
        )
    ]
    parts += [
        (name, other.load, tuple(multi_model.measurements_of_model(name, result.measurements)))
        for name, other in zip(names, result.job.beside, strict=True)
    ]
    yield Table(
        title="The models of the server, under load at the same time",
        columns=make_columns("model", "load", *(f"{title}>" for title in _COLUMNS)),
        rows=tuple(
            (shorten(clean(name), NAME_LIMIT), str(load or ""), *_figures(measurements))
            for name, load, measurements in parts
        ),
    )


def _figures(measurements: tuple[Measurement, ...]) -> Iterator[str]:
    by_metric = {measurement.metric: measurement for measurement in measurements if not measurement.scope}
    yield _plain_or_empty(by_metric.get("throughput"))
    for name in ("p50", "p99"):
        latency = by_metric.get("latency")
        yield _quantile(latency.value, name) if latency else ""
    for metric in ("queue_time", "compute_time"):
        yield _plain_or_empty(by_metric.get(metric))


def _plain_or_empty(measurement: Measurement | None) -> str:
    return "" if measurement is None else format_measurement(measurement)


def _quantile(times: object, name: str) -> str:
    """Format a percentile with the digits that its interval justifies; an uncertified one as ``about``."""
    if not isinstance(times, Distribution):
        return ""
    if times.void:
        return times.void
    if times.missing(name):
        return f"about {format_quantity(times.statistic(name), SECONDS, 2)}"
    return estimate(times.statistic(name), times.interval(name), SECONDS)[0]

"""Key figures of a Result, shown large at the top of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.report.blocks import Table, make_columns
from modeldyno.core.stats.units import BYTES, format_quantity
from modeldyno.views.text import amount, estimate, format_measurement, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.result.result import Result

Tile = tuple[str, str, str]
"""Name, figure and note."""


def tiles(result: Result) -> Iterator[Table]:
    """Yield the key figures, if there are at least two."""
    rows = (*_times(result), *_rates(result), *_memory(result), *_size(result))
    if len(rows) > 1:
        yield Table(title="", columns=make_columns("", "", ""), rows=rows, tiles=True)


def _times(result: Result) -> Iterator[Tile]:
    latency = result.find("latency")
    if latency is None or not isinstance(latency.value, Distribution):
        return
    for statistic, name in (("p50", "median latency"), ("p99", "p99 latency")):
        if latency.value.missing(statistic):
            yield name, "—", "needs more calls"
        else:
            interval = latency.value.interval(statistic)
            value, span = estimate(latency.value.statistic(statistic), interval, latency.row.unit)
            yield name, value, f"95 %: {span}" if span else ""


def _rates(result: Result) -> Iterator[Tile]:
    for metric, name, note in (
        ("throughput", "throughput", "samples per second, on average"),
        ("request_rate", "requests", "answered per second"),
    ):
        measurement = result.find(metric)
        if measurement is not None:
            yield name, format_measurement(measurement), note
            return


def _memory(result: Result) -> Iterator[Tile]:
    used, computed = result.find("process_memory"), result.find("memory_peak")
    if used is not None and isinstance(used.value, Distribution):
        yield (
            "peak memory",
            format_quantity(used.value.statistic("max"), BYTES, 3),
            "measured, above baseline",
        )
    elif computed is not None:
        yield "peak memory", format_measurement(computed), "computed, not measured"


def _size(result: Result) -> Iterator[Tile]:
    parameters, weights = result.find("parameters"), result.find("weight_bytes")
    macs, peak = result.find("macs"), result.find("peak_flops", result.peaks_scope)
    if parameters is not None:
        yield (
            "parameters",
            format_measurement(parameters),
            f"{format_measurement(weights)} of weights" if weights else "",
        )
    if macs is not None:
        note = f"peak here {format_quantity(number(peak)[0], peak.row.unit, 3)}" if peak else ""
        yield "operations per call", amount(number(macs)[0], "MACs"), note

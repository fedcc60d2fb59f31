"""Lay out load curves and capacity searches as a page: throughput and latency by load, latency breakdown."""

from __future__ import annotations

from math import isfinite, nan
from typing import TYPE_CHECKING

from modeldyno.core.load.capacity import Capacity
from modeldyno.core.load.capacity_steps import RATE
from modeldyno.core.load.latency_breakdown import STAGES
from modeldyno.core.report.blocks import Block, Heading, Notice, Table, make_columns
from modeldyno.core.report.charts import AxisScale, Plot, ReferenceLine, Series, Stack
from modeldyno.core.stats.units import RATE as PER_SECOND
from modeldyno.core.stats.units import SECONDS
from modeldyno.views.load import series as load_series
from modeldyno.views.result.charts import draw_request_stages
from modeldyno.views.result.served import STAGE_NAMES
from modeldyno.views.text import exact_text
from modeldyno.views.view_options import PLAIN, ViewOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.core.load.load_curve import LoadCurve, LoadPoint
    from modeldyno.core.metrics.constraints import Answer

_LATENCIES = ("p50", "p95", "p99")
_WIDE = 8.0
"""Ratio of the largest to the smallest load from which on the axis is logarithmic."""


def page(document: LoadCurve | Capacity, options: ViewOptions = PLAIN) -> Iterator[Block]:
    """Lay out a load curve or a capacity search as a page."""
    laid = list(blocks(document, options))
    yield from (block for block in laid if isinstance(block, Notice))
    yield Heading(title="Throughput and latency by load")
    yield from pictures(document)
    yield Heading(title="The numbers")
    yield from (block for block in laid if not isinstance(block, Notice))


def blocks(document: LoadCurve | Capacity, options: ViewOptions = PLAIN) -> Iterator[Block]:
    """Lay out a load curve or a capacity search for a terminal; no option applies."""
    del options
    return (
        load_series.capacity_blocks(document)
        if isinstance(document, Capacity)
        else load_series.load_curve_blocks(document)
    )


def pictures(document: LoadCurve | Capacity) -> Iterator[Plot | Stack]:
    """Draw throughput, latency and latency breakdown by load."""
    rungs = sorted((rung for rung in document.rungs if not rung.failure), key=lambda rung: rung.load)
    bounds = document.search.bounds if isinstance(document, Capacity) else ()
    x = _scale(document.knob, [rung.load for rung in rungs])
    rates = _line(rungs, "throughput", "request_rate", None)
    if rates.x:
        yield Plot(
            title="Throughput by load",
            x=x,
            y=AxisScale(label="requests", unit=PER_SECOND),
            series=(rates,),
            rules=tuple(_marks(document)),
            note="with 95 % intervals",
        )
    times = [line for name in _LATENCIES if (line := _line(rungs, name, "latency", name)).x]
    if times:
        yield Plot(
            title="Latency by load",
            x=x,
            y=AxisScale(label="latency", unit=SECONDS, logarithmic=_spans_orders(times)),
            series=tuple(times),
            rules=tuple(
                ReferenceLine(name=str(bound), at=bound.bound)
                for bound in bounds
                if bound.query.metric == "latency" and bound.at_most
            ),
            note="with 95 % intervals; percentiles with too few samples are not drawn",
        )
    yield from _stages_chart(rungs, x.label)


def _scale(knob: str, loads: Sequence[float]) -> AxisScale:
    unit = PER_SECOND if knob == RATE else ""
    wide = bool(loads) and min(loads) > 0 and max(loads) >= _WIDE * min(loads)
    return AxisScale(label=knob, unit=unit, logarithmic=wide)


def _spans_orders(lines: Iterable[Series]) -> bool:
    values = [value for line in lines for value in line.y]
    return min(values) > 0 and max(values) > 5 * _WIDE * min(values)


def _line(rungs: Sequence[LoadPoint], name: str, metric: str, statistic: str | None) -> Series:
    points = [
        (rung.load, answer.value, *_ends(answer))
        for rung in rungs
        if (answer := rung.find(metric, statistic)) is not None and answer.value is not None
    ]
    return Series(
        name=name,
        x=tuple(load for load, *_ in points),
        y=tuple(value for _, value, *_ in points),
        low=tuple(low for *_, low, _ in points),
        high=tuple(high for *_, high in points),
    )


def _ends(answer: Answer) -> tuple[float, float]:
    bounds = answer.bounds()
    return (bounds.low, bounds.high) if isfinite(bounds.low) and isfinite(bounds.high) else (nan, nan)


def _marks(document: LoadCurve | Capacity) -> Iterator[ReferenceLine]:
    if isinstance(document, Capacity):
        if document.passed is not None:
            yield ReferenceLine(name="largest that passed", at=document.passed, vertical=True)
        if document.failed is not None:
            yield ReferenceLine(name="smallest that failed", at=document.failed, vertical=True)
    elif document.knee is not None:
        yield ReferenceLine(name="knee", at=document.knee.load, vertical=True)


def _stages_chart(rungs: Sequence[LoadPoint], knob: str) -> Iterator[Stack]:
    """Draw the breakdown of the mean service time by stage, with the unattributed rest."""
    stages_by_load: list[tuple[str, dict[str, float]]] = []
    for rung in rungs:
        parts = {
            STAGE_NAMES[metric]: answer.value
            for metric in STAGES
            if (answer := rung.find(metric) or rung.find(metric, "mean")) is not None and answer.value
        }
        whole = rung.find("service_time", "mean")
        if parts and whole is not None and whole.value and whole.value > sum(parts.values()):
            parts["other"] = whole.value - sum(parts.values())
        if parts:
            stages_by_load.append((f"{knob} {rung.load:g}", parts))
    yield from draw_request_stages(stages_by_load)


def headline(document: LoadCurve | Capacity) -> str:
    """Answer in one sentence: the knee of a curve, or the largest load that holds the bounds."""
    return (
        load_series.describe_capacity(document)
        if isinstance(document, Capacity)
        else load_series.describe_load_curve(document)
    )


def numbers(document: LoadCurve | Capacity) -> Table:
    """Tabulate every number of every load, in base units and unrounded."""
    return Table(
        title="Loads",
        columns=make_columns(f"{document.knob}>", "query", "value>", "low>", "high>", "failure"),
        rows=tuple(row for rung in document.rungs for row in _rows(rung)),
    )


def _rows(rung: LoadPoint) -> Iterator[tuple[str, ...]]:
    for answer in rung.answers:
        bounds = answer.bounds()
        figures = map(exact_text, (answer.value, bounds.low, bounds.high))
        yield repr(rung.load), str(answer.query), *figures, ""
    if rung.failure:
        yield repr(rung.load), "", "", "", "", rung.failure

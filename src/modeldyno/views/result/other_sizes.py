"""Computed totals at other input sizes, and lower bounds on latency for other devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.metrics.metric import METRICS
from modeldyno.core.report.blocks import Block, Table, clean, make_columns, note, shorten
from modeldyno.core.spec.devices import DEVICES
from modeldyno.core.static.roofline import Bound, limiting_resource
from modeldyno.core.stats.units import format_quantity
from modeldyno.views.text import NAME_LIMIT, TEXT_LIMIT, amount, batch_first, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.metrics.measurement import Measurement
    from modeldyno.core.result.result import Result
    from modeldyno.core.result.static_data import SizePoint, StaticReport

_WANTED = ("macs", "flops", "activation_peak", "memory_peak")
_TITLES = {
    "macs": "MACs", "flops": "FLOPs", "activation_peak": "activations", "memory_peak": "memory",
    "roofline_latency": "bound",
}  # fmt: skip
_LATENCIES = ("roofline_latency", "eager_latency", "decode_latency")
_ROOFS = {Bound.COMPUTE: "compute", Bound.MEMORY: "memory"}
_COLUMNS = 7
"""Most columns that fit 80 characters."""
_POINTS = 40


def grid(result: Result) -> Iterator[Block]:
    """Lay out the totals at the requested sizes, and their formulas."""
    outline = result.outline
    if outline is None or not outline.points:
        return
    names = batch_first(dict.fromkeys(name for point in outline.points for name in point.sizes))
    metrics = _metrics(outline)[: max(2, _COLUMNS - len(names))]
    titles = [*(shorten(clean(name), NAME_LIMIT) for name in names), *map(_title, metrics)]
    yield Table(
        title="At other sizes",
        columns=make_columns(*(f"{title}>" for title in titles)),
        rows=tuple(
            (*(_size(point, name) for name in names), *(_value(result, point, metric) for metric in metrics))
            for point in outline.points[:_POINTS]
        ),
    )
    yield from _formulas(outline)
    if len(outline.points) > _POINTS:
        more = len(outline.points) - _POINTS
        yield note(f"{more:,} more sizes are in the JSON output: --json PATH")


def _metrics(outline: StaticReport) -> list[str]:
    """Return the metrics to show: totals first, then the bounds of each device."""
    names = dict.fromkeys(name for point in outline.points for name in point.values)
    estimates = [name for name in names if name.partition("@")[0] == "roofline_latency"]
    return [*(name for name in _WANTED if name in names), *estimates]


def _title(metric: str) -> str:
    name, _, device = metric.partition("@")
    return " ".join(filter(None, (shorten(clean(device), 12), _TITLES.get(name, name))))


def _size(point: SizePoint, name: str) -> str:
    return f"{point.sizes[name]:,}" if name in point.sizes else "—"


def _value(result: Result, point: SizePoint, metric: str) -> str:
    """Format a number of a point; a lower bound or a total with uncounted operators with ``≥``."""
    if metric not in point.values:
        return "—"
    name = metric.partition("@")[0]
    text = format_quantity(point.values[metric], METRICS[name].unit, 3)
    measurement = result.find(name)
    uncounted = measurement is not None and measurement.interval is not None
    return f"≥ {text}" if uncounted or name.endswith("_latency") else text


def _formulas(outline: StaticReport) -> Iterator[Block]:
    rows = tuple(
        (shorten(clean(metric), NAME_LIMIT), shorten(clean(text), TEXT_LIMIT))
        for metric, text in outline.formulas.items()
        if text
    )
    if rows:
        yield Table(title="Formulas", columns=make_columns("", ""), rows=rows)
        if outline.domain:
            text = f"the formulas hold for {shorten(clean(outline.domain), TEXT_LIMIT)}"
            yield note(text)
    elif outline.traced:
        text = "no polynomial fits all of these sizes, so each was traced separately"
        yield note(text)


def device_bounds(result: Result) -> Iterator[Block]:
    """Tabulate lower bounds on the latency on each device, estimated from published peaks."""
    names = dict.fromkeys(m.scope for m in result.measurements if m.metric == "roofline_latency" and m.scope)
    rows = tuple(_device(result, name) for name in names)
    if rows:
        titles = ("device", "one call>", "op by op>", "one token>", "bound by", "peaks")
        generates = any(row[_TOKEN] != "—" for row in rows)
        kept = [place for place in range(len(titles)) if generates or place != _TOKEN]
        yield Table(
            title="Estimated lower bounds from the peaks of devices; nothing was run on them",
            columns=make_columns(*(titles[place] for place in kept)),
            rows=tuple(tuple(row[place] for place in kept) for row in rows),
        )
    if any(_is_tf32(result, name) for name in names):
        yield note("float32 has the peak of TF32 here, in which cuDNN's convolutions run by default")


_TOKEN = 3
"""Place of the time of a token, which only a model that generates text has."""


def _is_tf32(result: Result, name: str) -> bool:
    """Whether the peak of a device is that of TF32 and differs from that of float32."""
    peaks = DEVICES[name].flops if name in DEVICES else {}
    narrow = peaks.get("tf32")
    return narrow is not None and narrow == _number(result, "peak_flops", name) != peaks.get("float32")


def _device(result: Result, name: str) -> tuple[str, ...]:
    call, eager, token = (result.find(metric, name) for metric in _LATENCIES)
    flops, bandwidth = (_number(result, metric, name) for metric in ("peak_flops", "peak_bandwidth"))
    nouns = ((flops, "FLOP/s"), (bandwidth, "B/s"))
    peaks = ", ".join(amount(value, noun) if value else f"unknown {noun}" for value, noun in nouns)
    macs = _number(result, "causal_macs") or _number(result, "macs")
    seconds = 0.0 if call is None else number(call)[0]
    limit = _ROOFS[limiting_resource(2 * macs / flops if flops else 0.0, seconds)] if seconds else "—"
    return shorten(clean(name), 20), _bound(call), _bound(eager), _bound(token), limit, peaks


def _bound(measurement: Measurement | None) -> str:
    return (
        "—"
        if measurement is None
        else f"≥ {format_quantity(number(measurement)[0], measurement.row.unit, 3)}"
    )


def _number(result: Result, metric: str, scope: str = "") -> float:
    measurement = result.find(metric, scope)
    return 0.0 if measurement is None else number(measurement)[0]

"""What other sizes and devices would give: a grid of totals, and lower bounds that are no measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.block import Align, Block, Column, Notice, Severity, Table, clean, shorten
from modeldyno.core.metric import METRICS
from modeldyno.core.units import format_quantity
from modeldyno.views.words import NAME_LIMIT, TEXT_LIMIT, amount, number, ordered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.measurement import Measurement
    from modeldyno.core.outline import Outline, Point
    from modeldyno.core.result import Result

_WANTED = ("macs", "flops", "activation_peak", "memory_peak")
_TITLES = {
    "macs": "MACs", "flops": "FLOPs", "activation_peak": "activations", "memory_peak": "memory",
    "roofline_latency": "bound",
}  # fmt: skip
_LATENCIES = ("roofline_latency", "eager_latency", "decode_latency")
_COLUMNS = 7
"""That fit 80 columns of text."""
_POINTS = 40


def grid(result: Result) -> Iterator[Block]:
    """Show the totals at the sizes that were asked for, and the formulas that give them."""
    outline = result.outline
    if outline is None or not outline.points:
        return
    names = ordered(dict.fromkeys(name for point in outline.points for name in point.sizes))
    metrics = _metrics(outline)[: max(2, _COLUMNS - len(names))]
    titles = [*(shorten(clean(name), NAME_LIMIT) for name in names), *map(_title, metrics)]
    yield Table(
        title="At other sizes",
        columns=tuple(Column(title=title, align=Align.RIGHT) for title in titles),
        rows=tuple(
            (*(_size(point, name) for name in names), *(_value(point, metric) for metric in metrics))
            for point in outline.points[:_POINTS]
        ),
    )
    yield from _formulas(outline)
    if len(outline.points) > _POINTS:
        more = len(outline.points) - _POINTS
        yield Notice(severity=Severity.NOTE, text=f"{more:,} more sizes are in the document: --json PATH")


def _metrics(outline: Outline) -> list[str]:
    """Choose what is shown: totals first, then the bounds of each device."""
    known = dict.fromkeys(name for point in outline.points for name in point.values)
    estimates = [name for name in known if name.partition("@")[0] == "roofline_latency"]
    return [*(name for name in _WANTED if name in known), *estimates]


def _title(metric: str) -> str:
    name, _, device = metric.partition("@")
    return " ".join(filter(None, (shorten(clean(device), 12), _TITLES.get(name, name))))


def _size(point: Point, name: str) -> str:
    return f"{point.sizes[name]:,}" if name in point.sizes else "—"


def _value(point: Point, metric: str) -> str:
    if metric not in point.values:
        return "—"
    name = metric.partition("@")[0]
    shown = format_quantity(point.values[metric], METRICS[name].unit, 3)
    return f"≥ {shown}" if name.endswith("_latency") else shown


def _formulas(outline: Outline) -> Iterator[Block]:
    rows = tuple(
        (shorten(clean(metric), NAME_LIMIT), shorten(clean(text), TEXT_LIMIT))
        for metric, text in outline.formulas.items()
        if text
    )
    if rows:
        yield Table(title="In formulas", columns=(Column(title=""), Column(title="")), rows=rows)
    elif outline.traced:
        text = "no polynomial was found to hold at all of these sizes, so each was traced by itself"
        yield Notice(severity=Severity.NOTE, text=text)


def devices(result: Result) -> Iterator[Table]:
    """Show what a device could do at best; every figure is an estimate from published peaks."""
    names = dict.fromkeys(m.scope for m in result.measurements if m.metric == "roofline_latency" and m.scope)
    rows = tuple(_device(result, name) for name in names)
    if rows:
        titles = ("device", "one call >", "op by op >", "one token >", "bound by", "its peaks")
        yield Table(
            title="Estimates: lower bounds from the peaks of devices; nothing was run",
            columns=tuple(
                Column(
                    title=title.removesuffix(" >"), align=Align.RIGHT if title.endswith(">") else Align.LEFT
                )
                for title in titles
            ),
            rows=rows,
        )


def _device(result: Result, name: str) -> tuple[str, ...]:
    call, eager, token = (result.find(metric, name) for metric in _LATENCIES)
    flops, bandwidth = (_number(result, metric, name) for metric in ("peak_flops", "peak_bandwidth"))
    nouns = ((flops, "FLOP/s"), (bandwidth, "B/s"))
    peaks = ", ".join(amount(value, noun) for value, noun in nouns if value)
    seconds = 0.0 if call is None else number(call)[0]
    bounds = (_bound(call), _bound(eager), _bound(token))
    return shorten(clean(name), 20), *bounds, _bound_by(result, flops, seconds), peaks


def _bound(found: Measurement | None) -> str:
    return "—" if found is None else f"≥ {format_quantity(number(found)[0], found.row.unit, 3)}"


def _number(result: Result, metric: str, scope: str = "") -> float:
    found = result.find(metric, scope)
    return 0.0 if found is None else number(found)[0]


def _bound_by(result: Result, flops: float, seconds: float) -> str:
    """Say which roof is the lower one: computing alone takes all of the time, or memory takes longer."""
    macs = _number(result, "causal_macs") or _number(result, "macs")
    if not flops or not seconds:
        return "—"
    return "arithmetic" if 2 * macs / flops > seconds * _ALL else "memory"


_ALL = 0.999

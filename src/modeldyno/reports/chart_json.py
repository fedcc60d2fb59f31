"""Charts as compact JSON for the script of an HTML report; names and columns are stored once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from modeldyno.base.report.axes import axes_of, draw_axis, finite, has_room_at_left
from modeldyno.base.report.charts import AxisScale, Bins, Forest, Parallel, Plot, Stack, Tree, Waterfall
from modeldyno.base.stats.units import KINDS, display_units, format_axis
from modeldyno.base.views.chart_text import describe_chart, step_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from modeldyno.base.report.axes import DrawnAxis
    from modeldyno.base.report.charts import Effect, Picture, ReferenceLine, Series, TreeNode

_DIGITS = 4
"""Significant digits of a number; charts show no more."""
_ACTIVE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
"""Escapes for characters that could close the script element or open another."""


@dataclass(frozen=True, slots=True)
class SharedValues:
    """Names and columns that charts share; each is stored once and referred to by its index."""

    names: dict[str, int] = field(default_factory=dict)
    columns: dict[tuple[float | None, ...], int] = field(default_factory=dict)

    def name(self, text: str) -> int:
        """Store a name and return its index."""
        return self.names.setdefault(text, len(self.names))

    def column(self, values: Iterable[float | None]) -> int:
        """Store a column of numbers and return its index; missing and non-finite numbers are None."""
        rounded = tuple(None if value is None else _rounded(value) for value in values)
        return self.columns.setdefault(rounded, len(self.columns))

    def labels(self, texts: Iterable[str]) -> int:
        """Store a column of names and return its index."""
        numbers = tuple(self.name(text) for text in texts)
        return self.columns.setdefault(numbers, len(self.columns))


def charts_as_json(pictures: Iterable[Picture]) -> str:
    """Write charts as ASCII JSON that is safe inside a script element."""
    shared = SharedValues()
    drawings = [
        {
            "kind": type(picture).__name__.lower(),
            "description": describe_chart(picture),
            **_picture_data(picture, shared),
        }
        for picture in pictures
    ]
    document = {"names": list(shared.names), "columns": list(shared.columns), "pictures": drawings}
    text = json.dumps(document, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.translate(_ACTIVE)


def _picture_data(picture: Picture, shared: SharedValues) -> dict[str, Any]:  # noqa: PLR0911 - one for each kind of chart
    match picture:
        case Plot():
            axes = axes_of(picture)
            return {
                "x": _scale_data(picture.x),
                "y": _scale_data(picture.y),
                "axes": [_axis_data(axis) for axis in axes],
                "series": [_series_data(series, shared) for series in picture.series],
                "rules": [_rule_data(rule, picture, *axes) for rule in picture.rules],
                "bands": [
                    {"name": b.name, "low": _rounded(b.low), "high": _rounded(b.high)} for b in picture.bands
                ],
                "stacked": picture.stacked,
            }
        case Bins():
            return {
                "scale": _scale_data(picture.scale),
                "edges": list(picture.edges),
                "labels": format_axis(picture.edges, picture.scale.unit),
                "counts": list(picture.counts),
                "beyond": picture.beyond,
                "reach": picture.reach,
                "counted": picture.counted,
                "marks": [{"name": rule.name, "at": rule.at} for rule in picture.marks],
            }
        case Stack():
            return {
                "scale": _scale_data(picture.scale),
                "bars": picture.bars,
                "parts": [_series_data(part, shared) for part in picture.parts],
            }
        case Tree():
            return {"scale": _scale_data(picture.scale), "root": _node_data(picture.root)}
        case Forest():
            return {"effects": [_effect_data(effect) for effect in picture.effects]}
        case Parallel():
            return _parallel_data(picture, shared)
        case Waterfall():
            return {"scale": _scale_data(picture.scale), "steps": list(_steps_data(picture))}


def _parallel_data(picture: Parallel, shared: SharedValues) -> dict[str, Any]:
    """Return a column for each scale with a value per line; marked lines come last, on top."""
    lines = sorted(picture.lines, key=lambda line: line.marked)
    places = [dict(zip(line.x, line.y, strict=True)) for line in lines]
    columns = [finite(line[at] for line in places if at in line) for at in range(len(picture.scales))]
    pairs = zip(picture.scales, columns, strict=True)
    axes = (draw_axis(scale, column, tight=True) for scale, column in pairs)
    return {
        "scales": [_scale_data(scale) for scale in picture.scales],
        "axes": [_axis_data(axis) for axis in axes],
        "names": shared.labels(line.name for line in lines),
        "values": [
            shared.column(line.get(float(at)) for line in places) for at in range(len(picture.scales))
        ],
        "marked": sum(line.marked for line in lines),
    }


def _steps_data(picture: Waterfall) -> Iterator[dict[str, Any]]:
    for step, (begin, end) in zip(picture.steps, picture.spans, strict=True):
        yield {
            "name": step.name,
            "begin": _rounded(begin),
            "end": _rounded(end),
            "low": None if step.low is None else _rounded(begin + step.low),
            "high": None if step.high is None else _rounded(begin + step.high),
            "kind": "sum" if step.is_sum else "rest" if step.is_rest else "part",
            "text": step_texts(step, picture.scale),
        }


def _scale_data(scale: AxisScale) -> dict[str, Any]:
    unit_sizes = display_units(scale.unit) if scale.unit in KINDS else ((0.0, 1.0, f" {scale.unit}"),)
    return {
        "label": scale.label,
        "sizes": unit_sizes,
        **({"categories": scale.categories} if scale.categories else {}),
    }


def _axis_data(axis: DrawnAxis | None) -> dict[str, Any] | None:
    if axis is None:
        return None
    ends = {name: float(f"{getattr(axis, name):.8g}") for name in ("low", "high")}
    ticks = [(float(f"{at:.8g}"), text) for at, text in axis.ticks]
    return {"title": axis.title, "size": axis.size, **ends, "logarithmic": axis.logarithmic, "ticks": ticks}


def _rule_data(rule: ReferenceLine, plot: Plot, x: DrawnAxis | None, y: DrawnAxis | None) -> dict[str, Any]:
    axis = x if rule.vertical else y
    beyond = 0 if axis is None else axis.beyond(rule.at)
    left = not rule.vertical and not beyond and has_room_at_left(plot, rule.at, x, y)
    return {
        "name": rule.name,
        "at": _rounded(rule.at),
        "vertical": rule.vertical,
        **({"beyond": beyond} if beyond else {}),
        **({"left": True} if left else {}),
    }


def _series_data(series: Series, shared: SharedValues) -> dict[str, Any]:
    return {
        "name": series.name,
        "x": shared.column(series.x),
        "y": shared.column(series.y),
        "joined": series.joined,
        "marked": series.marked,
        **({"named": series.named} if series.named else {}),
        **({"hollow": series.hollow} if series.hollow else {}),
        **({} if series.tint is None else {"tint": series.tint}),
        **({"labels": shared.labels(series.labels)} if series.labels else {}),
        **({"low": shared.column(series.low), "high": shared.column(series.high)} if series.low else {}),
    }


def _node_data(node: TreeNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "value": _rounded(node.value),
        "detail": node.detail,
        "children": [_node_data(child) for child in node.children],
    }


def _effect_data(effect: Effect) -> dict[str, Any]:
    numbers = {name: _rounded(getattr(effect, name)) for name in ("value", "low", "high", "smallest")}
    return {"name": effect.name, "outcome": effect.outcome, **numbers}


def _rounded(value: float) -> float | None:
    """Round a number to the digits of a chart; None if it is not finite."""
    if not isfinite(value):
        return None
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < _LONG else rounded


_LONG = 1e15

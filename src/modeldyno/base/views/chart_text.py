"""Text alternative of a chart: a sentence and a table, for screen readers and formats without charts."""

from __future__ import annotations

from math import inf, isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

from modeldyno.base.report.blocks import Table, make_table
from modeldyno.base.report.charts import AxisScale, Bins, Forest, Parallel, Plot, Stack, Tree, Waterfall
from modeldyno.base.stats.units import KINDS, format_axis, format_change, format_changes, format_quantity
from modeldyno.base.views.text import count, estimate_near_zero, share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.base.report.charts import Effect, Picture, Series, TreeNode, WaterfallStep

_Rows: TypeAlias = "tuple[tuple[str, ...], list[tuple[str, ...]]]"
"""Titles of the columns, and the cells."""
_MOST, _NAMED = 60, 8
"""Most rows of a chart's table, and most series named in a sentence."""


def describe_chart(picture: Picture) -> str:
    """Describe a chart in a sentence: its axes, its range or peak, its marks."""
    describe, _ = _TEXTS[type(picture)]
    return describe(picture)


def chart_numbers(picture: Picture) -> Table | None:
    """Return the numbers of a chart as a table; None if there are too many to read."""
    _, tabulate = _TEXTS[type(picture)]
    titles, rows = ((), []) if tabulate is None else tabulate(picture)
    return make_table(picture.title, titles, rows) if 0 < len(rows) <= _MOST else None


def format_on_axis(value: float, scale: AxisScale) -> str:
    """Format a value as its axis shows it."""
    if scale.categories:
        place = round(value)
        return scale.categories[place] if 0 <= place < len(scale.categories) else "another"
    return format_quantity(value, scale.unit, 3) if scale.unit in KINDS else f"{value:g} {scale.unit}".strip()


def _range_text(values: Sequence[float], scale: AxisScale) -> str:
    """Format the range of values: ``low to high``."""
    ends = dict.fromkeys(format_on_axis(end, scale) for end in (min(values), max(values)))
    return " to ".join(ends)


# --- histograms ------------------------------------------------------------------------------------


def _describe_bins(picture: Bins) -> str:
    labels = format_axis(picture.edges, picture.scale.unit)
    peak = max(range(len(picture.counts)), key=picture.counts.__getitem__)
    beyond = f"; {picture.beyond:,.0f} lie above" if picture.beyond else ""
    return (
        f"Histogram of {picture.scale.label} from {labels[0]} to {labels[-1]}; the fullest bin, "
        f"{labels[peak]} to {labels[peak + 1]}, has {picture.counts[peak]:,.0f} of "
        f"{sum(picture.bars):,.0f} {picture.counted}{beyond}."
    )


def _bins_rows(picture: Bins) -> _Rows:
    edges = [*format_axis(picture.edges, picture.scale.unit), format_on_axis(picture.reach, picture.scale)]
    rows: list[tuple[str, ...]] = [
        (edges[place], edges[place + 1], f"{number:,.0f}") for place, number in enumerate(picture.bars)
    ]
    return ("from>", "to>", f"{picture.counted}>"), rows


# --- plots -----------------------------------------------------------------------------------------


def _describe_plot(picture: Plot) -> str:
    kind = "Areas of" if picture.stacked else "Plot of"
    parts = [
        f"{series.name}: {count(len(series.x), 'point')}, "
        f"{picture.x.label} {_range_text(series.x, picture.x)}, "
        f"{picture.y.label} {_range_text(series.y, picture.y)}"
        for series in picture.series[:_NAMED]
        if series.x
    ]
    more = len(picture.series) - _NAMED
    parts += [f"and {count(more, 'series', 'series')} more"] if more > 0 else []
    parts += [
        f"line {rule.name} at {format_on_axis(rule.at, picture.x if rule.vertical else picture.y)}"
        for rule in picture.rules
    ]
    parts += [f"shaded: {band.name}" for band in picture.bands]
    return f"{kind} {picture.y.label} against {picture.x.label}. {'; '.join(parts)}."


def _plot_rows(picture: Plot) -> _Rows:
    rows = [
        (
            series.name,
            *((series.labels[place] if series.labels else "",) if _has_labels(picture) else ()),
            format_on_axis(x, picture.x),
            _value_with_interval(series, place, picture.y),
        )
        for series in picture.series
        for place, x in enumerate(series.x)
    ]
    named = ("point",) if _has_labels(picture) else ()
    return ("", *named, f"{picture.x.label}>", f"{picture.y.label}>"), rows


def _has_labels(picture: Plot) -> bool:
    return any(series.labels for series in picture.series)


def _value_with_interval(series: Series, place: int, scale: AxisScale) -> str:
    text = format_on_axis(series.y[place], scale)
    if not series.low or not isfinite(series.low[place]) or not isfinite(series.high[place]):
        return text
    return (
        f"{text} ({format_on_axis(series.low[place], scale)} to {format_on_axis(series.high[place], scale)})"
    )


# --- stacks ----------------------------------------------------------------------------------------


def _describe_stack(picture: Stack) -> str:
    sums = dict.fromkeys(range(len(picture.bars)), 0.0)
    for part in picture.parts:
        for bar, size in zip(part.x, part.y, strict=True):
            sums[round(bar)] += size
    largest = max(picture.parts, key=lambda part: sum(part.y))
    total = sum(sums.values())
    return (
        f"{count(len(picture.bars), 'bar')} of {picture.scale.label}, "
        f"{_range_text(tuple(sums.values()), picture.scale)}, each divided into "
        f"{', '.join(part.name for part in picture.parts)}; the largest part is {largest.name}, "
        f"with {share(sum(largest.y), total)} of all."
    )


def _stack_rows(picture: Stack) -> _Rows:
    part_sizes = [dict(zip(map(round, part.x), part.y, strict=True)) for part in picture.parts]
    rows = [
        (name, *(format_on_axis(part[bar], picture.scale) if bar in part else "—" for part in part_sizes))
        for bar, name in enumerate(picture.bars)
    ]
    return ("", *(f"{part.name}>" for part in picture.parts)), rows


# --- trees -----------------------------------------------------------------------------------------


def _describe_tree(picture: Tree) -> str:
    root = picture.root
    largest = sorted(root.children, key=lambda node: -node.value)[:3]
    named = ", ".join(f"{node.name} ({share(node.value, root.value)})" for node in largest)
    return (
        f"{picture.scale.label} of {format_on_axis(root.value, picture.scale)} in total, "
        f"divided among {count(sum(1 for _ in _nodes(root)) - 1, 'part')}; the largest: {named}."
    )


def _nodes(node: TreeNode) -> Iterator[TreeNode]:
    yield node
    for child in node.children:
        yield from _nodes(child)


# --- forests ---------------------------------------------------------------------------------------


def _describe_forest(picture: Forest) -> str:
    parts = (
        f"{effect.name} {format_change(effect.value)}, {effect.outcome}"
        for effect in picture.effects[:_NAMED]
    )
    more = len(picture.effects) - _NAMED
    omitted = f"; and {more} more" if more > 0 else ""
    return f"Differences with their 95 % intervals: {'; '.join(parts)}{omitted}."


def _forest_rows(picture: Forest) -> _Rows:
    rows: list[tuple[str, ...]] = [
        (
            effect.name,
            format_change(effect.value),
            _interval_text(effect),
            format_change(effect.smallest),
            effect.outcome,
        )
        for effect in picture.effects
    ]
    return ("", "difference>", "95 % interval", "smallest that matters>", "verdict"), rows


def _interval_text(effect: Effect) -> str:
    if effect.low == -inf and effect.high == inf:
        return "unknown"
    if effect.high == inf:
        return f"at least {format_change(effect.low)}"
    if effect.low == -inf:
        return f"at most {format_change(effect.high)}"
    return format_changes(effect.low, effect.high)


# --- parallel coordinates --------------------------------------------------------------------------


def _describe_parallel(picture: Parallel) -> str:
    axes = ", ".join(scale.label for scale in picture.scales)
    marked = next((line.name for line in picture.lines if line.marked), "")
    best = f"; highlighted: {marked}" if marked else ""
    return f"{count(len(picture.lines), 'line')} across {axes}{best}."


# --- waterfalls ------------------------------------------------------------------------------------


def step_texts(step: WaterfallStep, scale: AxisScale) -> tuple[str, str]:
    """Format the size of a step, and its interval if that is known."""
    if step.size is None:
        return "unknown", ""
    if step.low is None or step.high is None:
        return format_on_axis(step.size, scale), ""
    if step.low == step.high:
        return format_on_axis(step.size, scale), "computed"
    if scale.unit not in KINDS:
        ends = (format_on_axis(end, scale) for end in (step.low, step.high))
        return format_on_axis(step.size, scale), " to ".join(ends)
    return estimate_near_zero(step.size, step.low, step.high, scale.unit)


def _describe_waterfall(picture: Waterfall) -> str:
    parts = (f"{step.name} {step_texts(step, picture.scale)[0]}" for step in picture.steps)
    return f"Waterfall of {picture.scale.label}, each step from the end of the last: {'; '.join(parts)}."


def _waterfall_rows(picture: Waterfall) -> _Rows:
    rows: list[tuple[str, ...]] = [
        (step.name, *step_texts(step, picture.scale), format_on_axis(end, picture.scale))
        for step, (_, end) in zip(picture.steps, picture.spans, strict=True)
    ]
    return ("", f"{picture.scale.label}>", "95 % interval", "up to there>"), rows


_TEXTS: dict[type[Any], tuple[Callable[[Any], str], Callable[[Any], _Rows] | None]] = {
    Bins: (_describe_bins, _bins_rows),
    Plot: (_describe_plot, _plot_rows),
    Stack: (_describe_stack, _stack_rows),
    Tree: (_describe_tree, None),
    Forest: (_describe_forest, _forest_rows),
    Parallel: (_describe_parallel, None),
    Waterfall: (_describe_waterfall, _waterfall_rows),
}
"""Kind of chart to what describes it in a sentence, and what makes rows of its numbers."""

"""Draws a few quantities over time as SVG, below each other: without scripts, in the colours of the page."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.core.stats.units import format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

_WIDTH, _HEIGHT = 460.0, 96.0
"""Of a panel, without its title."""
_LEFT, _TITLE, _GAP, _FOOT = 72.0, 24.0, 14.0, 26.0
_TICKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLine:
    """A line; None where there is nothing, which breaks it."""

    name: str
    y: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePanel:
    """Lines on one scale from 0."""

    title: str
    unit: str
    lines: tuple[TimeLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeChart:
    """Panels over the same seconds."""

    title: str
    seconds: tuple[float, ...]
    """Where each value begins, rising."""
    panels: tuple[TimePanel, ...]


def write_chart(chart: TimeChart) -> str:
    """Write a chart as an SVG element; its colours are those of the style sheet."""
    step = _TITLE + _HEIGHT + _GAP
    height = len(chart.panels) * step + _FOOT
    drawn = "".join(
        part for place, panel in enumerate(chart.panels) for part in _panel(chart, panel, place * step)
    )
    ticks = "".join(_time_axis(chart, height - _FOOT - _GAP + 16))
    return (
        f'<svg class="diagram time" viewBox="0 0 {_WIDTH:.0f} {height:.0f}" width="{_WIDTH:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{html.escape(_describe(chart))}">{drawn}{ticks}</svg>'
    )


def _describe(chart: TimeChart) -> str:
    """Say in words what the chart shows last."""
    newest = [
        f"{panel.title}: "
        + ", ".join(
            f"{line.name} {_quantity(line.y[-1], panel.unit)}"
            for line in panel.lines
            if line.y and line.y[-1] is not None
        )
        for panel in chart.panels
    ]
    return f"{chart.title}. Last: {'; '.join(newest)}"


def _quantity(value: float | None, unit: str) -> str:
    return "none" if value is None else format_quantity(value, unit, 3) if unit else f"{value:,g}"


def _panel(chart: TimeChart, panel: TimePanel, top: float) -> Iterator[str]:
    high = max((y for line in panel.lines for y in line.y if y is not None), default=0.0) or 1.0
    foot = top + _TITLE + _HEIGHT
    yield f'<text class="title" x="{_LEFT:.1f}" y="{top + 14:.1f}">{html.escape(panel.title)}</text>'
    x = _WIDTH
    for place, line in reversed(list(enumerate(panel.lines))):
        x -= 7.0 * len(line.name) + 26
        yield (
            f'<line class="line c{place + 1}" x1="{x:.1f}" x2="{x + 14:.1f}" y1="{top + 10:.1f}" '
            f'y2="{top + 10:.1f}"/><text class="small" x="{x + 18:.1f}" y="{top + 14:.1f}">'
            f"{html.escape(line.name)}</text>"
        )
    for share in (0.0, 0.5, 1.0):
        y = foot - share * _HEIGHT
        yield f'<line class="grid" x1="{_LEFT:.1f}" x2="{_WIDTH:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield (
            f'<text class="small" x="{_LEFT - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">'
            f"{html.escape(_quantity(share * high, panel.unit)) if share else '0'}</text>"
        )
    for place, line in enumerate(panel.lines):
        points = [
            None if y is None else f"{_x(chart, at):.1f} {foot - y / high * _HEIGHT:.1f}"
            for at, y in zip(chart.seconds, line.y, strict=True)
        ]
        for stretch in _stretches(points):
            dot = " dot" if len(stretch) == 1 else ""
            path = "L".join(stretch if not dot else stretch * 2)
            yield f'<path class="line c{place + 1}{dot}" d="M{path}"/>'


def _stretches(points: list[str | None]) -> Iterator[list[str]]:
    """Yield the points between two gaps."""
    stretch: list[str] = []
    for point in (*points, None):
        if point is not None:
            stretch.append(point)
        elif stretch:
            yield stretch
            stretch = []


def _x(chart: TimeChart, at: float) -> float:
    first, last = chart.seconds[0], chart.seconds[-1]
    return _LEFT + (_WIDTH - _LEFT - 4) * ((at - first) / (last - first) if last > first else 1.0)


def _time_axis(chart: TimeChart, y: float) -> Iterator[str]:
    if not chart.seconds:
        return
    count = len(chart.seconds)
    places = sorted({round(n * (count - 1) / (_TICKS - 1)) for n in range(_TICKS)})
    for place in places:
        at = chart.seconds[place]
        anchor = "end" if place == count - 1 else "start" if place == 0 else "middle"
        yield (
            f'<text class="small" x="{_x(chart, at):.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{at:,.0f} s</text>"
        )

"""Draws boxes and arrows as SVG: without scripts, with links, in the colours of the page."""

from __future__ import annotations

import html
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from modeldyno.base.report.axes import draw_axis
from modeldyno.base.report.charts import AxisScale
from modeldyno.base.stats.units import format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Box:
    """A box, its words, and what it leads to."""

    x: float
    y: float
    width: float
    height: float
    _: KW_ONLY
    title: str
    kind: str = ""
    """Beside the title."""
    notes: tuple[str, ...] = ()
    """Lines below the title."""
    address: str = ""
    part: float = 0.0
    """Length of the bar at its foot, from 0 to 1."""
    style: str = "plain"
    """``plain``, ``frame`` for what others stand in, ``round`` for a join or an end, or a severity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """A line through points, with a head at its end."""

    points: tuple[tuple[float, float], ...]
    label: str = ""
    faint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagram:
    """Boxes and arrows; the ones that come later lie above."""

    title: str
    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...] = ()


def write_svg(diagram: Diagram) -> str:
    """Write a diagram as an SVG element; its colours are those of the style sheet."""
    frames = [box for box in diagram.boxes if box.style == "frame"]
    others = [box for box in diagram.boxes if box.style != "frame"]
    drawn = [
        *(part for box in frames for part in _box(box)),
        *(part for arrow in diagram.arrows for part in _arrow(arrow)),
        *(part for box in others for part in _box(box)),
    ]
    size = f"{diagram.width:.0f} {diagram.height:.0f}"
    return (
        f'<svg class="diagram" viewBox="0 0 {size}" width="{diagram.width:.0f}" '
        f'height="{diagram.height:.0f}" role="group" aria-label="{html.escape(diagram.title)}">'
        f"{''.join(drawn)}</svg>"
    )


_CHARACTER, _SMALL = 6.7, 5.9
"""Widths of a character of a title and of a note, on average."""
_LINE = 15.0
_MARGIN = 10.0


def _box(box: Box) -> Iterator[str]:
    shape = (
        f'<rect class="box {html.escape(box.style)}" x="{box.x:.1f}" y="{box.y:.1f}" '
        f'width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="{box.height / 2 if box.style == "round" else 6:.1f}"/>'
    )
    room = box.width - 2 * _MARGIN
    middle = box.style == "round"
    x = box.x + box.width / 2 if middle else box.x + _MARGIN
    anchor = ' text-anchor="middle"' if middle else ""
    title = _fit(box.title, room / _CHARACTER)
    kind = _fit(box.kind, max(0.0, room - len(title) * _CHARACTER) / _SMALL - 1) if box.kind else ""
    beside = f' <tspan class="small" dx="4">{html.escape(kind)}</tspan>' if kind else ""
    lines = [("title", html.escape(title) + beside)]
    lines += [("small", html.escape(_fit(note, room / _SMALL))) for note in box.notes if note]
    first = box.y + (16 if box.style == "frame" else (box.height - _LINE * (len(lines) - 1)) / 2 + 4)
    texts = " ".join(  # a link is named by its words
        f'<text class="{style}" x="{x:.1f}" y="{first + _LINE * place:.1f}"{anchor}>{text}</text>'
        for place, (style, text) in enumerate(lines)
    )
    bar = ""
    if box.part > 0:
        length = max(1.5, (box.width - 12) * min(1.0, box.part))
        foot = box.y + box.height - 4
        bar = f'<rect class="bar" x="{box.x + 6:.1f}" y="{foot:.1f}" width="{length:.1f}" height="4"/>'
    if box.address:
        yield f'<a href="{html.escape(box.address)}">{shape}{bar}{texts}</a>'
    else:
        hint = html.escape(", ".join(filter(None, (box.title, box.kind, *box.notes))))
        yield f"<g><title>{hint}</title>{shape}{bar}{texts}</g>"


def _fit(text: str, most: float) -> str:
    room = max(1, int(most))
    return text if len(text) <= room else f"{text[: room - 1]}…"


_HEAD = 4.0


def _arrow(arrow: Arrow) -> Iterator[str]:
    """Write a line with rounded corners, and its head in the direction in which it ends."""
    kind = "arrow faint" if arrow.faint else "arrow"
    (before_x, before_y), (x, y) = arrow.points[-2:]
    path = f"M{arrow.points[0][0]:.1f} {arrow.points[0][1]:.1f}" + "".join(
        f"L{at_x:.1f} {at_y:.1f}" for at_x, at_y in arrow.points[1:]
    )
    if abs(x - before_x) > abs(y - before_y):
        back = -_HEAD * 1.6 if x > before_x else _HEAD * 1.6
        head = f"{x:.1f},{y:.1f} {x + back:.1f},{y - _HEAD:.1f} {x + back:.1f},{y + _HEAD:.1f}"
    else:
        back = -_HEAD * 1.6 if y > before_y else _HEAD * 1.6
        head = f"{x:.1f},{y:.1f} {x - _HEAD:.1f},{y + back:.1f} {x + _HEAD:.1f},{y + back:.1f}"
    yield f'<path class="{kind}" d="{path}"/><polygon class="{kind} head" points="{head}"/>'
    if arrow.label:
        yield (
            f'<text class="small" x="{(before_x + x) / 2:.1f}" y="{(before_y + y) / 2 - 4:.1f}" '
            f'text-anchor="middle">{html.escape(arrow.label)}</text>'
        )


# --- quantities over time -------------------------------------------------------------------------


_WIDTH, _HEIGHT = 460.0, 96.0
"""Of a panel, without its title."""
_LEFT, _TITLE, _GAP, _FOOT = 72.0, 24.0, 14.0, 26.0
_LINES = 5
"""Ticks of a panel from which on every other one is left out."""


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
    values = [y for line in panel.lines for y in line.y if y is not None]
    axis = draw_axis(AxisScale(label=panel.title, unit=panel.unit), [0.0, *values])
    assert axis is not None
    foot = top + _TITLE + _HEIGHT
    yield f'<text class="title" x="{_LEFT:.1f}" y="{top + 14:.1f}">{html.escape(axis.title)}</text>'
    x = _WIDTH
    for place, line in reversed(list(enumerate(panel.lines))):
        x -= 7.0 * len(line.name) + 26
        yield (
            f'<line class="line c{place + 1}" x1="{x:.1f}" x2="{x + 14:.1f}" y1="{top + 10:.1f}" '
            f'y2="{top + 10:.1f}"/><text class="small" x="{x + 18:.1f}" y="{top + 14:.1f}">'
            f"{html.escape(line.name)}</text>"
        )
    for at, tick in axis.ticks[:: 1 + len(axis.ticks) // _LINES]:
        y = foot - at / axis.high * _HEIGHT
        yield f'<line class="grid" x1="{_LEFT:.1f}" x2="{_WIDTH:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="small" x="{_LEFT - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{tick}</text>'
    for place, line in enumerate(panel.lines):
        points = [
            None if y is None else f"{_x(chart, at):.1f} {foot - axis.share(y) * _HEIGHT:.1f}"
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
    axis = draw_axis(AxisScale(label="time"), chart.seconds, tight=True)
    assert axis is not None
    for at, tick in axis.ticks if chart.seconds else ():
        x = _x(chart, at * axis.size)
        anchor = "end" if x > _WIDTH - 20 else "start" if x < _LEFT + 10 else "middle"
        yield f'<text class="small" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{tick} s</text>'


_CURVE_WIDTH, _CURVE_HEIGHT = 120.0, 28.0
_CURVE_SPREAD = 0.15
"""Least share of a figure that the height of its curve is worth: else noise would look like changes."""


def draw_curve(values: Sequence[float], title: str) -> str:
    """Draw how a figure has changed, without axes; a change of a few percent is a small one."""
    low, high = min(values), max(values)
    middle = (low + high) / 2
    spread = max(high - low, _CURVE_SPREAD * abs(middle)) or 1.0
    step = _CURVE_WIDTH / max(1, len(values) - 1)
    points = [
        (at * step, _CURVE_HEIGHT * (0.5 - (value - middle) / spread)) for at, value in enumerate(values)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    end = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return (
        f'<svg class="curve" viewBox="-3 -3 {_CURVE_WIDTH + 6:g} {_CURVE_HEIGHT + 6:g}" role="img" '
        f'preserveAspectRatio="none" aria-label="{html.escape(title)}"><polyline points="{line}"/>{end}</svg>'
    )

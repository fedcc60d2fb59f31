"""Draws a chart as a picture with Matplotlib: what the page of a report shows of it, on white.

Colours, dashes and marks are those of the page. No text is read as markup: names may hold dollar signs.
"""

from __future__ import annotations

import math
import textwrap
import warnings
from collections import Counter
from contextlib import contextmanager
from io import BytesIO
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from modeldyno.base import plugins
from modeldyno.base.report.axes import LARGEST, axes_of, draw_axis, finite, has_room_at_left
from modeldyno.base.report.charts import Bins, Forest, Parallel, Picture, Plot, Stack, Tree, Waterfall
from modeldyno.base.stats.sanitize import shorten
from modeldyno.base.stats.units import KINDS, display_units, format_axis, format_number
from modeldyno.base.views.chart_text import describe_chart, step_texts
from modeldyno.base.views.text import keep_ending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from modeldyno.base.report.axes import DrawnAxis
    from modeldyno.base.report.blocks import Block
    from modeldyno.base.report.charts import AxisScale, Effect, ReferenceLine, Series, TreeNode

_WIDTH = 7.6
"""Inches; so are the heights."""
_DOTS = 200
"""Dots an inch of a PNG: sharp on dense screens."""
_TEXT, _SOFT, _LINE, _SHADE, _BACK = "#1c2128", "#59636e", "#b7bec6", "#eceff2", "#ffffff"
_COLOURS = ("#0b63b0", "#d1620a", "#00806a", "#a8488a", "#8a6d00", "#4a9fd8", "#5b5f66")
_OUTCOMES = {"better": "#1a7f37", "worse": "#c4242f", "undecided": "#8f6400"}
_MARKS = ("o", "^", "s", "D", "v", "P", "X")
_DASHES: tuple[Any, ...] = ("-", "--", ":", (0, (8, 3, 2, 3)), (0, (2, 2)), (0, (12, 4)), (0, (6, 2, 2, 2)))
_SETTINGS: Any = {
    "svg.fonttype": "none",  # text stays text: searched, copied, and in every script that the reader has
    "svg.hashsalt": "modeldyno",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": _TEXT,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": False,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
}
_LINE_LENGTH, _NAME, _LEGEND = 110, 34, 14
"""Characters of a line across the picture and of a name in it; names in a legend."""
_DENSE, _CLOUD = 60, 40
"""Points from which a line has no marks, and unjoined points are a cloud."""
_CHANGES = (
    0, -0.5, 1, -0.9, 9, -0.99, 99, 999, -0.2, 0.25, -0.8, 4, -0.3, 0.5, -0.1, 0.1, 0.2, -0.05, 0.05,
    -0.02, 0.02, -0.01, 0.01,
)  # fmt: skip
"""Ticks of an axis of changes, the most wanted first."""


def draw(picture: Picture, form: str, subtitle: str = "") -> bytes:
    """Draw a chart as ``svg`` or ``png``; the subtitle says of what it is.

    Raises:
        MissingExtra: Matplotlib is not installed.
    """
    with _drawing(_height(picture)) as figure:
        top = _write_titles(figure, picture.title, subtitle)
        bottom = _write_note(figure, picture.note)
        height = figure.get_figheight()
        free = (0.01, bottom / height, 0.98, 1 - (top + bottom) / height)
        figure.set_layout_engine("constrained", rect=free)
        _DRAWERS[type(picture)](figure.subplots(), picture)
        return _written(figure, form, picture.title, describe_chart(picture))


def draw_first(blocks: Iterable[Block], title: str, form: str) -> bytes:
    """Draw the first chart of blocks, or the title if there is none.

    Raises:
        MissingExtra: Matplotlib is not installed.
    """
    chart = next((block for block in blocks if isinstance(block, Picture)), None)
    return _draw_text(title, form) if chart is None else draw(chart, form, title)


def _draw_text(text: str, form: str) -> bytes:
    lines = _wrapped(text, 76, 5)
    with _drawing(0.6 + 0.22 * len(lines)) as figure:
        figure.text(0.04, 0.5, "\n".join(lines), va="center", fontsize=11, linespacing=1.4)
        return _written(figure, form, "No chart", text)


def check_tools() -> None:
    """Look for Matplotlib.

    Raises:
        MissingExtra: it is not installed.
    """
    plugins.require(("matplotlib",), "picture of a chart")


@contextmanager
def _drawing(height: float) -> Iterator[Figure]:
    """Yield a figure of this height; nothing of Matplotlib's state is left changed."""
    check_tools()
    from matplotlib import rc_context  # slow to import
    from matplotlib.figure import Figure

    with rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font lacks, and of charts without room
        yield Figure(figsize=(_WIDTH, height), facecolor=_BACK)


def _written(figure: Figure, form: str, title: str, description: str) -> bytes:
    file, described = BytesIO(), {"Title": title, "Description": description}
    unset = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    figure.savefig(file, format=form, dpi=_DOTS, metadata={**described, **unset})
    return file.getvalue()


def _height(picture: Picture) -> float:
    match picture:
        case Plot(series=series):
            return 4.2 + 0.18 * _legend_rows([one.name for one in series])
        case Stack(bars=bars, parts=parts):
            return 1.6 + 0.28 * min(len(bars), 40) + 0.18 * _legend_rows([part.name for part in parts])
        case Forest(effects=effects):
            return 1.5 + 0.27 * min(len(effects), 60)
        case Waterfall(steps=steps):
            return 1.5 + 0.27 * min(len(steps), 60)
        case Tree(root=root):
            return 1.4 + 0.3 * _depth(root)
    return 4.4


# --- around a chart --------------------------------------------------------------------------------


def _write_titles(figure: Figure, title: str, subtitle: str) -> float:
    """Write the titles; return the inches that they take."""
    height = figure.get_figheight()
    figure.text(0.02, 1 - 0.14 / height, shorten(title, 80), va="top", fontsize=12, fontweight="bold")
    at = 0.42
    for line in _wrapped(subtitle, _LINE_LENGTH, 2):
        figure.text(0.02, 1 - at / height, line, va="top", color=_SOFT)
        at += 0.18
    return at + 0.06


def _write_note(figure: Figure, note: str) -> float:
    """Write the note; return the inches that it takes."""
    height, lines = figure.get_figheight(), _wrapped(note, _LINE_LENGTH, 3)
    for place, line in enumerate(reversed(lines)):
        figure.text(0.02, (0.1 + 0.17 * place) / height, line, va="bottom", color=_SOFT, fontsize=8.5)
    return 0.1 + 0.17 * len(lines) if lines else 0.05


def _wrapped(text: str, width: int, most: int) -> list[str]:
    return textwrap.wrap(text, width, max_lines=most, placeholder=" …") if text else []


def _legend_columns(names: Sequence[str]) -> int:
    return max(1, min(len(names), _LINE_LENGTH // (max(map(len, names)) + 7)))


def _legend_rows(names: Sequence[str]) -> int:
    """Return the rows of a legend; one series alone is named by the title."""
    labels = _legend_names(names)
    return math.ceil(len(labels) / _legend_columns(labels)) if labels else 0


def _legend_names(names: Sequence[str]) -> list[str]:
    if len(names) < 2:
        return []
    labels = [shorten(name, _LINE_LENGTH - 8) for name in names[:_LEGEND]]
    if len(names) > _LEGEND:
        labels[-1] = f"… and {len(names) - _LEGEND + 1} more"
    return labels


def _write_legend(axes: Axes, handles: Sequence[Any], names: Sequence[str]) -> None:
    """Name what is drawn, above it, in as many columns as fit."""
    if labels := _legend_names(names):
        axes.legend(
            handles[: len(labels)], labels, loc="lower left", bbox_to_anchor=(0, 1.0),
            ncols=_legend_columns(labels), fontsize=8.5, handlelength=2.4, columnspacing=1.4,
            borderaxespad=0.4,
        )  # fmt: skip


# --- numbers ---------------------------------------------------------------------------------------


def _unit(scale: AxisScale, values: Iterable[float]) -> tuple[float, str]:
    """Return the size of the unit that suits the largest value, and the label of the axis with its name."""
    if scale.categories:
        return 1.0, scale.label
    units = display_units(scale.unit) if scale.unit in KINDS else ((0.0, 1.0, scale.unit),)
    largest = max(map(abs, values), default=0.0)
    _, size, name = [unit for unit in units if largest >= 0.9995 * unit[0]][-1]
    return size, f"{scale.label} ({name.strip()})" if name.strip() else scale.label


def _scaled(values: Iterable[float], size: float) -> list[float]:
    return [value / size if math.isfinite(value) and abs(value) < LARGEST else math.nan for value in values]


def _set_axis(axes: Axes, which: str, scale: AxisScale, drawn: DrawnAxis | None) -> None:
    """Label an axis, scale it, and set its ticks."""
    from matplotlib.ticker import NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    set_limits = axes.set_xlim if which == "x" else axes.set_ylim
    if drawn is None:
        axis.set_label_text(shorten(scale.label, 60))
        axis.set_ticks(range(len(scale.categories)), [shorten(name, 18) for name in scale.categories])
        set_limits(-0.5, len(scale.categories) - 0.5)
        return
    axis.set_label_text(shorten(drawn.title, 60))
    if drawn.logarithmic:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis.set_minor_locator(NullLocator())
    axis.set_ticks([at for at, _ in drawn.ticks], [text for _, text in drawn.ticks])
    set_limits(drawn.low, drawn.high)


# --- plots -----------------------------------------------------------------------------------------


def _plot(axes: Axes, picture: Plot) -> None:
    x, y = axes_of(picture)
    x_size, y_size = 1.0 if x is None else x.size, 1.0 if y is None else y.size
    axes.grid(visible=True, axis="y", color=_SHADE)
    axes.spines["left"].set_visible(False)
    _set_axis(axes, "x", picture.x, x)
    _set_axis(axes, "y", picture.y, y)
    if picture.stacked:
        handles = _areas(axes, picture.series, x_size, y_size)
    else:
        handles = [_series(axes, one, place, x_size, y_size) for place, one in enumerate(picture.series)]
    for band in picture.bands:
        axes.axvspan(band.low / x_size, band.high / x_size, color=_SHADE, zorder=0)
        _write_above(axes, band.low / x_size, 0, shorten(band.name, _NAME), _SOFT, high=band.high / x_size)
    rows: Counter[tuple[bool, int]] = Counter()
    for rule in picture.rules:
        axis = x if rule.vertical else y
        beyond = 0 if axis is None else axis.beyond(rule.at)
        if beyond:
            _arrow(axes, rule, beyond, rows[rule.vertical, beyond] % 6)
        elif rule.vertical:
            _vertical_rule(axes, rule.name, rule.at / x_size, rows[True, 0] % 6)
        else:
            _horizontal_rule(axes, rule, y_size, left=has_room_at_left(picture, rule.at, x, y))
        rows[rule.vertical, beyond] += 1
    _name_points(axes, picture.series, x_size, y_size)
    _write_legend(axes, handles, [one.name for one in picture.series])


def _arrow(axes: Axes, rule: ReferenceLine, beyond: int, row: int) -> None:
    """Write the name of a line that lies beyond the edge, with an arrow towards it."""
    arrow = {(True, 1): "→", (True, -1): "←", (False, 1): "↑", (False, -1): "↓"}[rule.vertical, beyond]
    name, left = shorten(rule.name, 60), rule.vertical and beyond < 0
    top = rule.vertical or beyond > 0
    text = axes.annotate(
        f"{arrow} {name}" if left else f"{name} {arrow}", (0 if left else 1, 1 if top else 0),
        xycoords="axes fraction", xytext=(2 if left else -2, (-3 - 12 * row) * (1 if top else -1)),
        textcoords="offset points", ha="left" if left else "right", va="top" if top else "bottom",
        fontsize=8.5, zorder=7,
    )  # fmt: skip
    _set_apart(text)


_PLACES = (
    (8, 10), (8, -14), (-8, 10), (-8, -14), (16, 24), (-16, 24), (16, -28), (-16, -28),
    (24, 40), (-24, 40), (24, -44), (-24, -44),
)  # fmt: skip
"""Where the name of a point may stand beside it, in points, the best place first."""
_LETTER, _HIGH = 4.6, 10.0
"""Points of a letter of such a name, and of its line."""


def _name_points(axes: Axes, series: Sequence[Series], x_size: float, y_size: float) -> None:
    """Name the first points of series, each where it covers no other name and no point, with a line to it."""
    named = [(one, at) for one in series for at in range(min(one.named, len(one.x)))]
    figure = axes.get_figure(root=True)
    if figure is None or not named:
        return
    figure.draw_without_rendering()  # else no place in points is known
    per_inch = 72 / figure.dpi

    def spot(x: float, y: float) -> tuple[float, float]:
        across, up = axes.transData.transform((x / x_size, y / y_size)) * per_inch
        return float(across), float(up)

    spots = [[spot(x, y) for x, y in zip(one.x, one.y, strict=True)] for one in series]
    taken = [
        (x - 4, y - 4, x + 4, y + 4)
        for one, places in zip(series, spots, strict=True)
        for x, y in (_along(places) if one.joined else places)
    ]
    edge = [end * per_inch for end in axes.bbox.extents]
    for one, at in named:
        text = keep_ending(one.labels[at].split(", ", maxsplit=1)[0], 24)
        x, y = spot(one.x[at], one.y[at])

        def box(place: tuple[int, int], x: float = x, y: float = y, text: str = text) -> _Box:
            wide = _LETTER * len(text)
            left = x + place[0] - (wide if place[0] < 0 else 0)
            return left, y + place[1] - _HIGH / 2, left + wide, y + place[1] + _HIGH / 2

        best = min(_PLACES, key=lambda place: (_misplaced(box(place), taken, edge), _PLACES.index(place)))
        taken.append(box(best))
        axes.annotate(
            text, (one.x[at] / x_size, one.y[at] / y_size), xytext=best, textcoords="offset points",
            ha="right" if best[0] < 0 else "left", va="center", fontsize=8, zorder=6,
            arrowprops={"arrowstyle": "-", "color": _SOFT, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 2},
        )  # fmt: skip


def _along(places: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield points along a line through some."""
    for (x, y), (to_x, to_y) in pairwise(places):
        for step in range(_STEPS):
            part = step / _STEPS
            yield x + part * (to_x - x), y + part * (to_y - y)


_STEPS = 40
_Box: TypeAlias = "tuple[float, float, float, float]"
"""Left, low, right and high end."""


def _misplaced(box: _Box, taken: Sequence[_Box], edge: Sequence[float]) -> float:
    """Return how much of a box lies over others, and how far it reaches beyond the edge."""
    out = max(0.0, edge[0] - box[0], edge[1] - box[1], box[2] - edge[2], box[3] - edge[3])
    over = sum(
        max(0.0, min(box[2], other[2]) - max(box[0], other[0]))
        * max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
        for other in taken
    )
    return 100 * out + over


def _series(axes: Axes, one: Series, place: int, x_size: float, y_size: float) -> Any:
    """Draw one series with its intervals; return what a legend shows of it."""
    cloud = not one.joined and not one.marked and len(one.x) > _CLOUD
    colour = _COLOURS[6] if cloud else _colour(one, place)
    steps = one.joined and any(a == b for a, b in zip(one.x, one.x[1:], strict=False))
    bare = one.joined and (steps or len(one.x) > _DENSE)
    xs, ys = _scaled(one.x, x_size), _scaled(one.y, y_size)
    (line,) = axes.plot(
        xs, ys, color=colour,
        linestyle=("-" if one.marked else _DASHES[place % len(_DASHES)]) if one.joined else "none",
        linewidth=2.4 if one.marked else 1.0 if bare else 1.6,
        marker="none" if bare else "o" if cloud else _MARKS[place % len(_MARKS)],
        markersize=3 if cloud else 7 if one.marked else 5, markeredgewidth=0,
        alpha=0.45 if cloud else 1, zorder=5 if one.marked else 2 if cloud else 3,
    )  # fmt: skip
    if one.low:
        ends = zip(xs, _scaled(one.low, y_size), _scaled(one.high, y_size), strict=True)
        finite = [end for end in ends if not any(map(math.isnan, end))]
        axes.vlines([x for x, _, _ in finite], [low for _, low, _ in finite], [high for *_, high in finite],
                    colors=colour, linewidth=1.4, alpha=0.7, zorder=2)  # fmt: skip
    hollow = [at for at in one.hollow if not bare]
    axes.plot(
        [xs[at] for at in hollow], [ys[at] for at in hollow], linestyle="none", color=colour,
        marker=_MARKS[place % len(_MARKS)], markersize=7 if one.marked else 5, markerfacecolor=_BACK,
        markeredgewidth=1.6, zorder=6,
    )  # fmt: skip
    return line


def _colour(one: Series, place: int) -> str:
    """Return the colour of a series: its own, which is the same in every chart, else that of its place."""
    return _COLOURS[(place if one.tint is None else one.tint) % len(_COLOURS)]


def _areas(axes: Axes, series: Sequence[Series], x_size: float, y_size: float) -> list[Any]:
    """Draw stacked areas whose levels hold until the next point."""
    xs, handles = _scaled(series[0].x, x_size) if series else [], []
    base = [0.0] * len(xs)
    for place, one in enumerate(series):
        levels = [0.0 if math.isnan(y) else y for y in _scaled(one.y, y_size)]
        top = [low + level for low, level in zip(base, levels, strict=True)]
        colour = _colour(one, place)
        handles.append(axes.fill_between(xs, base, top, step="post", color=colour, alpha=0.55, linewidth=0.5))
        base = top
    return handles


def _vertical_rule(axes: Axes, name: str, at: float, row: int) -> None:
    low, high = sorted(axes.get_xlim())
    if not low <= at <= high:
        return
    axes.axvline(at, color=_TEXT, linewidth=1, linestyle=(0, (5, 4)), zorder=6)
    _set_apart(_write_above(axes, at, row, shorten(name, _NAME), _TEXT))


def _horizontal_rule(axes: Axes, rule: ReferenceLine, size: float, *, left: bool) -> None:
    at = rule.at / size
    axes.axhline(at, color=_TEXT, linewidth=1, linestyle=(0, (5, 4)), zorder=6)
    text = axes.annotate(
        shorten(rule.name, 60), (0 if left else 1, at), xycoords=("axes fraction", "data"),
        xytext=(2 if left else -2, 3), textcoords="offset points", ha="left" if left else "right",
        fontsize=8.5, zorder=7,
    )  # fmt: skip
    _set_apart(text)


def _write_above(
    axes: Axes, at: float, row: int, text: str, colour: str, *, high: float | None = None
) -> Any:
    """Write a name beside a vertical line, at the top of the chart, towards its middle.

    With `high` it stands between both lines, at the one that is nearer to an edge.
    """
    place = axes.transAxes.inverted().transform(axes.transData.transform((at, axes.get_ylim()[1])))[0]
    right = place > 0.5
    return axes.annotate(
        text, (high if right and high is not None else at, 1), xycoords=("data", "axes fraction"),
        xytext=(-5 if right else 5, -3 - 12 * row), textcoords="offset points",
        ha="right" if right else "left", va="top", fontsize=8.5, color=colour, zorder=7,
    )  # fmt: skip


def _set_apart(text: Any) -> None:
    """Let a text be read where lines cross it."""
    text.set_bbox({"facecolor": _BACK, "edgecolor": "none", "alpha": 0.7, "pad": 0.8})


# --- histograms ------------------------------------------------------------------------------------


_GAP = 0.5
"""Bars between the last edge and the bar of what lies beyond it."""


def _bins(axes: Axes, picture: Bins) -> None:
    from matplotlib.ticker import MaxNLocator

    counts = [count if math.isfinite(count) else 0.0 for count in picture.counts]
    axes.bar([at + 0.5 for at in range(len(counts))], counts, width=0.92, color=_COLOURS[0])
    end = float(len(counts))
    labels = format_axis(picture.edges, picture.scale.unit)
    every = max(1, math.ceil(len(labels) * (max(map(len, labels), default=1) + 2) / _LINE_LENGTH))
    ticks = [(float(at), shorten(labels[at], 18)) for at in range(0, len(labels), every)]
    if picture.beyond:
        axes.bar(end + _GAP + 0.5, picture.beyond, width=0.92, facecolor=_SHADE, edgecolor=_COLOURS[0],
                 linestyle="--", linewidth=0.8)  # fmt: skip
        ticks = [tick for tick in ticks if tick[0] < end - 1]
        ticks.append((end + _GAP + 0.5, f"> {shorten(labels[-1], 18)}"))
        end += _GAP + 1
    axes.grid(visible=True, axis="y", color=_SHADE)
    axes.spines["left"].set_visible(False)
    axes.set_xticks([at for at, _ in ticks], [text for _, text in ticks])
    axes.set_xlim(-0.1, end + 0.1)
    axes.set_xlabel(shorten(picture.scale.label, 60))
    axes.set_ylabel(shorten(picture.counted, 60))
    axes.set_ylim(0, 1.12 * max([*counts, picture.beyond, 1.0]))  # room for the names of the marks
    axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: format_number(value))
    marks = [(_bin_of(picture, mark.at), mark.name) for mark in picture.marks]
    for row, (place, name) in enumerate(sorted((at, name) for at, name in marks if at is not None)):
        _vertical_rule(axes, name, place, row)


def _bin_of(picture: Bins, value: float) -> float | None:
    """Return where a value lies among bars that are drawn equally wide."""
    at = picture.bin_of(value)
    if at is None or at == len(picture.counts):
        return None if at is None else at + _GAP + 0.5
    low, high = picture.edges[at : at + 2]
    return at + (value - low) / (high - low)


# --- stacks ----------------------------------------------------------------------------------------


def _stack(axes: Axes, picture: Stack) -> None:
    ends = [0.0] * len(picture.bars)
    for part in picture.parts:
        for bar, size in zip(part.x, part.y, strict=True):
            ends[round(bar)] += size if math.isfinite(size) else 0.0
    unit, label = _unit(picture.scale, ends)
    base, handles = [0.0] * len(picture.bars), []
    for place, part in enumerate(picture.parts):
        sizes = dict(zip(map(round, part.x), _scaled(part.y, unit), strict=True))
        widths = [0.0 if math.isnan(size := sizes.get(bar, 0.0)) else size for bar in range(len(base))]
        handles.append(
            axes.barh(range(len(base)), widths, left=base, height=0.66, color=_colour(part, place),
                      edgecolor=_BACK, linewidth=0.5)
        )  # fmt: skip
        base = [low + width for low, width in zip(base, widths, strict=True)]
    axes.grid(visible=True, axis="x", color=_SHADE)
    _name_rows(axes, picture.bars)
    axes.set_xlabel(shorten(label, 60))
    axes.xaxis.set_major_formatter(lambda value, _: format_number(value))
    _write_legend(axes, handles, [part.name for part in picture.parts])


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name rows from top to bottom."""
    axes.set_yticks(range(len(names)), [shorten(name, _NAME) for name in names], color=_TEXT)
    axes.set_ylim(len(names) - 0.5, -0.5)


# --- trees -----------------------------------------------------------------------------------------


def _depth(node: TreeNode) -> int:
    return 1 + max(map(_depth, node.children), default=0)


def _cells(node: TreeNode, depth: int = 0, begin: float = 0.0) -> Iterator[tuple[TreeNode, int, float]]:
    """Yield each node with its depth and where it begins."""
    yield node, depth, begin
    begins = accumulate((child.value for child in node.children), initial=begin)
    for child, at in zip(node.children, begins, strict=False):
        yield from _cells(child, depth + 1, at)


def _own(node: TreeNode) -> float:
    return max(0.0, node.value - sum(child.value for child in node.children))


def _tree(axes: Axes, picture: Tree) -> None:
    from matplotlib.patches import Rectangle

    root, cells = picture.root, list(_cells(picture.root))
    unit, label = _unit(picture.scale, [root.value])
    total, most = root.value or 1.0, max(_own(node) for node, _, _ in cells) or 1.0
    for node, depth, begin in cells:
        share = node.value / total
        if share < 0.0006:
            continue
        shade = 0.14 + 0.5 * math.sqrt(_own(node) / most)
        axes.add_patch(
            Rectangle((begin / unit, depth + 0.02), node.value / unit, 0.94, facecolor=_COLOURS[0],
                      alpha=shade, edgecolor=_BACK, linewidth=0.8)
        )  # fmt: skip
        letters = int(share * 108) - 1
        if letters >= 3:
            axes.text((begin + 0.005 * total) / unit, depth + 0.5, shorten(node.name, letters), va="center",
                      fontsize=8.5)  # fmt: skip
    axes.set_xlim(0, total / unit)
    axes.set_ylim(_depth(root), 0)
    axes.yaxis.set_visible(False)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(shorten(label, 60))
    axes.xaxis.set_major_formatter(lambda value, _: format_number(value))


# --- forests ---------------------------------------------------------------------------------------


def _log(change: float) -> float:
    """Place a change on an axis where half is as far from no change as double."""
    return math.log(max(1 + change, 1e-4))


def _forest(axes: Axes, picture: Forest) -> None:
    ends = ((one.value, one.low, one.high, one.smallest, -one.smallest) for one in picture.effects)
    places = [_log(end) for some in ends for end in finite(some)]
    low, high = min(*places, -0.01, 0), max(*places, 0.01, 0)
    room = 0.05 * (high - low)
    low, high = low - room, high + room
    axes.set_xlim(low, high)
    _name_rows(axes, [one.name for one in picture.effects])
    for row, one in enumerate(picture.effects):
        _effect(axes, one, row, low, high)
    ticks: list[float] = []
    for change in _CHANGES:
        at = _log(change)
        if low <= at <= high and all(abs(other - at) >= (high - low) / 10 for other in ticks):
            ticks.append(at)
    axes.set_xticks(ticks, [_change_text(math.exp(at) - 1) for at in ticks])
    axes.grid(visible=True, axis="x", color=_SHADE)
    axes.set_xlabel("change from the baseline, by its ratio")


def _effect(axes: Axes, one: Effect, row: int, low: float, high: float) -> None:
    colour = _OUTCOMES.get(one.outcome, _SOFT)
    near = (_log(-one.smallest), _log(one.smallest))
    axes.barh(row, near[1] - near[0], left=near[0], height=1, color=_SHADE, zorder=0)
    axes.vlines(0, row - 0.5, row + 0.5, colors=_LINE, linewidth=1, zorder=1)
    begin = max(low, _log(one.low)) if math.isfinite(one.low) else low
    end = min(high, _log(one.high)) if math.isfinite(one.high) else high
    axes.hlines(row, begin, end, colors=colour, linewidth=2)
    undecided = one.outcome == "undecided"
    axes.plot(
        [_log(one.value)] if math.isfinite(one.value) else [], [row] if math.isfinite(one.value) else [],
        marker="o" if undecided else "s", markersize=6.5, linestyle="none", markeredgecolor=colour,
        markerfacecolor=_BACK if undecided else colour, markeredgewidth=1.6 if undecided else 0, zorder=4,
    )  # fmt: skip
    axes.annotate(shorten(one.outcome, 12), (1, row), xycoords=("axes fraction", "data"), xytext=(6, 0),
                  textcoords="offset points", va="center", fontsize=8.5, color=colour)  # fmt: skip


def _change_text(change: float) -> str:
    factor = 1.5
    if change >= factor:
        return f"×{format_number(float(f'{1 + change:.3g}'))}"
    return f"{'+' if change > 1e-9 else ''}{format_number(round(100 * change, 2) + 0.0)}%"


# --- parallel coordinates --------------------------------------------------------------------------


def _parallel(axes: Axes, picture: Parallel) -> None:
    lines = sorted(picture.lines, key=lambda line: line.marked)
    columns = [
        finite(y for line in lines for x, y in zip(line.x, line.y, strict=True) if round(x) == at)
        for at in range(len(picture.scales))
    ]
    drawn = [
        draw_axis(scale, column, tight=True) for scale, column in zip(picture.scales, columns, strict=True)
    ]
    faint = max(0.05, min(0.6, 25 / max(1, len(lines))))
    for line in lines:
        points = [
            (round(x), _place(y, picture.scales[round(x)], drawn[round(x)]))
            for x, y in zip(line.x, line.y, strict=True)
            if math.isfinite(y)
        ]
        marked = line.marked
        axes.plot(
            [x for x, _ in points], [y for _, y in points], color=_COLOURS[1 if marked else 0],
            linewidth=2.6 if marked else 0.8, alpha=1 if marked else faint, zorder=4 if marked else 2,
        )  # fmt: skip
    for at, (scale, axis) in enumerate(zip(picture.scales, drawn, strict=True)):
        axes.axvline(at, color=_LINE, linewidth=1, zorder=3)
        texts = [(float(place), name) for place, name in enumerate(scale.categories)]
        for value, text in texts if axis is None else ((tick * axis.size, name) for tick, name in axis.ticks):
            height = _place(value, scale, axis)
            _set_apart(axes.text(at + 0.03, height, shorten(text, 14), va="center", fontsize=8, zorder=5))
    labels = [
        scale.label if axis is None else axis.title for scale, axis in zip(picture.scales, drawn, strict=True)
    ]
    width = max(8, _LINE_LENGTH // max(1, len(labels)) - 2)
    names = ["\n".join(_wrapped(label, width, 2)) for label in labels]
    axes.set_xticks(range(len(names)), names, color=_TEXT)
    axes.xaxis.tick_top()
    axes.set_xlim(-0.15, len(labels) - 1 + 0.4)
    axes.set_ylim(-0.05, 1.05)
    axes.yaxis.set_visible(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if best := next((line.name for line in lines if line.marked), ""):
        axes.set_xlabel(shorten(f"highlighted: {best}", 100))


def _place(value: float, scale: AxisScale, axis: DrawnAxis | None) -> float:
    """Place a value between 0, the low end of its axis, and 1."""
    return value / max(1.0, len(scale.categories) - 1.0) if axis is None else axis.share(value)


# --- waterfalls ------------------------------------------------------------------------------------


def _waterfall(axes: Axes, picture: Waterfall) -> None:
    spans = picture.spans
    unit, label = _unit(picture.scale, [end for span in spans for end in span])
    ends = [end / unit for span in spans for end in span]
    low, high = min(0.0, *ends), max(0.0, *ends)
    axes.set_xlim(low, (high + 0.24 * (high - low)) or 1.0)
    _name_rows(axes, [step.name for step in picture.steps])
    for row, (step, (begin, end)) in enumerate(zip(picture.steps, spans, strict=True)):
        colour = _TEXT if step.is_sum else _LINE if step.is_rest else _COLOURS[1 if end < begin else 0]
        reach = max(begin, end) / unit
        axes.barh(row, (end - begin) / unit, left=begin / unit, height=0.66, color=colour)
        if row + 1 < len(picture.steps):
            axes.vlines(end / unit, row + 0.33, row + 0.67, colors=_LINE, linewidth=1)
        if step.low is not None and step.high is not None and not step.is_sum:
            left, right = max(low, (begin + step.low) / unit), min(high, (begin + step.high) / unit)
            axes.hlines(row + 0.2, left, right, colors=_TEXT, linewidth=1.2)
            reach = max(reach, right)
        axes.annotate(shorten(step_texts(step, picture.scale)[0], 24), (reach, row), xytext=(5, 0),
                      textcoords="offset points", va="center", fontsize=8.5)  # fmt: skip
    axes.grid(visible=True, axis="x", color=_SHADE)
    axes.set_xlabel(shorten(label, 60))
    axes.xaxis.set_major_formatter(lambda value, _: format_number(value))


_DRAWERS: dict[type[Any], Callable[[Axes, Any], None]] = {
    Plot: _plot,
    Bins: _bins,
    Stack: _stack,
    Tree: _tree,
    Forest: _forest,
    Parallel: _parallel,
    Waterfall: _waterfall,
}
"""Kind of chart to what draws it."""

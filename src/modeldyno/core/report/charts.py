"""Format-neutral charts of many numbers, in base units.

Like the blocks, they have no colours, pixels or ticks; texts are made printable on creation. A format that
cannot draw a chart describes it in a sentence (`views.chart_text`).
"""

from __future__ import annotations

from dataclasses import dataclass

from modeldyno.core.stats.sanitize import Printable
from modeldyno.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisScale(Printable):
    """The quantity along an axis."""

    label: str
    unit: str = ""
    """A base unit of `core.stats.units`, or a knob's own unit."""
    categories: tuple[str, ...] = ()
    """Labels of 0, 1, 2 and so on, if the values are not numbers."""
    logarithmic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Series(Printable):
    """Points that belong together, in the order in which a line joins them."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    labels: tuple[str, ...] = ()
    """Label of each point."""
    joined: bool = True
    """Whether a line joins them."""
    marked: bool = False
    """Whether to highlight it."""
    named: bool = False
    """Whether the first points show their labels, up to a comma."""
    low: tuple[float, ...] = ()
    """Lower ends of the 95 % intervals of `y`, if they are known."""
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceLine(Printable):
    """A reference line across the chart, such as a bound."""

    name: str
    at: float
    vertical: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Band(Printable):
    """A shaded stretch of the x axis, such as the warm-up."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot(Printable):
    """Points over two axes."""

    title: str
    x: AxisScale
    y: AxisScale
    series: tuple[Series, ...]
    rules: tuple[ReferenceLine, ...] = ()
    bands: tuple[Band, ...] = ()
    stacked: bool = False
    """Whether the series are stacked areas with steps, each level held until the next point; they then have
    the ~    same `x`."""
    note: str = ""
    """What the chart leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins(Printable):
    """A histogram."""

    title: str
    scale: AxisScale
    edges: tuple[float, ...]
    """One more than there are counts."""
    counts: tuple[float, ...]
    counted: str
    """What is counted, in the plural."""
    marks: tuple[ReferenceLine, ...] = ()
    """Named positions on the axis, such as the median."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack(Printable):
    """Bars side by side, each divided into the same parts."""

    title: str
    scale: AxisScale
    bars: tuple[str, ...]
    parts: tuple[Series, ...]
    """Each has in `x` the index of a bar, and in `y` its share of that bar."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode(Printable):
    """A part of a whole, with its own parts."""

    name: str
    value: float
    children: tuple[TreeNode, ...] = ()
    detail: str = ""
    """Further details."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree(Printable):
    """A whole, its parts, and their parts; what no part takes is the node's own."""

    title: str
    scale: AxisScale
    root: TreeNode
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect(Printable):
    """A relative change with its interval."""

    name: str
    value: float
    low: float
    """May be infinite, as may `high`."""
    high: float
    smallest: float
    """A change this small, up or down, does not matter."""
    outcome: str
    """One word, such as ``better``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest(Printable):
    """Changes below each other on one axis, with those too small to matter shaded."""

    title: str
    effects: tuple[Effect, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel(Printable):
    """Parallel coordinates: axes next to each other, and a line across them for each item."""

    title: str
    scales: tuple[AxisScale, ...]
    lines: tuple[Series, ...]
    """Each has in `y` a position on every scale, and in `x` the index of the scale; scales that do not matter
    for it are left out."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallStep(Printable):
    """A step of a waterfall: what it adds, or a sum up to there."""

    name: str
    size: float | None
    """What it adds, which may be negative; of a sum the whole. None if it is not known: it adds nothing."""
    low: float | None = None
    """Ends of the 95 % interval of `size`, if they are known; either may be infinite."""
    high: float | None = None
    is_sum: bool = False
    is_rest: bool = False
    """Whether it is what no other step explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall(Printable):
    """Steps below each other, each drawn from where the one before has ended."""

    title: str
    scale: AxisScale
    steps: tuple[WaterfallStep, ...]
    note: str = ""

    @property
    def spans(self) -> tuple[tuple[float, float], ...]:
        """Begin and end of each step on the axis."""
        found, at = [], 0.0
        for step in self.steps:
            begin = 0.0 if step.is_sum else at
            at = begin + (step.size or 0.0)
            found.append((begin, at))
        return tuple(found)


Picture = Plot | Bins | Stack | Tree | Forest | Parallel | Waterfall


# --- charts that the user chooses -------------------------------------------------------------------

_PARTS = ("x", "y", "title", "monotonic")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPlot:
    """A chart of the loads of each configuration, one line for each."""

    x: str
    """A query, such as ``latency.p99``, or an axis of the study, such as ``concurrency``."""
    y: str
    """The same, upwards."""
    title: str = ""
    """``y against x`` if empty."""
    monotonic: bool = False
    """Whether a line leaves out the points at which `y` does not grow."""

    def __str__(self) -> str:
        """Return its title."""
        return self.title or f"{self.y} against {self.x}"


def parse_plot(text: str) -> ChosenPlot:
    """Read ``x=latency.p99,y=throughput``, with ``title=...`` and ``monotonic`` if wanted.

    Raises:
        RequestError: the text is none, or names no x and y.
    """
    parts: dict[str, str] = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        if name.strip() == "monotonic" and not separator:
            value = "true"
        parts[name.strip()] = value.strip()
    return plot_of_parts(parts, text)


def plot_of_parts(parts: dict[str, str], name: str) -> ChosenPlot:
    """Make a plot of its parts by name; `name` is what errors call it.

    Raises:
        RequestError: a part is unknown, or there is no x or y.
    """
    unknown = [part for part in parts if part not in _PARTS]
    if unknown or not (parts.get("x") and parts.get("y")):
        why = f"there is no '{unknown[0]}' in a plot" if unknown else "it needs x and y"
        raise RequestError(
            f"`plots` '{name}': {why}; write x=latency.p99,y=throughput, title=TEXT, monotonic."
        )
    monotonic = parts.get("monotonic", "").lower()
    if monotonic not in {"", "true", "false"}:
        raise RequestError(f"`plots` '{name}': monotonic is true or false, not {parts['monotonic']}.")
    return ChosenPlot(x=parts["x"], y=parts["y"], title=parts.get("title", ""), monotonic=monotonic == "true")

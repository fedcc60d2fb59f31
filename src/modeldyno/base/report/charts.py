"""Format-neutral charts of many numbers, in base units.

Like the blocks, they have no colours, pixels or ticks; texts are made printable on creation. A format that
cannot draw a chart describes it in a sentence (`base.views.chart_text`).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from modeldyno.base.stats.sanitize import Printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisScale(Printable):
    """The quantity along an axis."""

    label: str
    unit: str = ""
    """A base unit of `base.stats.units`, or a knob's own unit."""
    categories: tuple[str, ...] = ()
    """Labels of 0, 1, 2 and so on, if the values are not numbers."""
    logarithmic_from: float = inf
    """Ratio of the largest to the smallest value from which on equal steps are equal ratios; 1 for always."""
    whole: bool = False
    """Whether only whole numbers mean something, as of versions."""
    names: tuple[str, ...] = ()
    """What the whole numbers from 1 on are called, such as the dates of results; of neighbours with one name
    the first has a tick."""


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
    named: int = 0
    """How many of the first points show their labels, up to a comma."""
    hollow: tuple[int, ...] = ()
    """Places of points that are drawn hollow, such as those that break a bound."""
    tint: int | None = None
    """Colour, where one thing has the same in every chart; None for that of its place."""
    low: tuple[float, ...] = ()
    """Lower ends of the 95 % intervals of `y`, if they are known."""
    high: tuple[float, ...] = ()

    @classmethod
    def through(
        cls, name: str, points: Iterable[tuple[Any, ...]], fields: Sequence[str] = ("x", "y"), **shown: Any
    ) -> Series:
        """Return the series of points, each a tuple of the values of `fields`."""
        rows = list(points)
        columns: dict[str, Any] = {field: tuple(row[at] for row in rows) for at, field in enumerate(fields)}
        return cls(name=name, **columns, **shown)


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
    the same `x`."""
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
    beyond: float = 0.0
    """What lies above the last edge, in a bar of its own, apart from the others."""
    reach: float = 0.0
    """Up to where that lies."""
    note: str = ""

    @property
    def bars(self) -> tuple[float, ...]:
        """The counts, and at last what lies beyond, if anything does."""
        return (*self.counts, *((self.beyond,) if self.beyond else ()))

    def bin_of(self, value: float) -> int | None:
        """Return the place among `bars` of the one that holds a value; None if it is not drawn."""
        if value >= self.edges[-1]:
            return len(self.counts) if self.beyond and value <= self.reach else None
        return bisect_right(self.edges, value) - 1 if value >= self.edges[0] else None


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
        spans, at = [], 0.0
        for step in self.steps:
            begin = 0.0 if step.is_sum else at
            at = begin + (step.size or 0.0)
            spans.append((begin, at))
        return tuple(spans)


Picture = Plot | Bins | Stack | Tree | Forest | Parallel | Waterfall

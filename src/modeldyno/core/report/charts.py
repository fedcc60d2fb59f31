"""Neutral pictures of many numbers, in base units, for whichever format draws them.

Like the blocks, they hold no colours, pixels or ticks; texts are printable as they are made. A format that
cannot draw one says in a sentence what it shows (`views.chart_text`).
"""

from __future__ import annotations

from dataclasses import dataclass

from modeldyno.core.stats.sanitize import Printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(Printable):
    """What is laid off along an axis."""

    label: str
    unit: str = ""
    """A base unit of `core.stats.units`, or a word where a knob has one."""
    categories: tuple[str, ...] = ()
    """Where it is no number: what stands at 0, 1, 2 and so on."""
    logarithmic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Series(Printable):
    """Points that belong together, in the order in which a line joins them."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    labels: tuple[str, ...] = ()
    """What to call each point."""
    joined: bool = True
    """Whether a line joins them."""
    marked: bool = False
    """Whether it is the one to look at."""
    named: bool = False
    """Whether the first points have their labels, up to a comma, beside them."""
    low: tuple[float, ...] = ()
    """Lower ends of the 95 % intervals of `y`, where they are known."""
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Printable):
    """A line across the picture, such as a bound."""

    name: str
    at: float
    vertical: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Band(Printable):
    """A stretch of the x axis that is shaded, such as the warm-up."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot(Printable):
    """Points over two axes."""

    title: str
    x: Scale
    y: Scale
    series: tuple[Series, ...]
    rules: tuple[Rule, ...] = ()
    bands: tuple[Band, ...] = ()
    stacked: bool = False
    """Whether the series are areas that lie on each other, each level held until the next point; they have
    the same `x` then."""
    note: str = ""
    """What the picture leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins(Printable):
    """A histogram."""

    title: str
    scale: Scale
    edges: tuple[float, ...]
    """One more than there are counts."""
    counts: tuple[float, ...]
    counted: str
    """What is counted, in the plural."""
    marks: tuple[Rule, ...] = ()
    """Places on the axis that have a name, such as the median."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack(Printable):
    """Bars that lie side by side, each divided into the same parts."""

    title: str
    scale: Scale
    bars: tuple[str, ...]
    parts: tuple[Series, ...]
    """Each has in `x` the number of a bar, and in `y` what it is of that bar."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(Printable):
    """A part of a whole, with what it is made of itself."""

    name: str
    value: float
    children: tuple[Node, ...] = ()
    detail: str = ""
    """What else is to be known of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree(Printable):
    """A whole, its parts, their parts; what no part takes is the node's own."""

    title: str
    scale: Scale
    root: Node
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect(Printable):
    """A change with its interval, relative."""

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
    """Changes below each other, by one axis, with those too small to matter shaded."""

    title: str
    effects: tuple[Effect, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel(Printable):
    """Parallel coordinates: an axis beside the other, and a line across them for each of many things."""

    title: str
    scales: tuple[Scale, ...]
    lines: tuple[Series, ...]
    """Each has in `y` a place on every scale, and in `x` the number of the scale; what does not matter
    there is left out."""
    note: str = ""


Picture = Plot | Bins | Stack | Tree | Forest | Parallel

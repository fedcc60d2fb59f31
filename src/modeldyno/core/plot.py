"""Neutral pictures of many points, in base units, for whichever format draws them.

Like the blocks, they hold no colours, pixels or ticks; texts are printable as they are made.
"""

from __future__ import annotations

from dataclasses import dataclass

from modeldyno.core.block import Printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(Printable):
    """What is laid off along an axis."""

    label: str
    unit: str = ""
    """A base unit of `core.units`, or a word where a knob has one."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Printable):
    """A line across the picture, such as a bound."""

    name: str
    at: float
    vertical: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot(Printable):
    """Points over two axes."""

    title: str
    x: Scale
    y: Scale
    series: tuple[Series, ...]
    rules: tuple[Rule, ...] = ()
    note: str = ""
    """What the picture leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel(Printable):
    """Parallel coordinates: an axis beside the other, and a line across them for each of many things."""

    title: str
    scales: tuple[Scale, ...]
    lines: tuple[Series, ...]
    """Each has in `y` a place on every scale, and in `x` the number of the scale; what does not matter
    there is left out."""
    note: str = ""


Picture = Plot | Parallel

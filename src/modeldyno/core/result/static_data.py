"""What the numbers of a static analysis are about: modules, operators, what was taken for granted.

The numbers themselves are Measurements, with the path of a module as their scope.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A module of the network."""

    path: str
    """``""`` is the whole."""
    kind: str
    """The name of its class."""
    output: str = ""
    """Shape and dtype of the first tensor that its last call gave, such as ``4x64x16x16 float32``; `` and 2
    more`` follows where there are further ones."""
    kernel: str = ""
    """Of a convolution or a pooling, such as ``3x3``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """All calls of one operator, or of one operator with one set of shapes where it has no formula."""

    kind: str
    calls: int
    macs: int = 0
    elementwise: int = 0
    counted: bool = True
    most: int | None = 0
    """MACs at most, in all calls, where it was not counted; None where nothing bounds them."""
    shapes: str = ""
    """Of one call, where it was not counted: ``(8, 128) x (128, 64) -> (8, 64)``."""
    scope: str = ""
    """Of one call, where it was not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What lies in memory at the peak: bytes of one role that one module made."""

    scope: str
    role: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The totals at one set of sizes."""

    sizes: dict[str, int]
    values: dict[str, float]
    """Metric to number, in base units; those of an estimate have their device behind an @."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What was analysed."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Symbolic dimension to the number that it had."""
    modules: tuple[Module, ...] = ()
    """Parents before their children."""
    operators: tuple[Operator, ...] = ()
    """The costliest first; those without a formula last."""
    peak: tuple[Held, ...] = ()
    """The largest first."""
    peak_scope: str = ""
    """The module during which the peak is reached."""
    peak_operator: str = ""
    points: tuple[Point, ...] = ()
    """The grid that was asked for."""
    formulas: dict[str, str] = field(default_factory=dict)
    """Metric to its polynomial in the dimensions, as text; empty where none was found to hold."""
    domain: str = ""
    """The sizes for which they hold, and up to which they were checked, as text."""
    traced: bool = True
    """Whether the points were each traced, for want of a formula that holds."""
    assumptions: tuple[str, ...] = ()
    """What was taken for granted where control flow depends on data."""

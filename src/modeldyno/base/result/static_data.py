"""The static analysis behind the numbers: modules, operators, assumptions.

The numbers themselves are Measurements, with module paths as their scopes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A module of the model."""

    path: str
    """``""`` is the whole model."""
    kind: str
    """The name of its class."""
    output: str = ""
    """Shape and dtype of the first output tensor of its last call, such as ``4x64x16x16 float32``, followed
    by ``and 2 more`` if there are others."""
    kernel: str = ""
    """Of a convolution or a pooling, such as ``3x3``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleLink:
    """That the output of one module goes into another."""

    source: str
    """Path of a module, or name of a join; ``""`` is an input of the model."""
    target: str
    """As `source`; ``""`` is an output of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleJoin:
    """Where the code of a module brings outputs of others together, as a residual connection does."""

    name: str
    """What links call it."""
    scope: str
    """Path of the module with that code."""
    kind: str
    """The operator, such as ``aten.add``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """All calls of one operator; without a formula, of one operator with one set of shapes."""

    kind: str
    calls: int
    macs: int = 0
    elementwise: int = 0
    counted: bool = True
    most: int | None = 0
    """Upper bound of the MACs in all calls if it was not counted; None if there is none."""
    shapes: str = ""
    """Of one call, if it was not counted: ``(8, 128) x (128, 64) -> (8, 64)``."""
    scope: str = ""
    """Of one call, if it was not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryItem:
    """Contents of memory at the peak: bytes of one role that one module created."""

    scope: str
    role: str
    bytes: int


def sum_memory_items(items: Iterable[MemoryItem]) -> tuple[MemoryItem, ...]:
    """Sum by module and role, the largest first."""
    sizes: Counter[tuple[str, str]] = Counter()
    for item in items:
        sizes[item.scope, item.role] += item.bytes
    ranked = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return tuple(MemoryItem(scope=scope, role=str(role), bytes=size) for (scope, role), size in ranked)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePoint:
    """The totals at one set of sizes."""

    sizes: dict[str, int]
    values: dict[str, float]
    """Metric to number, in base units; estimates have their device after an @."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticReport:
    """The static analysis of a model."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Symbolic dimension to its size."""
    modules: tuple[Module, ...] = ()
    """Parents before their children."""
    links: tuple[ModuleLink, ...] = ()
    """What goes from module to module in a forward pass; empty if they are too many."""
    joins: tuple[ModuleJoin, ...] = ()
    """In the order in which they run."""
    operators: tuple[Operator, ...] = ()
    """The costliest first; those without a formula last."""
    peak: tuple[MemoryItem, ...] = ()
    """The largest first."""
    peak_scope: str = ""
    """The module during which the peak is reached."""
    peak_operator: str = ""
    points: tuple[SizePoint, ...] = ()
    """The requested grid."""
    formulas: dict[str, str] = field(default_factory=dict)
    """Metric to its polynomial in the dimensions, as text; empty if none holds."""
    domain: str = ""
    """The sizes for which they hold, and up to which they were checked, as text."""
    traced: bool = True
    """Whether each point was traced, because no formula holds."""
    assumptions: tuple[str, ...] = ()
    """Assumptions where control flow depends on data."""

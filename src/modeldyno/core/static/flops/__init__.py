"""What operators cost: a table from an operator's name to a pure function of its shapes.

1 MAC (multiply-accumulate) is 2 FLOPs. MACs are those of matrix-product-like operators; everything else
is element-wise: one operation for each elementary function of one element (add, multiply, compare,
exponential, root ...). ``flops = 2 x macs + elementwise``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

from modeldyno.core.static.graph import Op


@dataclass(frozen=True, slots=True)
class Count:
    """What one call of one operator costs."""

    macs: int = 0
    """Multiply-accumulates of matrix products, dense."""
    elementwise: int = 0
    """Elementary operations outside of them."""
    skippable: int = 0
    """Those of `macs` that a causal kernel may skip, because their result is masked."""
    read: int | None = None
    """Bytes read; None for all of the inputs."""
    written: int | None = None
    """Bytes written; None for all of the outputs."""

    @property
    def flops(self) -> int:
        """Operations in all, 2 for each MAC."""
        return 2 * self.macs + self.elementwise


Formula = Callable[[Op], Count]
"""Raises KeyError, TypeError, ValueError or IndexError for a call that it does not understand."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A Count with its traffic filled in; without a formula it is a bound, not a claim."""

    macs: int
    elementwise: int
    skippable: int
    read: int
    written: int
    known: bool = True
    most: int | None = 0
    """MACs at most where no formula is `known`, see `most`; None where nothing bounds them."""


def count(op: Op, formulas: Mapping[str, Formula]) -> Counted:
    """Count one call; what has no formula, or is not understood by it, gets a bound."""
    formula = formulas.get(op.kind) if op.sized else None
    try:
        found = None if formula is None else formula(op)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError):
        found = None
    if found is None:
        return Counted(0, 0, 0, _read(op), _written(op), known=False, most=most(op))
    return Counted(
        found.macs,
        found.elementwise,
        found.skippable,
        _read(op) if found.read is None else found.read,
        _written(op) if found.written is None else found.written,
    )


def most(op: Op) -> int | None:
    """Bound the MACs of a call that is one matrix product, convolution or attention; None without sizes.

    With A and B the two largest operands and C all outputs, or the largest operand where there are none,
    it is the least of |A| |B|, |A| |C| and |B| |C|. In the first two each of the MACs has its own pair of
    elements out of any two of the three; attention takes |A| |B| / D twice, D being the width of a head.
    Taps of a convolution on padding are no elements of A, and may exceed it where the input is tiny.
    """
    if not op.sized:
        return None
    operands = sorted((tensor.size for tensor in op.tensors()), reverse=True)[:2]
    if not operands:
        return 0
    output = sum(tensor.size for tensor in op.outputs) if op.outputs else operands[0]
    return min(a * b for a, b in combinations((*operands, output), 2))


def _read(op: Op) -> int:
    return sum(tensor.bytes for tensor in set(op.tensors()))


def _written(op: Op) -> int:
    return sum(tensor.bytes for tensor in op.outputs)

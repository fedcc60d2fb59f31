"""FLOPs of operators: a table from an operator's name to a formula of its shapes.

1 MAC (multiply-accumulate) is 2 FLOPs. MACs are those of operators like matrix products; everything else is
element-wise: one operation for each elementary function of one element (add, multiply, compare, exponential,
root ...). ``flops = 2 x macs + elementwise``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

from modeldyno.models.static.graph import Op


@dataclass(frozen=True, slots=True)
class Count:
    """The cost of one call of one operator."""

    macs: int = 0
    """Multiply-accumulates of matrix products, dense."""
    elementwise: int = 0
    """Elementary operations outside of matrix products."""
    skippable: int = 0
    """The part of `macs` that a causal kernel may skip, as the results are masked."""
    read: int | None = None
    """Bytes read; None for all of the inputs."""
    written: int | None = None
    """Bytes written; None for all of the outputs."""

    @property
    def flops(self) -> int:
        """All operations, 2 for each MAC."""
        return 2 * self.macs + self.elementwise


Formula = Callable[[Op], Count]
"""Raises KeyError, TypeError, ValueError or IndexError for a call that it does not support."""


@dataclass(frozen=True, slots=True)
class CountedOp:
    """A Count with its bytes filled in; an upper bound where there is no formula."""

    macs: int
    elementwise: int
    skippable: int
    read: int
    written: int
    known: bool = True
    most: int | None = 0
    """Upper bound on the MACs where no formula is `known`, see `macs_upper_bound`; None if unbounded."""


def count_op(op: Op, formulas: Mapping[str, Formula]) -> CountedOp:
    """Count one call; without a formula that supports it, return an upper bound."""
    formula = formulas.get(op.kind) if op.sized else None
    try:
        result = None if formula is None else formula(op)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError):
        result = None
    if result is None:
        return CountedOp(0, 0, 0, _bytes_read(op), _bytes_written(op), known=False, most=macs_upper_bound(op))
    return CountedOp(
        result.macs,
        result.elementwise,
        result.skippable,
        _bytes_read(op) if result.read is None else result.read,
        _bytes_written(op) if result.written is None else result.written,
    )


def macs_upper_bound(op: Op) -> int | None:
    """Return an upper bound on the MACs of one matrix product, convolution or attention; None without sizes.

    With A and B the two largest operands and C all outputs, or the largest operand where there are none,
    it is the least of |A| |B|, |A| |C| and |B| |C|. In a product or a convolution each MAC has its own pair
    of elements from any two of the three; attention takes |A| |B| / D twice, D being the width of a head.
    Taps of a convolution on padding are no elements of A, and may exceed the bound for a tiny input.
    """
    if not op.sized:
        return None
    operands = sorted((tensor.size for tensor in op.tensors()), reverse=True)[:2]
    if not operands:
        return 0
    output = sum(tensor.size for tensor in op.outputs) if op.outputs else operands[0]
    return min(a * b for a, b in combinations((*operands, output), 2))


def _bytes_read(op: Op) -> int:
    return sum(tensor.bytes for tensor in set(op.tensors()))


def _bytes_written(op: Op) -> int:
    return sum(tensor.bytes for tensor in op.outputs)

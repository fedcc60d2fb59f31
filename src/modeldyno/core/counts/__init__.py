"""What operators cost: a table from an operator's name to a pure function of its shapes.

1 MAC (multiply-accumulate) is 2 FLOPs. MACs are those of matrix-product-like operators; everything else
is element-wise: one operation for each elementary function of one element (add, multiply, compare,
exponential, root ...). ``flops = 2 x macs + elementwise``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING

from modeldyno.core.graph import Op

if TYPE_CHECKING:
    from modeldyno.core.graph import Tensor


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
    most: int = 0
    """MACs at most, where no formula is `known`; `macs` is then 0."""


def count(op: Op, formulas: Mapping[str, Formula]) -> Counted:
    """Count one call; what has no formula, or is not understood by it, gets a bound."""
    formula = formulas.get(op.kind)
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


def most(op: Op) -> int:
    """Bound the MACs of one contraction of any two of the operands into the outputs.

    A contraction that takes each triple of elements (a of A, b of B, c of C) at most once has at most
    sqrt(|A| |B| |C|) of them: the inequality of Loomis and Whitney (Bull. AMS 55, 1949).
    """
    sizes = sorted((tensor.size for tensor in op.tensors()), reverse=True)[:2]
    output = sum(tensor.size for tensor in op.outputs)
    if not sizes:
        return 0
    return isqrt(sizes[0] * sizes[-1] * output)


def _read(op: Op) -> int:
    return sum(tensor.bytes for tensor in set(op.tensors()))


def _written(op: Op) -> int:
    return sum(_bytes(tensor) for tensor in op.outputs)


def _bytes(tensor: Tensor) -> int:
    return tensor.bytes

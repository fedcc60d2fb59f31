"""The neutral picture of a network at given sizes: operators in order, and the memory they live in.

Loaders make it (by tracing, or by reading a file), analysis reads it and never sees a framework.
Operators keep the names of their framework, such as ``aten.addmm`` or ``onnx.Conv``: those are what a
user can look up; `core.static.flops` has one table over all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_BITS = {
    "bool": 8, "complex32": 32, "complex64": 64, "complex128": 128, "quint4x2": 4, "quint2x4": 2,
    "bits1x8": 1, "string": 0,
}  # fmt: skip
_DIGITS = {"4": 4, "8": 8, "16": 16, "32": 32, "64": 64, "2": 2, "1": 1}


def bits(dtype: str) -> int:
    """Give the bits of one element of a dtype, such as 16 for ``bfloat16`` and 8 for ``float8_e4m3fn``.

    Text, whose elements have no size of their own, takes 0.
    """
    if dtype in _BITS:
        return _BITS[dtype]
    head = dtype.partition("_")[0]
    digits = head.lstrip("abcdefghijklmnopqrstuvwxyz")
    return _DIGITS.get(digits, 32)


class Phase(StrEnum):
    """Which part of a step an operator belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"
    """The optimiser's step."""


class Role(StrEnum):
    """What a piece of memory holds."""

    WEIGHT = "weight"
    """Parameters and buffers."""
    INPUT = "input"
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    """Of a parameter; those of activations are activations."""
    STATE = "optimizer state"


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand: a view of some storage. Positional, for there are thousands of them."""

    shape: tuple[int, ...]
    dtype: str
    storage: int = -1
    """Index into `Graph.storages`; -1 where none is known, such as a constant of a file."""
    stored: int | None = None
    """Elements that lie in memory, where they are fewer than the shape says: of an expanded tensor each
    once, of a sparse one those that are not zero."""
    offset: int = 0
    """Elements of the storage before its first one: what tells views of one shape apart."""

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes that reading all of it takes: what is stored, once; a sparse one's indices are left out."""
        size = self.size if self.stored is None else self.stored
        return (size * bits(self.dtype) + 7) // 8


Argument = Any
"""A Tensor, a list of Tensors, or a plain value: int, float, bool, str, None, or a tuple of them."""


@dataclass(frozen=True, slots=True)
class Op:
    """One call of one operator. Positional, for there are thousands of them."""

    kind: str
    """``<dialect>.<name>``: ``aten.convolution``, ``onnx.Conv``, ``com.microsoft.FusedMatMul``."""
    arguments: Mapping[str, Argument]
    """By the name that the operator's own schema gives it; what was left out is absent or None."""
    outputs: tuple[Tensor, ...]
    scope: str = ""
    """The path of the module that called it, such as ``encoder.layer.3.attention``."""
    phase: Phase = Phase.FORWARD
    sized: bool = True
    """Whether the shapes of all that goes in and comes out are known; what is not is left out."""
    name: str = ""
    """Of what it gives first, as the network's file calls it; empty where there is none."""

    def tensors(self) -> Iterator[Tensor]:
        """Give the tensors among the arguments, in the order of the schema."""
        for value in self.arguments.values():
            if isinstance(value, Tensor):
                yield value
            elif isinstance(value, list | tuple):
                yield from (item for item in value if isinstance(item, Tensor))

    def tensor(self, name: str) -> Tensor:
        """Give an argument that is a tensor.

        Raises:
            KeyError: it is none.
        """
        value = self.arguments.get(name)
        if not isinstance(value, Tensor):
            raise KeyError(name)
        return value


@dataclass(frozen=True, slots=True)
class Storage:
    """A piece of memory, from the operator that allocates it to the one before which it is free."""

    bytes: int
    role: Role
    born: int
    """Index of the operator that allocates it; -1 for what is there before the first."""
    died: int | None = None
    """Index of the first operator during which it is gone; None where it outlives the call."""
    scope: str = ""
    """The module that made it."""
    output: bool = False
    """Whether it is part of what the call returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """A choice of experts: each token takes `chosen` of `experts`, in the module `scope`."""

    scope: str
    experts: int
    chosen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A network at given sizes."""

    ops: tuple[Op, ...]
    """In the order in which they run."""
    storages: tuple[Storage, ...]
    sizes: dict[str, int] = field(default_factory=dict)
    """Symbolic dimension to the number that it had."""
    modules: dict[str, str] = field(default_factory=dict)
    """Module path to the name of its class, in the order of their definition; ``""`` is the whole."""
    outputs: dict[str, str] = field(default_factory=dict)
    """Module path to what its last call gave, such as ``4x64x16x16 float32``, where the loader saw that."""
    routings: tuple[Routing, ...] = ()
    caches: tuple[int, ...] = ()
    """Storages of the keys and values that the call returns, for later tokens to attend to."""
    assumptions: tuple[str, ...] = ()
    """What was taken for granted where control flow depends on data, a sentence part each."""

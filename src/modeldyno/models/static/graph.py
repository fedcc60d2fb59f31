"""Framework-independent graph of a model at given sizes: operators in order, and the memory they use.

Loaders make it (by tracing, or by reading a file); the analysis reads it and never sees a framework.
Operators keep the names of their framework, such as ``aten.addmm`` or ``onnx.Conv``, which users can look
up; `models.flops` has one table for all of them.
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


def bits_per_element(dtype: str) -> int:
    """Return the bits of one element of a dtype, such as 16 for ``bfloat16`` and 8 for ``float8_e4m3fn``.

    Strings, whose elements have no fixed size, take 0.
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
    """An operand: a view of some storage. Positional arguments, as there are thousands of them."""

    shape: tuple[int, ...]
    dtype: str
    storage: int = -1
    """Index into `Graph.storages`; -1 where unknown, such as for a constant of a file."""
    stored: int | None = None
    """Elements in memory, where fewer than the shape says: for an expanded tensor each once, for a sparse one
    the nonzero ones."""
    offset: int = 0
    """Elements of the storage before its first one; distinguishes views of one shape."""

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes read when all of it is read: what is stored, once, without the indices of a sparse tensor."""
        size = self.size if self.stored is None else self.stored
        return (size * bits_per_element(self.dtype) + 7) // 8


Argument = Any
"""A Tensor, a list of Tensors, or a plain value: int, float, bool, str, None, or a tuple of them."""


@dataclass(frozen=True, slots=True)
class Op:
    """One call of one operator. Positional arguments, as there are thousands of them."""

    kind: str
    """``<dialect>.<name>``: ``aten.convolution``, ``onnx.Conv``, ``com.microsoft.FusedMatMul``."""
    arguments: Mapping[str, Argument]
    """By their names in the operator's schema; what was left out is absent or None."""
    outputs: tuple[Tensor, ...]
    scope: str = ""
    """The path of the module that called it, such as ``encoder.layer.3.attention``."""
    phase: Phase = Phase.FORWARD
    sized: bool = True
    """Whether the shapes of all inputs and outputs are known; unknown ones are left out."""
    name: str = ""
    """The name of its first output in the model file; empty where there is none."""

    def tensors(self) -> Iterator[Tensor]:
        """Yield the tensors among the arguments, in the order of the schema."""
        for value in self.arguments.values():
            if isinstance(value, Tensor):
                yield value
            elif isinstance(value, list | tuple):
                yield from (item for item in value if isinstance(item, Tensor))

    def tensor(self, name: str) -> Tensor:
        """Return an argument that is a tensor.

        Raises:
            KeyError: it is not a tensor.
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
    """Index of the operator that allocates it; -1 if it is there before the first."""
    died: int | None = None
    """Index of the first operator after it is freed; None where it outlives the call."""
    scope: str = ""
    """The module that allocated it."""
    output: bool = False
    """Whether it is part of what the call returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """The routing of a mixture of experts: each token takes `chosen` of `experts`, in the module `scope`."""

    scope: str
    experts: int
    chosen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A model at given sizes."""

    ops: tuple[Op, ...]
    """In the order in which they run."""
    storages: tuple[Storage, ...]
    sizes: dict[str, int] = field(default_factory=dict)
    """Symbolic dimension to its size."""
    modules: dict[str, str] = field(default_factory=dict)
    """Module path to the name of its class, in the order of their definition; ``""`` is the whole."""
    outputs: dict[str, str] = field(default_factory=dict)
    """Module path to the output of its last call, such as ``4x64x16x16 float32``, where the loader saw it."""
    routings: tuple[Routing, ...] = ()
    caches: tuple[int, ...] = ()
    """Storages of the KV cache: keys and values that the call returns."""
    assumptions: tuple[str, ...] = ()
    """Assumptions made where control flow depends on data, a phrase each."""

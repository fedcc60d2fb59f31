"""The memory of operators in the order in which they run: what each needs, and from when to when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modeldyno.models.static.graph import Op, Role, Storage, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(slots=True, kw_only=True)
class _Memory:
    bytes: int
    role: Role
    scope: str


@dataclass(kw_only=True)
class OperatorMemory:
    """Pieces of memory by number, which tensors of the operators name as their storage."""

    pieces: list[_Memory] = field(default_factory=list)

    def add(self, size: int, role: Role, scope: str = "") -> int:
        """Return the number of a new piece of `size` bytes."""
        self.pieces.append(_Memory(bytes=size, role=role, scope=scope))
        return len(self.pieces) - 1

    def new_tensor(self, shape: tuple[int, ...], dtype: str, role: Role, scope: str = "") -> Tensor:
        """Return a tensor with memory of its own."""
        value = Tensor(shape, dtype, len(self.pieces))
        self.add(value.bytes, role, scope)
        return value

    def lifetimes(self, ops: Sequence[Op], returned: set[int]) -> Iterator[Storage]:
        """Yield the storages: each is held from the operator that makes it to the last that uses it."""
        born: dict[int, int] = {}
        last: dict[int, int] = {}
        users: dict[int, str] = {}
        for index, op in enumerate(ops):
            for tensor in (*op.tensors(), *op.outputs):
                born.setdefault(tensor.storage, index)
                last[tensor.storage] = index
                users.setdefault(tensor.storage, op.scope)
        for index, memory in enumerate(self.pieces):
            kept, output = memory.role is not Role.ACTIVATION, index in returned
            begin = born.get(index, 0)
            yield Storage(
                memory.bytes if kept or index in born else 0,
                memory.role,
                -1 if kept else begin,
                None if kept or output else last.get(index, begin) + 1,
                users.get(index, memory.scope) if memory.role is Role.WEIGHT else memory.scope,
                output,
            )


def scopes(ops: Sequence[Op]) -> dict[str, str]:
    """Return the scopes of operators, and their parents, whose classes are not known."""
    modules = {"": ""}
    for scope in dict.fromkeys(op.scope for op in ops):
        parts = scope.split(".") if scope else []
        modules |= {".".join(parts[: depth + 1]): "" for depth in range(len(parts))}
    return modules

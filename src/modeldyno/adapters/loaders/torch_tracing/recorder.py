"""Writes down what happens on a stage: operators, and memory from its birth to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from modeldyno.adapters.loaders.torch_tracing.meta_tensor import Place, Shadow
from modeldyno.adapters.loaders.torch_tracing.workspace_memory import scratch
from modeldyno.core.static import graph as neutral
from modeldyno.core.static.graph import Op, Phase, Role, Routing

if TYPE_CHECKING:
    from modeldyno.adapters.loaders.torch_tracing.dispatch import Call


def _same(tensor: Tensor) -> Any:
    return tensor


@dataclass(slots=True)
class Memory:
    """A storage in the making."""

    bytes: int
    born: int
    scope: str
    role: Role = Role.ACTIVATION
    died: int | None = None
    output: bool = False


@dataclass(slots=True)
class Recorder:
    """Writes down what happens on a stage."""

    ops: list[Op] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    """Module path to what its last call gave."""
    routings: dict[Routing, None] = field(default_factory=dict)
    phase: Phase = Phase.FORWARD
    caches: list[int] = field(default_factory=list)
    on: bool = False
    """Whether operators are written down."""
    begun: bool = False
    """Whether memory is of the call, not from before."""
    path: list[str] = field(default_factory=lambda: [""])
    """The modules that are being called, the innermost last."""
    nodes: dict[int, str] = field(default_factory=dict)
    """Number of a node of autograd to the module in which it was made."""
    adopted: dict[int, tuple[Place, int]] = field(default_factory=dict)
    """Of memory that another course left behind, such as a table that a module keeps: where it is here."""
    before: Recorder | None = None
    """Who wrote down how the module was made: its memory is the first part of this."""
    of: Callable[[Tensor], Shadow] = _same
    """How to find the shadow of a plain tensor; the stage's own."""
    flat: frozenset[str] = frozenset()
    """Modules whose parts work without being called, and those parts."""
    objected: tuple[int, str] = (0, "")
    """The id of the last error that left a module, and the innermost module that it left."""

    @property
    def scope(self) -> str:
        """The module at work; in the backward course the one that made the node of autograd."""
        if self.phase is Phase.BACKWARD:
            node: Any = torch._C._current_autograd_node()  # noqa: SLF001 - no public name
            return "" if node is None else self.nodes.get(node._sequence_nr(), "")  # noqa: SLF001 - the same
        return self.path[-1]

    def allocate(self, size: int) -> int:
        """Note a new piece of memory."""
        born = len(self.ops) if self.begun else -1
        self.memory.append(Memory(size, born, self.scope))
        return len(self.memory) - 1

    def grow(self, place: Place, size: int) -> None:
        """Note that it became larger; memory that shrinks keeps its size."""
        found = self.memory[self.index(place)]
        found.bytes = max(found.bytes, size)

    def free(self, index: int) -> None:
        """Note its end."""
        found = self.memory[index]
        if found.role in {Role.ACTIVATION, Role.GRADIENT}:
            found.died = len(self.ops)

    def watch(self, call: Call) -> None:
        """Note a call, unless it only looks at memory in another way."""
        if not self.on:
            return
        shadows = tuple(self._shadows(call))
        scope = self._owner(shadows)
        if self.phase is Phase.FORWARD and torch.is_grad_enabled():
            self.nodes[torch._C._autograd._get_sequence_nr() - 1] = scope  # noqa: SLF001 - no public name
        if not call.fresh:
            return
        arguments = dict(zip(call.trait.arguments, map(self._argument, call.args), strict=False))
        for name, value in call.kwargs.items():
            arguments[name] = self._argument(value)
        outputs = tuple(map(self.tensor, call.outputs))
        if call.trait.name == "aten.topk":
            self._routed(arguments, scope)
        if size := scratch(call.trait.name, arguments, outputs):
            self.memory.append(Memory(size, len(self.ops), scope, died=len(self.ops) + 1))
        for made in call.outputs:
            memory = self.held(made)
            memory.scope = scope if memory.born == len(self.ops) else memory.scope
        sparse = any(shadow.place.stored is not None for shadow in shadows)
        kind = f"{call.trait.name}:sparse" if sparse else call.trait.name
        self.ops.append(Op(kind, arguments, outputs, scope, self.phase))

    def _shadows(self, call: Call) -> Iterator[Shadow]:
        for value in (*call.args, *call.kwargs.values()):
            for one in value if isinstance(value, list | tuple) else (value,):
                if isinstance(one, Tensor):
                    yield one if isinstance(one, Shadow) else self.of(one)

    def _owner(self, shadows: tuple[Shadow, ...]) -> str:
        """Give the module at work; where its parts are not called, the part whose weight is used."""
        scope = self.scope
        if self.phase is not Phase.FORWARD or scope not in self.flat:
            return scope
        for shadow in shadows:
            found = self.held(shadow)
            if found.role is Role.WEIGHT and found.scope.startswith(f"{scope}." if scope else ""):
                return found.scope or scope
        return scope

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Shadow):
            return self.tensor(value)
        if isinstance(value, Tensor):
            return self.tensor(self.of(value))
        if isinstance(value, list | tuple):
            return tuple(map(self._argument, value))
        if value is None or isinstance(value, bool | int | float | str):
            return value
        packed = getattr(value, "unpack", None) if isinstance(value, torch.ScriptObject) else None
        return str(value) if packed is None else tuple(packed()[0].shape)  # a weight is told by its shape

    def tensor(self, shadow: Shadow) -> neutral.Tensor:
        """Describe a shadow."""
        shape = tuple(shadow.shape_of.shape)
        stored = shadow.place.stored
        strides = shadow.shape_of.stride()
        if 0 in strides:
            stored = 1
            for size, stride in zip(shape, strides, strict=True):
                stored *= size if stride else 1
            if 0 in shape:
                stored = 0
        kind, offset = _dtype(shadow.shape_of.dtype), int(shadow.shape_of.storage_offset())
        return neutral.Tensor(shape, kind, self.index(shadow.place), stored, offset)

    def index(self, place: Place) -> int:
        """Number a piece of memory; what an earlier course left behind is there before this one."""
        owner = getattr(place.freed, "__self__", self)
        if owner is self or owner is self.before:
            return place.index
        if id(place) not in self.adopted:
            self.memory.append(
                replace(owner.memory[place.index], role=Role.WEIGHT, born=-1, died=None, output=False)
            )
            self.adopted[id(place)] = place, len(self.memory) - 1
        return self.adopted[id(place)][1]

    def held(self, shadow: Shadow) -> Memory:
        """Give the memory in which a shadow lies."""
        return self.memory[self.index(shadow.place)]

    def _routed(self, arguments: Mapping[str, Any], scope: str) -> None:
        scores, chosen = arguments.get("self"), arguments.get("k")
        if isinstance(scores, neutral.Tensor) and isinstance(chosen, int) and scores.shape:
            dim = arguments.get("dim", -1)
            self.routings[Routing(scope=scope, experts=scores.shape[int(dim)], chosen=chosen)] = None


@cache
def _dtype(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")

"""Records what happens under a dispatch mode: operators, and memory from allocation to release."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from modeldyno.models.loaders import torch_weights
from modeldyno.models.loaders.torch_tracing.meta_tensor import MetaTensor, StorageHandle
from modeldyno.models.loaders.torch_tracing.workspace_memory import workspace_bytes
from modeldyno.models.static import graph as neutral
from modeldyno.models.static.graph import Op, Phase, Role, Routing

if TYPE_CHECKING:
    from modeldyno.models.loaders.torch_tracing.dispatch import DispatchEvent


def _identity(tensor: Tensor) -> Any:
    return tensor


@dataclass(slots=True)
class RecordedStorage:
    """A storage that is being recorded."""

    bytes: int
    born: int
    scope: str
    role: Role = Role.ACTIVATION
    died: int | None = None
    output: bool = False


@dataclass(slots=True)
class Recorder:
    """Records operators and memory under a dispatch mode."""

    ops: list[Op] = field(default_factory=list)
    memory: list[RecordedStorage] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    """Module path to a description of its last output."""
    routings: dict[Routing, None] = field(default_factory=dict)
    phase: Phase = Phase.FORWARD
    caches: list[int] = field(default_factory=list)
    recording: bool = False
    """Whether operators are recorded."""
    call_begun: bool = False
    """Whether new memory belongs to the call; else it exists before it."""
    path: list[str] = field(default_factory=lambda: [""])
    """The modules that are being called, the innermost last."""
    nodes: dict[int, str] = field(default_factory=dict)
    """Sequence number of an autograd node to the module in which it was made."""
    adopted: dict[int, tuple[StorageHandle, int]] = field(default_factory=dict)
    """Memory left by an earlier trace, such as a table that a module keeps, with its index here."""
    before: Recorder | None = None
    """Recorder of the module's construction: its memory is the first part of this one's."""
    meta_tensor_of: Callable[[Tensor], MetaTensor] = _identity
    """Returns the meta tensor of a plain tensor; the dispatch mode's own method."""
    uncalled: frozenset[str] = frozenset()
    """Modules whose parts run without being called, and those parts."""
    failed_in: tuple[int, str] = (0, "")
    """The id of the last error that left a module, and the innermost module that it left."""

    @property
    def scope(self) -> str:
        """The module at work; in backward the one that made the autograd node."""
        if self.phase is Phase.BACKWARD:
            node: Any = torch._C._current_autograd_node()
            return "" if node is None else self.nodes.get(node._sequence_nr(), "")
        return self.path[-1]

    def allocate(self, size: int) -> int:
        """Record a new piece of memory."""
        born = len(self.ops) if self.call_begun else -1
        self.memory.append(RecordedStorage(size, born, self.scope))
        return len(self.memory) - 1

    def grow(self, handle: StorageHandle, size: int) -> None:
        """Record that it grew; memory that shrinks keeps its size."""
        memory = self.memory[self.index(handle)]
        memory.bytes = max(memory.bytes, size)

    def free(self, index: int) -> None:
        """Record its release."""
        memory = self.memory[index]
        if memory.role in {Role.ACTIVATION, Role.GRADIENT}:
            memory.died = len(self.ops)

    def watch(self, call: DispatchEvent) -> None:
        """Record a call, unless it only returns a view."""
        if not self.recording:
            return
        meta_tensors = tuple(self._meta_tensors(call))
        scope = self._owning_module(meta_tensors)
        if self.phase is Phase.FORWARD and torch.is_grad_enabled():
            self.nodes[torch._C._autograd._get_sequence_nr() - 1] = scope
        if not call.fresh:
            return
        arguments = dict(zip(call.trait.arguments, map(self._argument, call.args), strict=False))
        for name, value in call.kwargs.items():
            arguments[name] = self._argument(value)
        outputs = tuple(map(self.tensor, call.outputs))
        if call.trait.name == "aten.topk":
            self._record_routing(arguments, scope)
        if size := workspace_bytes(call.trait.name, arguments, outputs):
            self.memory.append(RecordedStorage(size, len(self.ops), scope, died=len(self.ops) + 1))
        for output in call.outputs:
            memory = self.memory_of(output)
            memory.scope = scope if memory.born == len(self.ops) else memory.scope
        sparse = any(meta_tensor.handle.stored is not None for meta_tensor in meta_tensors)
        kind = f"{call.trait.name}:sparse" if sparse else call.trait.name
        self.ops.append(Op(kind, arguments, outputs, scope, self.phase))

    def _meta_tensors(self, call: DispatchEvent) -> Iterator[MetaTensor]:
        for value in (*call.args, *call.kwargs.values()):
            for item in value if isinstance(value, list | tuple) else (value,):
                if isinstance(item, Tensor):
                    yield item if isinstance(item, MetaTensor) else self.meta_tensor_of(item)

    def _owning_module(self, meta_tensors: tuple[MetaTensor, ...]) -> str:
        """Return the module at work; where its parts are not called, the part whose weight is used."""
        scope = self.scope
        if self.phase is not Phase.FORWARD or scope not in self.uncalled:
            return scope
        for meta_tensor in meta_tensors:
            memory = self.memory_of(meta_tensor)
            if memory.role is Role.WEIGHT and memory.scope.startswith(f"{scope}." if scope else ""):
                return memory.scope or scope
        return scope

    def _argument(self, value: Any) -> Any:
        if isinstance(value, MetaTensor):
            return self.tensor(value)
        if isinstance(value, Tensor):
            return self.tensor(self.meta_tensor_of(value))
        if isinstance(value, list | tuple):
            return tuple(map(self._argument, value))
        if value is None or isinstance(value, bool | int | float | str):
            return value
        return (_packed_shapes(value) if isinstance(value, torch.ScriptObject) else ()) or str(value)

    def tensor(self, meta_tensor: MetaTensor) -> neutral.Tensor:
        """Describe a meta tensor."""
        shape = tuple(meta_tensor.backing.shape)
        stored = meta_tensor.handle.stored
        strides = meta_tensor.backing.stride()
        if 0 in strides:
            stored = 1
            for size, stride in zip(shape, strides, strict=True):
                stored *= size if stride else 1
            if 0 in shape:
                stored = 0
        kind, offset = _dtype(meta_tensor.backing.dtype), int(meta_tensor.backing.storage_offset())
        return neutral.Tensor(shape, kind, self.index(meta_tensor.handle), stored, offset)

    def index(self, handle: StorageHandle) -> int:
        """Return the index of a piece of memory; add one of an earlier trace as existing before."""
        owner = getattr(handle.on_free, "__self__", self)
        if owner is self or owner is self.before:
            return handle.index
        if id(handle) not in self.adopted:
            self.memory.append(
                replace(owner.memory[handle.index], role=Role.WEIGHT, born=-1, died=None, output=False)
            )
            self.adopted[id(handle)] = handle, len(self.memory) - 1
        return self.adopted[id(handle)][1]

    def memory_of(self, meta_tensor: MetaTensor) -> RecordedStorage:
        """Return the memory of a meta tensor."""
        return self.memory[self.index(meta_tensor.handle)]

    def _record_routing(self, arguments: Mapping[str, Any], scope: str) -> None:
        scores, selected = arguments.get("self"), arguments.get("k")
        if isinstance(scores, neutral.Tensor) and isinstance(selected, int) and scores.shape:
            dim = arguments.get("dim", -1)
            self.routings[Routing(scope=scope, experts=scores.shape[int(dim)], chosen=selected)] = None


def _packed_shapes(packed: torch.ScriptObject) -> tuple[Any, ...]:
    """Return the shape of a packed weight, or the shapes of a packed cell's weights and biases."""
    if (unpack := getattr(packed, "unpack", None)) is not None:
        return tuple(unpack()[0].shape)
    return tuple(tuple(tensor.shape) for tensor in torch_weights.packed_cell(packed).values())


@cache
def _dtype(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")

"""One operator call: its inputs as meta tensors, its outputs wrapped again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from modeldyno.models.loaders.torch_tracing.meta_tensor import (
    META,
    MetaTensor,
    StorageHandle,
    current_dispatch_mode,
    is_small,
)

if TYPE_CHECKING:
    from modeldyno.models.loaders.torch_tracing.meta_tensor import DispatchMode


class OpCall:
    """The meta tensors of one operator call: inputs and outputs.

    No function here refers to itself by closure: a cycle would keep tensors alive for too long.
    """

    __slots__ = (
        "all_known",
        "data_dependent",
        "dispatch_mode",
        "fresh",
        "guess",
        "handles",
        "meta_tensors",
        "outputs",
        "plain_tensors",
        "real_output",
    )

    def __init__(self, dispatch_mode: DispatchMode) -> None:
        self.dispatch_mode = dispatch_mode
        self.meta_tensors: dict[int, MetaTensor] = {}
        self.plain_tensors: dict[int, Tensor] = {}
        """Plain tensors by the id of their backing tensor: one changed in place is returned itself."""
        self.handles: dict[int, StorageHandle] = {}
        self.all_known = True
        self.real_output: Any = None
        """Real output, where all inputs are known."""
        self.guess: str | None = None
        """Assumption behind the known inputs."""
        self.data_dependent = False
        """Whether output shapes depend on values."""
        self.outputs: list[MetaTensor] = []
        self.fresh = False
        """Whether new memory was allocated."""

    def unwrap(self, value: Any) -> Any:
        """Return arguments with their tensors on the meta device."""
        if isinstance(value, Tensor):
            meta_tensor = value if isinstance(value, MetaTensor) else self.dispatch_mode.meta_tensor_of(value)
            meta = meta_tensor.backing
            self.meta_tensors[id(meta)] = meta_tensor
            if meta_tensor is not value:
                self.plain_tensors[id(meta)] = value
            self.handles[meta.untyped_storage()._cdata] = meta_tensor.handle
            if meta_tensor.known_values is None or not meta_tensor.handle.valid:
                self.all_known = False
            self.guess = self.guess or meta_tensor.guess
            return meta
        if isinstance(value, list | tuple):
            return type(value)(map(self.unwrap, value))
        return value

    def wrap(self, meta: Any, value: Any) -> Any:
        """Wrap outputs as meta tensors; an input that is returned stays itself."""
        if isinstance(meta, Tensor):
            same = self.meta_tensors.get(id(meta))
            if same is not None:
                self.outputs.append(same)
                return self.plain_tensors.get(id(meta), same)
            handle = self.handles.get(meta.untyped_storage()._cdata)
            values = value if isinstance(value, Tensor) and is_small(value) else None
            self.fresh |= handle is None
            guess = None if values is None else self.guess
            wrapped = (
                self.dispatch_mode.wrap_meta(meta, values, guess)
                if handle is None
                else MetaTensor(meta, handle, values, guess)
            )
            self.outputs.append(wrapped)
            return wrapped
        if isinstance(meta, list | tuple):
            items = value if isinstance(value, list | tuple) else (None,) * len(meta)
            return type(meta)(map(self.wrap, meta, items))
        return meta


def known_values_of(value: Any) -> Any:
    """Return arguments with the known values of their tensors."""
    if isinstance(value, MetaTensor):
        return value.known_values
    if isinstance(value, Tensor):
        return current_dispatch_mode().meta_tensor_of(value).known_values
    if isinstance(value, list | tuple):
        return type(value)(map(known_values_of, value))
    return value


def shape_key(value: Any) -> Any:
    """Return a cache key of what output shapes depend on; numbers of different types differ in it."""
    if isinstance(value, Tensor):
        return (value.shape, value.stride(), value.dtype)
    if isinstance(value, list | tuple):
        return tuple(map(shape_key, value))
    return (type(value), value)


def output_layouts(out: Any, op_call: OpCall) -> Any:
    """Return the layouts of tensors with memory of their own; None if any shares memory."""
    if isinstance(out, Tensor):
        shared = id(out) in op_call.meta_tensors or out.untyped_storage()._cdata in op_call.handles
        plain = out.layout is torch.strided and not out.storage_offset() and not out.is_quantized
        return (out.shape, out.stride(), out.dtype) if plain and not shared else None
    if isinstance(out, list | tuple):
        forms = [output_layouts(item, op_call) for item in out]
        return None if None in forms else (type(out), forms)
    return None


def empty_like_layouts(forms: Any) -> Any:
    """Make tensors on the meta device with these layouts."""
    if isinstance(forms[0], type):
        return forms[0](map(empty_like_layouts, forms[1]))
    return torch.empty_strided(forms[0], forms[1], dtype=forms[2], device=META)

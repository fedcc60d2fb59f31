"""The stored tensors of a torch module: parameters, buffers and packed weights, as `Weight`s."""

from __future__ import annotations

import inspect
from itertools import chain
from typing import TYPE_CHECKING

from modeldyno.models.static.weights import Weight

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import ScriptObject, Tensor, dtype
    from torch.nn import Module

_QUANTIZED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")
"""Modules with packed weights; those of the second package are fused with a ReLU."""


def list_weights(module: Module) -> list[Weight]:
    """List every parameter and buffer under each of its names, with the key of shared storage."""
    parameters = module.named_parameters(remove_duplicate=False)
    buffers = module.named_buffers(remove_duplicate=False)
    return [
        *(describe_weight(name, tensor, parameter=True) for name, tensor in parameters),
        *(describe_weight(name, tensor, parameter=False) for name, tensor in buffers),
        *packed_weights(module),
    ]


def describe_weight(name: str, tensor: Tensor, *, parameter: bool) -> Weight:
    """Describe one tensor as it is stored."""
    parts = plain_parts(tensor)
    largest = max(parts, key=_stored_bytes)
    return Weight(
        name=name,
        shape=tuple(stored_shape(tensor)),
        dtype=dtype_name(largest.dtype),
        size=_numel(tensor),
        bytes=sum(map(_stored_bytes, parts)),
        storage=_storage_key(tensor, largest),
        parameter=parameter,
        trainable=parameter and tensor.requires_grad,
    )


def packed_weights(module: Module) -> Iterator[Weight]:
    """Yield the packed weights of quantised modules, which unpack them only when called, with real values."""
    from torch.utils._python_dispatch import _disable_current_modes  # torch may be missing

    for scope, part in module.named_modules():
        if not type(part).__module__.startswith(_QUANTIZED):
            continue
        for name in ("weight", "bias"):
            getter = getattr(part, name, None)
            with _disable_current_modes():
                tensor = getter() if inspect.ismethod(getter) else None
                if name == "weight" and _is_half(part) and tensor is not None:
                    tensor = tensor.half()  # as it is kept; it is unpacked as float32
            if tensor is not None:
                yield describe_weight(f"{scope}.{name}".lstrip("."), tensor, parameter=True)
        with _disable_current_modes():
            tensors = _recurrent_tensors(part)
        for name, tensor in tensors.items():
            yield describe_weight(f"{scope}.{name}".lstrip("."), tensor, parameter=True)


def _is_half(part: Module) -> bool:
    """Whether a module has weights that are packed in half precision."""
    return str(getattr(getattr(part, "_packed_params", None), "dtype", "")) == "torch.float16"


def _recurrent_tensors(layer: Module) -> dict[str, Tensor]:
    """Return the packed weights and the biases of a dynamically quantised LSTM or GRU, or of a cell."""
    tensors: dict[str, Tensor] = {}
    for number, packed in enumerate(getattr(layer, "_all_weight_values", ())):
        tensors |= {f"{name}.{number}": tensor for name, tensor in packed_cell(packed.param).items()}
    for part in _GATES:
        if (product := getattr(layer, f"_packed_weight_{part}", None)) is not None:
            tensors[f"weight_{part}"] = product.unpack()[0]
            if (bias := getattr(layer, f"bias_{part}", None)) is not None:
                tensors[f"bias_{part}"] = bias
    return tensors


def packed_cell(cell: ScriptObject) -> dict[str, Tensor]:
    """Return the biases and the weights of one layer and direction of an LSTM or a GRU; empty for others.

    In half precision the biases are packed with the weights, which are unpacked as float32.
    """
    state = cell.__getstate__() if hasattr(cell, "__getstate__") else None
    match state:
        case ((str(kind), list(biases), list(), list(), list(products)), _):
            unpacked = [product.unpack() for product in products]
        case _:
            return {}
    half = "fp16" in kind
    biases = biases or [bias for _, bias in unpacked if bias is not None]
    weights = [weight.half() if half else weight for weight, _ in unpacked]
    names = _CELL[-len(biases) - len(weights) :]  # biases, if it has them, then weights
    return dict(zip(names, (*biases, *weights), strict=True))


_GATES = ("ih", "hh")
"""Products of a recurrent layer: with its input, and with its state."""
_CELL = (*(f"bias_{part}" for part in _GATES), *(f"weight_{part}" for part in _GATES))


def plain_parts(tensor: Tensor) -> list[Tensor]:
    """Return the ordinary tensors that a tensor consists of; a quantised or sparse one has several."""
    import torch  # this module is imported where torch may be missing

    if is_lazy(tensor):
        return [tensor]
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return list(chain.from_iterable(plain_parts(getattr(tensor, name)) for name in names))
    if tensor.layout is torch.sparse_coo:
        sparse = tensor.detach().coalesce()
        return [sparse.values(), sparse.indices()]
    return [tensor]


def _stored_bytes(tensor: Tensor) -> int:
    size = _numel(tensor) * tensor.dtype.itemsize
    if tensor.is_meta or is_lazy(tensor) or is_meta_tensor(tensor):
        return size
    return min(size, tensor.untyped_storage().nbytes())  # an expanded tensor is stored once


def _storage_key(tensor: Tensor, largest: Tensor) -> str:
    """Return a key of the memory: its address, or, without one (meta, lazy), the tensor itself."""
    if is_meta_tensor(largest):
        part = largest.backing  # type: ignore[attr-defined]  # a meta tensor's
        return f"place {largest.handle.index}+{part.storage_offset()}x{part.numel()}"  # type: ignore[attr-defined]
    address = 0 if largest.is_meta or is_lazy(largest) else largest.untyped_storage().data_ptr()
    if address == 0:
        return f"tensor {id(tensor)}"
    return f"{largest.device}:{address:x}+{largest.storage_offset()}x{largest.numel()}"


def is_lazy(tensor: Tensor) -> bool:
    """Whether a tensor gets its shape only on the first call."""
    return hasattr(tensor, "materialize")


def lazy_parts(module: Module) -> list[str]:
    """Name the tensors that get their shape only on the first call."""
    named = chain(module.named_parameters(), module.named_buffers())
    return [name for name, tensor in named if is_lazy(tensor)]


def is_meta_tensor(tensor: Tensor) -> bool:
    """Whether a tensor has a shape but no values, as `torch_tracing` makes them."""
    return hasattr(tensor, "backing")


def stored_shape(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape of a tensor; () of one that has none yet."""
    return () if is_lazy(tensor) else tuple(tensor.shape)


def _numel(tensor: Tensor) -> int:
    return 0 if is_lazy(tensor) else tensor.numel()


def dtype_name(kind: dtype) -> str:
    """Return the name of a dtype in ModelDyno's spelling."""
    return str(kind).removeprefix("torch.")

"""Graph and digest of a torch.nn.Module, whatever file or factory it came from."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.models.interface import Form, Model
from modeldyno.models.loaders import digest, python_source
from modeldyno.models.loaders.torch_weights import (
    dtype_name,
    is_lazy,
    list_weights,
    plain_parts,
    stored_shape,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor
    from torch.nn import Module

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.models.interface import Tracing
    from modeldyno.models.static.graph import Graph

_LIBRARIES = ("torch", "torchvision", "transformers", "torchao", "timm")
"""Packages whose classes are identified by name; others by their source."""

# --- graph -------------------------------------------------------------------------------------


def make_tracer(module: Module) -> Callable[[Tracing], Graph]:
    """Return a function that traces the module, on a copy of its structure that is made on the first call.

    There is a copy for each dtype.
    """
    prepared: dict[str, Any] = {}

    def trace(tracing: Tracing) -> Graph:
        from modeldyno.models.loaders.torch_tracing import graph as torch_tracing_graph  # it imports torch

        if tracing.dtype not in prepared:
            prepared[tracing.dtype] = torch_tracing_graph.copy_to_meta(module, tracing.dtype)
        copied, dispatch_mode = prepared[tracing.dtype]
        return torch_tracing_graph.trace_module(copied, dispatch_mode, tracing)

    return trace


def describe_module(
    module: Module, name: str, content_digest: str, inputs: tuple[InputSpec, ...] = ()
) -> Model:
    """Return the model of a module: its weights, and a graph that is traced on a copy of its structure."""
    return Model(
        identity=ModelIdentity(name=name, digest=content_digest, framework="torch"),
        form=Form.TORCH,
        value=module,
        inputs=inputs,
        weights=lambda: list_weights(module),
        graph=make_tracer(module),
    )


# --- digest ------------------------------------------------------------------------------------


def digest_content(module: Module) -> Iterator[bytes | memoryview | str]:
    """Yield what determines the outputs: the structure, the code of the user's classes, and the state."""
    classes: dict[type[Module], None] = {}
    for name, part in module.named_modules():
        cls = type(part)
        classes[cls] = None
        yield f"{name}={cls.__qualname__}({_describe_settings(part)})"
    for cls in classes:
        if not cls.__module__.startswith(_LIBRARIES):
            yield python_source.source_code(cls)
    tensors = chain(
        module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)
    )
    for name, tensor in tensors:
        yield f"{name}:{dtype_name(tensor.dtype)}:{stored_shape(tensor)}"
        for part in plain_parts(tensor):
            yield from _tensor_bytes(part)


def module_digest(module: Module, *more: str | bytes) -> str:
    """Digest a module, and any further parts."""
    return digest.digest_parts(chain(more, digest_content(module)))


def structure_digest(module: Module, *more: str | bytes) -> str:
    """Digest the structure of a module, without the values of its weights."""
    parts = (
        f"{name}={type(part).__qualname__}({_describe_settings(part)})"
        for name, part in module.named_modules()
    )
    shapes = (f"{w.name}:{w.dtype}:{w.shape}" for w in list_weights(module))
    return digest.digest_structure(chain(more, parts, shapes))


def _describe_settings(part: Module) -> str:
    """Describe a module by its extra_repr and plain attributes, except the training mode."""
    plain = {
        name: value
        for name, value in vars(part).items()
        if not name.startswith("_") and name != "training" and isinstance(value, _PLAIN)
    }
    return f"{part.extra_repr()};{sorted(plain.items())!r}"


_PLAIN = (bool, int, float, str, tuple)


def _tensor_bytes(tensor: Tensor) -> Iterator[bytes | memoryview]:
    import torch  # see above

    if tensor.is_meta or is_lazy(tensor):
        return
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    yield flat.numpy().data

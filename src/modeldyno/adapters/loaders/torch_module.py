"""Graph, digest and inputs of a torch.nn.Module, whatever file or factory it came from."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.loaders import digest, python_source
from modeldyno.adapters.loaders.torch_weights import (
    dtype_name,
    is_lazy,
    is_meta_tensor,
    list_weights,
    plain_parts,
    stored_shape,
)
from modeldyno.core.spec.input_spec import BATCH, InputSpec
from modeldyno.core.spec.model_ref import ModelIdentity
from modeldyno.errors import RequestError
from modeldyno.interfaces.loader import Form, Model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor
    from torch.nn import Module

    from modeldyno.core.static.graph import Graph
    from modeldyno.interfaces.loader import Feed, Tracing

_LIBRARIES = ("torch", "torchvision", "transformers", "torchao", "timm")
"""Packages whose classes are identified by name; others by their source."""

# --- graph -------------------------------------------------------------------------------------


def make_tracer(module: Module) -> Callable[[Tracing], Graph]:
    """Return a function that traces the module, on a copy of its structure that is made on the first call.

    There is a copy for each dtype.
    """
    prepared: dict[str, Any] = {}

    def trace(tracing: Tracing) -> Graph:
        from modeldyno.adapters.loaders.torch_tracing import graph as torch_tracing_graph  # noqa: PLC0415 - it imports torch

        if tracing.dtype not in prepared:
            prepared[tracing.dtype] = torch_tracing_graph.copy_to_meta(module, tracing.dtype)
        copied, dispatch_mode = prepared[tracing.dtype]
        return torch_tracing_graph.trace_module(copied, dispatch_mode, tracing)

    return trace


def describe_module(module: Module, name: str, content_digest: str, inputs: tuple[InputSpec, ...]) -> Model:
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
    import torch  # noqa: PLC0415 - see above

    if tensor.is_meta or is_lazy(tensor):
        return
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    yield flat.numpy().data


# --- inputs ------------------------------------------------------------------------------------


def forward_parameters(module: Module) -> tuple[str, ...]:
    """Return the parameters of forward that take a single argument, in order."""
    schema = getattr(getattr(module, "forward", None), "schema", None)
    if schema is not None:  # a ScriptModule
        return tuple(argument.name for argument in schema.arguments[1:])
    return tuple(p.name for p in inspect.signature(module.forward).parameters.values() if p.kind in _SINGLE)


_SINGLE = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def forward_inputs(module: Module) -> tuple[InputSpec, ...]:
    """Declare the required inputs of forward; the user gives shape and dtype."""
    schema = getattr(module.forward, "schema", None)
    if schema is not None:
        names = [a.name for a in schema.arguments[1:] if not a.has_default_value()]
    else:
        names = list(python_source.required_parameters(module.forward))
    return tuple(InputSpec(name=name) for name in names)


def candidate_inputs(module: Module) -> Iterator[InputSpec]:
    """Yield likely inputs of a one-input module, from its first layers: images, rows, ids, signals."""
    inputs = forward_inputs(module)
    if len(inputs) != 1:
        return
    name = inputs[0].name
    layers = (layer for part in module.modules() if (layer := _first_shapes(part)))
    for shapes, dtype, high in islice(layers, 2):
        low = None if high is None else 0.0
        yield from (InputSpec(name=name, shape=shape, dtype=dtype, low=low, high=high) for shape in shapes)


def _first_shapes(part: Module) -> tuple[list[tuple[int, ...]], str, float | None] | None:
    """Return likely input shapes of a layer, their dtype, and the largest id; None for other layers."""
    rank = {"Conv1d": 1, "Conv2d": 2, "Conv3d": 3}.get(type(part).__name__)
    if rank is not None:
        sizes = {1: (16000, 1000, 100), 2: (224, 32, 28, 64, 96, 128, 256, 299, 384, 512), 3: (64, 32, 16)}[
            rank
        ]
        return [(1, int(part.in_channels), *(size,) * rank) for size in sizes], "float32", None  # type: ignore[arg-type]
    match type(part).__name__:
        case "Linear":
            width = int(part.in_features)  # type: ignore[arg-type]
            return [(1, width), (1, 128, width)], "float32", None
        case "Embedding" | "EmbeddingBag":
            return [(1, 128), (1,)], "int64", float(part.num_embeddings - 1)  # type: ignore[operator]
        case "RNN" | "LSTM" | "GRU":
            return [(1, 128, int(part.input_size))], "float32", None  # type: ignore[arg-type]
    return None


def example_inputs(module: Module, example: Any, where: str) -> tuple[Feed, tuple[InputSpec, ...]]:
    """Convert example inputs (a tensor, a tuple or list, or a dict) to named arrays, and declare them.

    A first axis of equal size in all inputs is the batch.

    Raises:
        RequestError: an input is not a tensor.
    """
    if isinstance(example, list | tuple) and example and all(type(size) is int for size in example):
        shape = "x".join(map(str, example))
        raise RequestError(
            f"The example input of {where} is a shape; give it as inputs='{shape}', or make a tensor of it."
        )
    named = _by_name(module, example)
    feed = {name: _to_array(value, f"'{name}' of {where}") for name, value in named.items()}
    first = {array.shape[0] if array.ndim else None for array in feed.values()}
    batched = len(first) == 1 and None not in first
    return feed, tuple(
        InputSpec(
            name=name,
            shape=(BATCH, *array.shape[1:]) if batched else tuple(array.shape),
            dtype=str(array.dtype),
        )
        for name, array in feed.items()
    )


def _by_name(module: Module, example: Any) -> dict[str, Any]:
    parameters = forward_parameters(module)
    if isinstance(example, Mapping):
        if len(example) == 1 or len(parameters) != 1 or parameters[0] in example:
            return {str(name): value for name, value in example.items()}
        example = [example]  # its only parameter takes the dict itself
    values = list(example) if isinstance(example, Sequence) else [example]
    names = parameters[: len(values)]
    names += tuple(f"input_{index}" for index in range(len(names), len(values)))
    return dict(zip(names, values, strict=True))


def _known_values(value: Tensor) -> Tensor | None:
    """Return the values of a meta tensor; None where they are unknown."""
    return value.known_values if is_meta_tensor(value) and value.handle.valid else None  # type: ignore[attr-defined]


def affects_control_flow(value: Any) -> bool:
    """Whether a tensor's values can affect control flow: integers, flags, single numbers."""
    kind = value.dtype
    return not value.dim() or not (kind.is_floating_point or kind.is_complex)


def lacks_values(example: Any) -> bool:
    """Whether an example built on meta tensors contains integers whose values are unknown."""
    if isinstance(example, Mapping | list | tuple):
        return any(map(lacks_values, example.values() if isinstance(example, Mapping) else example))
    return is_meta_tensor(example) and affects_control_flow(example) and _known_values(example) is None


def _zeros_like(value: Tensor) -> Any:
    """Return zeros without memory, in the shape of a tensor without values."""
    import numpy as np  # noqa: PLC0415 - see above

    name = dtype_name(value.dtype)
    return np.broadcast_to(np.zeros((), "float32" if name == "bfloat16" else name), tuple(value.shape))


def _to_array(value: Any, what: str) -> Any:
    import numpy as np  # noqa: PLC0415 - see above
    import torch  # noqa: PLC0415 - see above

    if isinstance(value, torch.Tensor):
        known_values = _known_values(value)
        if known_values is None and (value.is_meta or is_meta_tensor(value)):
            return _zeros_like(value)
        value = (value if known_values is None else known_values).detach().cpu()
        try:
            return (value.float() if value.dtype is torch.bfloat16 else value).numpy()
        except (TypeError, RuntimeError):
            raise RequestError(
                f"The example input {what} is {_unfed_form(value)}, which cannot be fed; give dense tensors "
                "of a plain dtype, and convert them inside the model."
            ) from None
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, Mapping | list | tuple) and value:
        return _to_nested_array(value, what)
    raise RequestError(
        f"The example input {what} is {type(value).__name__}, neither a tensor nor a list, tuple or dict of "
        "tensors; bind it in the module."
    )


def _unfed_form(tensor: Tensor) -> str:
    """Say what of a tensor no array of NumPy has: its layout, or its dtype."""
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.is_quantized:
        return f"quantised ({dtype_name(tensor.dtype)})"
    layout = str(tensor.layout).removeprefix("torch.")
    return f"sparse ({layout})" if layout.startswith("sparse") else dtype_name(tensor.dtype)


def _to_nested_array(value: Any, what: str) -> Any:
    """Wrap a list, tuple or dict of tensors, possibly nested, in a zero-dimensional array."""
    import numpy as np  # noqa: PLC0415 - see above
    from torch.utils import _pytree as pytree  # noqa: PLC0415 - see above

    plain = (bool, int, float, str, type(None))
    leaves, structure = pytree.tree_flatten(value)
    if structure.is_leaf():  # another kind of mapping, such as a tokenizer's output
        leaves, structure = pytree.tree_flatten(dict(value) if isinstance(value, Mapping) else list(value))
    arrays = [leaf if isinstance(leaf, plain) else _to_array(leaf, f"{what}, within it,") for leaf in leaves]
    wrapped = np.empty((), dtype=object)
    wrapped[()] = pytree.tree_unflatten(arrays, structure)
    return wrapped

"""What is known of a torch.nn.Module, whatever file or factory it came from."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.loaders import digest, python_source
from modeldyno.core.spec.input_spec import BATCH, InputSpec
from modeldyno.core.static.weights import Weight
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, dtype
    from torch.nn import Module

    from modeldyno.core.static.graph import Graph
    from modeldyno.interfaces import Feed, Tracing

_LIBRARIES = ("torch", "torchvision", "transformers", "torchao", "timm")
"""Packages whose classes are told by name; others' by their source."""

_QUANTIZED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")
"""Modules that keep their weights packed; the second kind is fused with a rectifier."""


# --- weights -----------------------------------------------------------------------------------


def weights(module: Module) -> list[Weight]:
    """List every parameter and buffer under each of its names, with what tells shared storage."""
    parameters = module.named_parameters(remove_duplicate=False)
    buffers = module.named_buffers(remove_duplicate=False)
    return [
        *(weight(name, tensor, parameter=True) for name, tensor in parameters),
        *(weight(name, tensor, parameter=False) for name, tensor in buffers),
        *packed_weights(module),
    ]


def weight(name: str, tensor: Tensor, *, parameter: bool) -> Weight:
    """Describe one tensor, as it is stored."""
    parts = plain_parts(tensor)
    largest = max(parts, key=_stored_bytes)
    return Weight(
        name=name,
        shape=tuple(_shape(tensor)),
        dtype=dtype_name(largest.dtype),
        size=_numel(tensor),
        bytes=sum(map(_stored_bytes, parts)),
        storage=_storage(tensor, largest),
        parameter=parameter,
        trainable=parameter and tensor.requires_grad,
    )


def packed_weights(module: Module) -> Iterator[Weight]:
    """Weights that quantised modules keep packed, and show only when asked, by computing for real."""
    from torch.utils._python_dispatch import _disable_current_modes  # noqa: PLC0415 - see above

    for scope, part in module.named_modules():
        if not type(part).__module__.startswith(_QUANTIZED):
            continue
        for name in ("weight", "bias"):
            getter = getattr(part, name, None)
            with _disable_current_modes():
                tensor = getter() if inspect.ismethod(getter) else None
            if tensor is not None:
                yield weight(f"{scope}.{name}".lstrip("."), tensor, parameter=True)


def plain_parts(tensor: Tensor) -> list[Tensor]:
    """Give the ordinary tensors that a tensor is made of; a quantised or sparse one has several."""
    import torch  # noqa: PLC0415 - this module is imported where torch may be missing

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
    if tensor.is_meta or is_lazy(tensor) or _is_shadow(tensor):
        return size
    return min(size, tensor.untyped_storage().nbytes())  # an expanded tensor is stored once


def _storage(tensor: Tensor, largest: Tensor) -> str:
    """Tell the same memory by its address; what has none (meta, lazy) by the tensor itself."""
    if _is_shadow(largest):
        part = largest.shape_of  # type: ignore[attr-defined]  # a shadow's
        return f"place {largest.place.index}+{part.storage_offset()}x{part.numel()}"  # type: ignore[attr-defined]
    address = 0 if largest.is_meta or is_lazy(largest) else largest.untyped_storage().data_ptr()
    if address == 0:
        return f"tensor {id(tensor)}"
    return f"{largest.device}:{address:x}+{largest.storage_offset()}x{largest.numel()}"


def is_lazy(tensor: Tensor) -> bool:
    """Say whether a tensor gets its shape by the first call only."""
    return hasattr(tensor, "materialize")


def lazy_parts(module: Module) -> list[str]:
    """Name the tensors that get their shape by the first call only."""
    named = chain(module.named_parameters(), module.named_buffers())
    return [name for name, tensor in named if is_lazy(tensor)]


def _is_shadow(tensor: Tensor) -> bool:
    return hasattr(tensor, "shape_of")


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return () if is_lazy(tensor) else tuple(tensor.shape)


def _numel(tensor: Tensor) -> int:
    return 0 if is_lazy(tensor) else tensor.numel()


def dtype_name(kind: dtype) -> str:
    """Give the name of a dtype as ModelDyno writes it."""
    return str(kind).removeprefix("torch.")


# --- graph -------------------------------------------------------------------------------------


def grapher(module: Module) -> Callable[[Tracing], Graph]:
    """Give how to analyse a module: on a copy of its structure, made when it is first asked for."""
    made: list[Any] = []

    def graph(tracing: Tracing) -> Graph:
        from modeldyno.adapters.loaders.torch_tracing import graph as torch_tracing_graph  # noqa: PLC0415 - it imports torch

        if not made:
            made.extend(torch_tracing_graph.shadowed(module))
        copied, stage = made
        return torch_tracing_graph.graph(copied, stage, tracing)

    return graph


# --- digest ------------------------------------------------------------------------------------


def content(module: Module) -> Iterator[bytes | memoryview | str]:
    """Give what determines the outputs: the structure, the code of the user's classes, and the state."""
    classes: dict[type[Module], None] = {}
    for name, part in module.named_modules():
        kind = type(part)
        classes[kind] = None
        yield f"{name}={kind.__qualname__}({_settings(part)})"
    for kind in classes:
        if not kind.__module__.startswith(_LIBRARIES):
            yield python_source.code_of(kind)
    named = chain(
        module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)
    )
    for name, tensor in named:
        yield f"{name}:{dtype_name(tensor.dtype)}:{_shape(tensor)}"
        for part in plain_parts(tensor):
            yield from _tensor_bytes(part)


def module_digest(module: Module, *more: str | bytes) -> str:
    """Digest a module, and whatever else it rests on."""
    return digest.of_parts(chain(more, content(module)))


def structure_digest(module: Module, *more: str | bytes) -> str:
    """Digest what a module is made of, without the values of its weights."""
    parts = (f"{name}={type(part).__qualname__}({_settings(part)})" for name, part in module.named_modules())
    shapes = (f"{w.name}:{w.dtype}:{w.shape}" for w in weights(module))
    return digest.of_structure(chain(more, parts, shapes))


def _settings(part: Module) -> str:
    """Give what a module says of itself, and its plain attributes; the training mode is no content."""
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


def parameters(module: Module) -> tuple[str, ...]:
    """Name the parameters of forward that take one value each, in order."""
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
    """Name what forward needs; shape and dtype are for the user to say."""
    schema = getattr(module.forward, "schema", None)
    if schema is not None:
        names = [a.name for a in schema.arguments[1:] if not a.has_default_value()]
    else:
        names = list(python_source.required(module.forward))
    return tuple(InputSpec(name=name) for name in names)


def candidates(module: Module) -> Iterator[InputSpec]:
    """Give what a module with one input may take, by its first layers: pictures, rows, ids, signals."""
    inputs = forward_inputs(module)
    if len(inputs) != 1:
        return
    name = inputs[0].name
    layers = (layer for part in module.modules() if (layer := _first_shapes(part)))
    for shapes, dtype, high in islice(layers, 2):
        low = None if high is None else 0.0
        yield from (InputSpec(name=name, shape=shape, dtype=dtype, low=low, high=high) for shape in shapes)


def _first_shapes(part: Module) -> tuple[list[tuple[int, ...]], str, float | None] | None:
    """Give the shapes that a layer may be fed with, their dtype, and the largest id; None of others."""
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
    """Turn example inputs (a tensor, a tuple or list, or a dict) into named arrays, and declare them.

    A first axis that all of them have in common is taken to be the batch.

    Raises:
        RequestError: an input is no tensor.
    """
    named = _named(module, example)
    feed = {name: _array(value, f"'{name}' of {where}") for name, value in named.items()}
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


def _named(module: Module, example: Any) -> dict[str, Any]:
    if isinstance(example, Mapping):
        return {str(name): value for name, value in example.items()}
    values = list(example) if isinstance(example, Sequence) else [example]
    names = parameters(module)[: len(values)]
    names += tuple(f"input_{index}" for index in range(len(names), len(values)))
    return dict(zip(names, values, strict=True))


def _numbers(value: Tensor) -> Tensor | None:
    """Give the numbers of a tensor that was made where most are not computed; None where they are unknown."""
    return value.numbers if _is_shadow(value) and value.place.known else None  # type: ignore[attr-defined]


def is_steering(value: Any) -> bool:
    """Whether a tensor's numbers can steer the course of a model: whole numbers, flags, single numbers."""
    kind = value.dtype
    return not value.dim() or not (kind.is_floating_point or kind.is_complex)


def lacks_numbers(example: Any) -> bool:
    """Whether an example that was made where tensors have no numbers holds whole ones that are unknown."""
    if isinstance(example, Mapping | list | tuple):
        return any(map(lacks_numbers, example.values() if isinstance(example, Mapping) else example))
    return _is_shadow(example) and is_steering(example) and _numbers(example) is None


def _blank(value: Tensor) -> Any:
    """Give zeros, which take no memory, of the shape of what has no numbers."""
    import numpy as np  # noqa: PLC0415 - see above

    name = dtype_name(value.dtype)
    return np.broadcast_to(np.zeros((), "float32" if name == "bfloat16" else name), tuple(value.shape))


def _array(value: Any, what: str) -> Any:
    import numpy as np  # noqa: PLC0415 - see above
    import torch  # noqa: PLC0415 - see above

    if isinstance(value, torch.Tensor):
        known = _numbers(value)
        if known is None and (value.is_meta or _is_shadow(value)):
            return _blank(value)
        value = (value if known is None else known).detach().cpu()
        try:
            return (value.float() if value.dtype is torch.bfloat16 else value).numpy()
        except (TypeError, RuntimeError):
            raise RequestError(
                f"The example input {what} is {dtype_name(value.dtype)}, which no array of NumPy holds; make "
                "it inside the model from one that does."
            ) from None
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, Mapping | list | tuple) and value:
        return _nested(value, what)
    raise RequestError(
        f"The example input {what} is {type(value).__name__}, neither a tensor nor a list, tuple or dict of "
        "tensors; bind it in the module."
    )


def _nested(value: Any, what: str) -> Any:
    """Wrap a list, tuple or dict of tensors, which may be nested, in an array without dimensions."""
    import numpy as np  # noqa: PLC0415 - see above
    from torch.utils import _pytree as pytree  # noqa: PLC0415 - see above

    plain = (bool, int, float, str, type(None))
    leaves, structure = pytree.tree_flatten(value)
    if structure.is_leaf():  # a mapping of another kind, such as what a tokenizer gives
        leaves, structure = pytree.tree_flatten(dict(value) if isinstance(value, Mapping) else list(value))
    arrays = [leaf if isinstance(leaf, plain) else _array(leaf, f"{what}, within it,") for leaf in leaves]
    wrapped = np.empty((), dtype=object)
    wrapped[()] = pytree.tree_unflatten(arrays, structure)
    return wrapped

"""What a torch.nn.Module takes: the tensors of an example, or the parameters of forward."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.models.interface import Feed
from modeldyno.models.loaders import python_source
from modeldyno.models.loaders.torch_weights import dtype_name, is_meta_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from torch.nn import Module

    from modeldyno.models.interface import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleInputs:
    """What a module takes, as its loader describes it."""

    inputs: tuple[InputSpec, ...]
    optional: tuple[InputSpec, ...] = ()
    instead: Mapping[str, str] = field(default_factory=dict)
    undeclared: bool = False
    example: Feed | None = None
    largest_id: int | None = None
    limits: Mapping[str, int] = field(default_factory=dict)

    def of_model(self, model: Model) -> Model:
        """Return the model with these inputs."""
        return replace(model, **{name: getattr(self, name) for name in self.__slots__})


def forward_parameters(module: Module) -> tuple[str, ...]:
    """Return the parameters of forward that take a single argument, in order."""
    schema = getattr(getattr(module, "forward", None), "schema", None)
    if schema is not None:  # a ScriptModule
        return tuple(argument.name for argument in schema.arguments[1:])
    return python_source.parameters(module.forward)


def of_forward(module: Module) -> ModuleInputs:
    """Return the inputs of forward: the required ones, and the others; the user gives shape and dtype."""
    schema = getattr(module.forward, "schema", None)
    numbers: dict[str, str] = {}
    if schema is not None:
        taken = schema.arguments[1:]
        required: tuple[str, ...] = tuple(a.name for a in taken if not a.has_default_value())
        numbers = {a.name: _NUMBERS[kind] for a in taken if (kind := a.type.kind()) in _NUMBERS}
    else:
        required = python_source.required_parameters(module.forward)
    others = (name for name in forward_parameters(module) if name not in required)
    return ModuleInputs(
        inputs=tuple(
            InputSpec(name=name, shape=(), dtype=numbers[name]) if name in numbers else InputSpec(name=name)
            for name in required
        ),
        optional=tuple(InputSpec(name=name) for name in others),
        undeclared=schema is None and python_source.takes_others(module.forward),
        largest_id=_largest_id(module),
    )


_NUMBERS = {"IntType": "int64", "FloatType": "float32", "BoolType": "bool"}
"""Types of TorchScript that are one number each."""


def _largest_id(module: Module) -> int | None:
    """Return the largest id that each table of embeddings has; None without a table."""
    tables = [size for part in module.modules() if class_name(part) in _TABLES and (size := _width(part, 0))]
    return min(tables) - 1 if tables else None


_TABLES = ("Embedding", "EmbeddingBag")


def class_name(part: Module) -> str:
    """Return the class of a part, also of one that was compiled to TorchScript."""
    return str(getattr(part, "original_name", type(part).__name__))


def _width(part: Module, axis: int, weight: str = "weight") -> int:
    """Return the size of an axis of a weight of a layer; 0 if it has none, or not yet."""
    tensor = getattr(part, weight, None)
    return int(tensor.shape[axis]) if getattr(tensor, "ndim", 0) > axis else 0  # type: ignore[union-attr]


def dict_entries(module: Module, parameter: str) -> tuple[str, ...]:
    """Return the entries that the code of forward reads of a parameter that is a dict, as it names them."""
    code = python_source.source_code(getattr(module.forward, "__func__", module.forward))
    name = re.escape(parameter)
    entries = re.findall(
        rf"\b{name}(?:\[|\.get\(|\.pop\()\s*['\"]([^'\"]+)['\"]", code.decode(errors="replace")
    )
    return tuple(dict.fromkeys(entries))


def candidate_inputs(module: Module) -> Iterator[InputSpec]:
    """Yield likely inputs of a module, from its first layers: images, rows, ids, signals.

    They are those of its only required input without a shape, or of its first one where none is required.
    """
    taken = of_forward(module)
    names = [spec.name for spec in taken.inputs or taken.optional[:1] if spec.shape is None]
    if len(names) != 1:
        return
    name = names[0]
    entries = dict_entries(module, name)
    if len(entries) > 1:
        return
    name = ".".join((name, *entries))
    layers = [(class_name(part), layer) for part in module.modules() if (layer := _first_shapes(part))]
    # A module may list its table of embeddings behind other layers: the first of each class is tried, too.
    others = dict(reversed(layers[2:]))
    for shapes, dtype, high in (*(layer for _, layer in layers[:2]), *reversed(others.values())):
        low = None if high is None else 0.0
        yield from (InputSpec(name=name, shape=shape, dtype=dtype, low=low, high=high) for shape in shapes)


def _first_shapes(part: Module) -> tuple[list[tuple[int, ...]], str, float | None] | None:
    """Return likely input shapes of a layer, their dtype, and the largest id; None for other layers."""
    kind = class_name(part)
    rank = {"Conv1d": 1, "Conv2d": 2, "Conv3d": 3}.get(kind)
    if rank is not None and (channels := _width(part, 1) * int(getattr(part, "groups", 1))):
        sizes = {1: (16000, 1000, 100), 2: (224, 32, 28, 64, 96, 128, 256, 299, 384, 512), 3: (64, 32, 16)}[
            rank
        ]
        return [(1, channels, *(size,) * rank) for size in sizes], "float32", None
    if kind == "Linear" and (width := _width(part, 1)):
        return [(1, width), (1, 128, width)], "float32", None
    if kind in _TABLES and (size := _width(part, 0)):
        return [(1, 128), (1,)], "int64", float(size - 1)
    if kind in {"RNN", "LSTM", "GRU"} and (width := _width(part, 1, "weight_ih_l0")):
        return [(1, 128, width)], "float32", None
    if kind == "Unflatten" and getattr(part, "dim", None) == 1:
        return [(1, math.prod(part.unflattened_size))], "float32", None  # type: ignore[arg-type]
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
        takes_itself = len(parameters) == 1 and (len(example) > 1 or dict_entries(module, parameters[0]))
        if not takes_itself or parameters[0] in example:
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
    import numpy as np  # see above

    name = dtype_name(value.dtype)
    return np.broadcast_to(np.zeros((), "float32" if name == "bfloat16" else name), tuple(value.shape))


def _to_array(value: Any, what: str) -> Any:
    import numpy as np  # see above
    import torch  # see above

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
    import numpy as np  # see above
    from torch.utils import _pytree as pytree  # see above

    plain = (bool, int, float, str, type(None))
    leaves, structure = pytree.tree_flatten(value)
    if structure.is_leaf():  # another kind of mapping, such as a tokenizer's output
        leaves, structure = pytree.tree_flatten(dict(value) if isinstance(value, Mapping) else list(value))
    arrays = [leaf if isinstance(leaf, plain) else _to_array(leaf, f"{what}, within it,") for leaf in leaves]
    wrapped = np.empty((), dtype=object)
    wrapped[()] = pytree.tree_unflatten(arrays, structure)
    return wrapped

"""Outputs of one ONNX node: shapes, dtypes, and elements where they follow from the sizes alone.

Tried in turn: shape arithmetic, schema inference, a rule for ONNX Runtime's operators, the type declared in
the file. What remains depends on data: an upper bound is used and noted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from modeldyno.models.loaders.onnx_tracing import contrib_shapes, ml_operators
from modeldyno.models.loaders.onnx_tracing.constant_folding import MAX_ELEMENTS, UNBOUNDED, evaluate
from modeldyno.models.loaders.onnx_tracing.nodes import GraphValue, Values, shape_at, value_at
from modeldyno.models.loaders.onnx_tracing.schema_inference import (
    NOTHING,
    InferredType,
    infer_outputs,
    read_type,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy import ndarray

    from modeldyno.models.loaders.onnx_tracing.nodes import OnnxNode
    from modeldyno.models.loaders.onnx_tracing.tensors import Proto

Note = Callable[[str, "OnnxNode"], None]
"""Receives the assumptions about a node."""

VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"})
"""Operators whose first output shares the memory of their first input."""
UNKNOWN = GraphValue(None, "")
_ALWAYS_FOLDED = 8
"""Elements that a result of shape arithmetic may always have: no shape is longer."""
_LIKE_FIRST_INPUT = frozenset(
    {"GroupNormalization", "MeanVarianceNormalization", "RMSNormalization", "Dropout"}
)
"""Operators with outputs like their first input, where the schema cannot tell; a second output is a mask."""


def infer_node_outputs(
    node: OnnxNode, values: Values, types: Mapping[str, Proto], symbols: Mapping[str, int], note: Note
) -> list[GraphValue]:
    """Return the outputs of a node, without storages except those of views and of sequence items."""
    special = _SEQUENCES.get(node.kind) if not node.domain else None
    sequence_outputs = None if special is None else special(node, values)
    if sequence_outputs is not None:
        return (sequence_outputs * len(node.outputs))[: len(node.outputs)]
    sizes = _sizes(node, values)
    if sizes is not None:
        return [GraphValue(sizes.shape, "int64", data=sizes, folded=True)]
    inferred_types = _infer_types(node, values)
    arrays = _evaluate(node, values, inferred_types)
    if arrays is not None:
        return _folded_values(values, arrays, inferred_types)
    return [
        _complete(node, values, position, _fill_from_declaration(output, types.get(name), symbols), note)
        for position, (name, output) in enumerate(zip(node.outputs, inferred_types, strict=True))
    ]


def is_view(node: OnnxNode, values: Values) -> bool:
    """Whether the first output shares the first input's memory; Dropout does at inference."""
    if node.domain or node.kind not in VIEWS:
        return False
    mode = values[2] if node.kind == "Dropout" and len(values) > 2 else None
    return mode is None or mode.data is None or not mode.data.any()


def _sizes(node: OnnxNode, values: Values) -> ndarray | None:
    """Return the value of Shape and Size."""
    if node.domain or node.kind not in {"Shape", "Size"} or not values:
        return None
    shape = None if values[0] is None else values[0].shape
    if shape is None:
        return None
    if node.kind == "Size":
        return np.asarray(math.prod(shape), np.int64)
    start, end = node.attributes.get("start", 0), node.attributes.get("end", len(shape))
    return np.array(shape[start:end], np.int64)


def _infer_types(node: OnnxNode, values: Values) -> list[InferredType]:
    inferred_types = [NOTHING] * len(node.outputs)
    if node.schema is not None:
        inferred_types = infer_outputs(node.schema, node.proto, values)
    if all(output.dims is None and not output.sequence for output in inferred_types):
        contrib = (ml_operators if node.domain == ml_operators.DOMAIN else contrib_shapes).infer(node, values)
        inferred_types = [a if b.dims is None else b for a, b in zip(inferred_types, contrib, strict=True)]
    first = values[0] if values else None
    if node.kind in _LIKE_FIRST_INPUT and first is not None:
        dtypes = (first.dtype, "bool")
        inferred_types = [
            InferredType(first.shape, dtypes[i > 0]) if output.dims is None else output
            for i, output in enumerate(inferred_types)
        ]
    return inferred_types


def _evaluate(node: OnnxNode, values: Values, inferred_types: list[InferredType]) -> list[ndarray] | None:
    """Evaluate the node where all inputs are known and the result is small."""
    if not values or any(value is not None and value.data is None for value in values):
        return None
    if any(output.known and math.prod(output.dims or ()) > MAX_ELEMENTS for output in inferred_types):  # type: ignore[arg-type]
        return None
    if node.kind in UNBOUNDED and not all(output.known for output in inferred_types):
        return None
    arrays = evaluate(node, [None if value is None else value.data for value in values])
    return arrays if arrays is not None and len(arrays) == len(inferred_types) else None


def _folded_values(
    values: Values, arrays: list[ndarray], inferred_types: list[InferredType]
) -> list[GraphValue]:
    inputs = [value for value in values if value is not None]
    limit = max(_ALWAYS_FOLDED, sum(value.size for value in inputs))
    folded = all(value.folded for value in inputs) and all(array.size <= limit for array in arrays)
    return [
        GraphValue(array.shape, output.dtype or array.dtype.name, data=array, folded=folded)
        for array, output in zip(arrays, inferred_types, strict=True)
    ]


# -- sizes that depend on data --------------------------------------------------------------------------


def _fill_from_declaration(
    inferred_type: InferredType, kind: Proto | None, symbols: Mapping[str, int]
) -> InferredType:
    """Fill gaps from the type declared in the file."""
    if inferred_type.known or inferred_type.sequence or kind is None:
        return inferred_type
    declared = read_type(kind)
    if declared.sequence or declared.dims is None:
        return InferredType(inferred_type.dims, inferred_type.dtype or declared.dtype, declared.sequence)
    tensor = kind.tensor_type if kind.WhichOneof("value") == "tensor_type" else None
    names = [dim.dim_param for dim in tensor.shape.dim] if tensor is not None else []
    bound_sizes = map(symbols.get, names)
    dims = [b if a is None else a for a, b in zip(declared.dims, bound_sizes, strict=True)]
    if inferred_type.dims is not None and len(inferred_type.dims) == len(dims):
        dims = [b if a is None else a for a, b in zip(inferred_type.dims, dims, strict=True)]
    elif inferred_type.dims is not None:
        dims = list(inferred_type.dims)
    return InferredType(tuple(dims), inferred_type.dtype or declared.dtype)


def _complete(
    node: OnnxNode, values: Values, position: int, inferred_type: InferredType, note: Note
) -> GraphValue:
    first = next((value for value in values if value is not None), UNKNOWN)
    dtype = inferred_type.dtype or first.dtype
    if ml_operators.makes_maps(node):
        return GraphValue(None, dtype, items=(), sequence=True)
    if inferred_type.known:
        return GraphValue(tuple(length or 0 for length in inferred_type.dims or ()), dtype)
    has_unknown_input = any(
        value is not None and value.shape is None and not value.sequence for value in values
    )
    if inferred_type.dims is None or has_unknown_input:
        if not (inferred_type.sequence or has_unknown_input) and node.outputs[position]:
            note("has outputs whose shapes are unknown, and is not counted", node)
        return GraphValue(None, dtype, sequence=inferred_type.sequence)
    bound = _UPPER_BOUNDS.get(node.kind)
    limits = None if bound is None else bound(node, values, len(inferred_type.dims))
    if limits is not None and len(limits) == len(inferred_type.dims):
        note("is assumed to find as many elements as possible", node)
        return GraphValue(limits, dtype)
    note("has outputs whose sizes depend on data; taken as 1", node)
    return GraphValue(tuple(1 if length is None else length for length in inferred_type.dims), dtype)


def _nonzero(_: OnnxNode, values: Values, __: int) -> tuple[int, ...]:
    shape = shape_at(values, 0)
    return max(1, len(shape)), math.prod(shape)


def _compress(node: OnnxNode, values: Values, _: int) -> tuple[int, ...]:
    shape = list(shape_at(values, 0))
    if "axis" not in node.attributes:
        return (math.prod(shape),)
    axis = node.attributes["axis"]
    shape[axis] = min(shape[axis], math.prod(shape_at(values, 1)))
    return tuple(shape)


def _suppressed_boxes(_: OnnxNode, values: Values, __: int) -> tuple[int, ...]:
    """Upper bound of boxes that suppression keeps per class: the requested number, or all."""
    batch, classes, boxes = shape_at(values, 1)
    requested = values[2] if len(values) > 2 else None
    if requested is not None and requested.data is not None:
        boxes = min(boxes, int(requested.data.max(initial=0)))
    return batch * classes * boxes, 3


def _unique(node: OnnxNode, values: Values, rank: int) -> tuple[int, ...]:
    """Distinct elements, or slices along an axis, and as many indices and counts."""
    shape = shape_at(values, 0)
    if "axis" not in node.attributes:
        return (math.prod(shape),)
    return shape if rank == len(shape) > 1 else (shape[node.attributes["axis"]],)


_UPPER_BOUNDS: dict[str, Callable[[OnnxNode, Values, int], tuple[int, ...]]] = {
    "NonZero": _nonzero,
    "Compress": _compress,
    "NonMaxSuppression": _suppressed_boxes,
    "Unique": _unique,
}


# -- sequences ------------------------------------------------------------------------------------------


def _sequence(items: Sequence[GraphValue], dtype: str) -> list[GraphValue]:
    return [GraphValue(None, items[0].dtype if items else dtype, items=tuple(items), sequence=True)]


def _position_value(values: Values, position: int, default: int | None) -> int | None:
    """Return a position; None where it is unknown."""
    value = value_at(values, position)
    if value is None:
        return default
    return None if value.data is None else int(value.data.ravel()[0])


def _items(values: Values) -> tuple[GraphValue, ...] | None:
    return values[0].items if values and values[0] is not None else None


def _sequence_insert(_: OnnxNode, values: Values) -> list[GraphValue] | None:
    items = _items(values)
    position = _position_value(values, 2, len(items or ()))
    if items is None or position is None or values[1] is None:
        return None
    return _sequence([*items[:position], values[1], *items[position:]], "")


def _sequence_erase(_: OnnxNode, values: Values) -> list[GraphValue] | None:
    items = _items(values)
    position = _position_value(values, 1, -1)
    if not items or position is None or not -len(items) <= position < len(items):
        return None
    position %= len(items)
    return _sequence([*items[:position], *items[position + 1 :]], items[0].dtype)


def _sequence_at(_: OnnxNode, values: Values) -> list[GraphValue] | None:
    """Return an item; any will do where all have the same shape."""
    items = _items(values)
    if not items:
        return None
    position = _position_value(values, 1, 0)
    if position is None:
        return (
            [replace(items[0], data=None, folded=False)] if len({item.shape for item in items}) == 1 else None
        )
    return [items[position]] if -len(items) <= position < len(items) else None


def _sequence_length(_: OnnxNode, values: Values) -> list[GraphValue] | None:
    items = _items(values)
    if items is None:
        return None
    return [GraphValue((), "int64", data=np.asarray(len(items), np.int64), folded=True)]


def _split(node: OnnxNode, values: Values) -> list[GraphValue] | None:
    data, split = values[0], values[1] if len(values) > 1 else None
    if data is None or data.shape is None or (split is not None and split.data is None):
        return None
    axis = node.attributes.get("axis", 0)
    length = data.shape[axis]
    sizes = [1] * length
    if split is not None and split.data is not None:
        step = max(1, int(split.data.ravel()[0])) if split.data.ndim == 0 else 0
        sizes = (
            [min(step, length - i) for i in range(0, length, step)] if step else [int(s) for s in split.data]
        )
    head, tail = data.shape[:axis], data.shape[axis:][1:]
    keeps_axis = split is not None or node.attributes.get("keepdims", 1)
    return _sequence(
        [GraphValue((*head, *([size] if keeps_axis else []), *tail), data.dtype) for size in sizes],
        data.dtype,
    )


def _concat_from_sequence(node: OnnxNode, values: Values) -> list[GraphValue] | None:
    items = _items(values)
    if not items or any(item.shape is None for item in items):
        return None
    shape = list(items[0].shape or ())
    axis = node.attributes["axis"]
    if node.attributes.get("new_axis"):
        shape.insert(axis % (len(shape) + 1), len(items))
    else:
        shape[axis] = sum((item.shape or ())[axis] for item in items)
    return [GraphValue(tuple(shape), items[0].dtype)]


def _pass_through(_: OnnxNode, values: Values) -> list[GraphValue] | None:
    return None if not values or values[0] is None else [values[0]]


def _identity(_: OnnxNode, values: Values) -> list[GraphValue] | None:
    return _pass_through(_, values) if values and values[0] is not None and values[0].sequence else None


_SEQUENCES: dict[str, Callable[[Any, Values], list[GraphValue] | None]] = {
    "SequenceConstruct": lambda _, values: _sequence([value for value in values if value is not None], ""),
    "SequenceEmpty": lambda _, __: _sequence((), ""),
    "SequenceInsert": _sequence_insert,
    "SequenceErase": _sequence_erase,
    "SequenceAt": _sequence_at,
    "SequenceLength": _sequence_length,
    "SplitToSequence": _split,
    "ConcatFromSequence": _concat_from_sequence,
    "Optional": _pass_through,
    "OptionalGetElement": _pass_through,
    "Identity": _identity,
}
"""Each returns None where it cannot tell; inference follows."""

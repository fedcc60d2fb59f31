"""What one ONNX node gives: shapes, dtypes, and its elements where they follow from the sizes alone.

Asked in turn: the arithmetic of shapes, the schema's inference, a rule of ONNX Runtime, what the file
itself says of the value. What is left depends on data: then a bound stands for it, and is noted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from modeldyno.adapters.loaders.onnx_tracing import contrib_shapes, ml_operators
from modeldyno.adapters.loaders.onnx_tracing.constant_folding import MOST, UNBOUNDED, evaluate
from modeldyno.adapters.loaders.onnx_tracing.nodes import Value
from modeldyno.adapters.loaders.onnx_tracing.schema_inference import NOTHING, Found, inferred, read

if TYPE_CHECKING:
    from numpy import ndarray

    from modeldyno.adapters.loaders.onnx_tracing.nodes import Node
    from modeldyno.adapters.loaders.onnx_tracing.tensors import Proto

Values = Sequence[Value | None]
Note = Callable[[str, "Node"], None]
"""Told what is taken for granted of a node."""

VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"})
"""Their first output is their first input's memory."""
UNKNOWN = Value(None, "")
_ALWAYS_FOLDED = 8
"""Elements that a result of the arithmetic of shapes may have in any case: no shape is longer."""
_SAME = frozenset({"GroupNormalization", "MeanVarianceNormalization", "RMSNormalization", "Dropout"})
"""As their first input, where the schema cannot tell; a second output is a mask."""


def outputs(
    node: Node, values: Values, types: Mapping[str, Proto], symbols: Mapping[str, int], note: Note
) -> list[Value]:
    """Give the outputs of a node, without storages except those of views and of items of sequences."""
    special = _SEQUENCES.get(node.kind) if not node.domain else None
    given = None if special is None else special(node, values)
    if given is not None:
        return (given * len(node.outputs))[: len(node.outputs)]
    sizes = _sizes(node, values)
    if sizes is not None:
        return [Value(sizes.shape, "int64", data=sizes, folded=True)]
    found = _inferred(node, values)
    arrays = _computed(node, values, found)
    if arrays is not None:
        return _known(values, arrays, found)
    return [_completed(node, values, place, _declared(one, types.get(name), symbols), note)
            for place, (name, one) in enumerate(zip(node.outputs, found, strict=True))]  # fmt: skip


def is_view(node: Node, values: Values) -> bool:
    """Whether the first output is the first input's memory; Dropout is so at inference."""
    if node.domain or node.kind not in VIEWS:
        return False
    mode = values[2] if node.kind == "Dropout" and len(values) > 2 else None  # noqa: PLR2004 - training_mode
    return mode is None or mode.data is None or not mode.data.any()


def _sizes(node: Node, values: Values) -> ndarray | None:
    """Give what Shape and Size give."""
    if node.domain or node.kind not in {"Shape", "Size"} or not values:
        return None
    shape = None if values[0] is None else values[0].shape
    if shape is None:
        return None
    if node.kind == "Size":
        return np.asarray(math.prod(shape), np.int64)
    start, end = node.attributes.get("start", 0), node.attributes.get("end", len(shape))
    return np.array(shape[start:end], np.int64)


def _inferred(node: Node, values: Values) -> list[Found]:
    found = [NOTHING] * len(node.outputs)
    if node.schema is not None:
        found = inferred(node.schema, node.proto, values)
    if all(one.dims is None and not one.sequence for one in found):
        contrib = (ml_operators if node.domain == ml_operators.DOMAIN else contrib_shapes).found(node, values)
        found = [a if b.dims is None else b for a, b in zip(found, contrib, strict=True)]
    first = values[0] if values else None
    if node.kind in _SAME and first is not None:
        kinds = (first.dtype, "bool")
        found = [Found(first.shape, kinds[i > 0]) if one.dims is None else one for i, one in enumerate(found)]
    return found


def _computed(node: Node, values: Values, found: list[Found]) -> list[ndarray] | None:
    """Carry the node out where all inputs are known, and the result is small."""
    if not values or any(value is not None and value.data is None for value in values):
        return None
    if any(one.known and math.prod(one.dims or ()) > MOST for one in found):  # type: ignore[arg-type]
        return None
    if node.kind in UNBOUNDED and not all(one.known for one in found):
        return None
    arrays = evaluate(node, [None if value is None else value.data for value in values])
    return arrays if arrays is not None and len(arrays) == len(found) else None


def _known(values: Values, arrays: list[ndarray], found: list[Found]) -> list[Value]:
    given = [value for value in values if value is not None]
    room = max(_ALWAYS_FOLDED, sum(value.size for value in given))
    folded = all(value.folded for value in given) and all(array.size <= room for array in arrays)
    return [
        Value(array.shape, one.dtype or array.dtype.name, data=array, folded=folded)
        for array, one in zip(arrays, found, strict=True)
    ]


# -- what data decide -----------------------------------------------------------------------------------


def _declared(found: Found, kind: Proto | None, symbols: Mapping[str, int]) -> Found:
    """Fill gaps by what the file says of the value."""
    if found.known or found.sequence or kind is None:
        return found
    said = read(kind)
    if said.sequence or said.dims is None:
        return Found(found.dims, found.dtype or said.dtype, said.sequence)
    tensor = kind.tensor_type if kind.WhichOneof("value") == "tensor_type" else None
    names = [dim.dim_param for dim in tensor.shape.dim] if tensor is not None else []
    bound = map(symbols.get, names)
    dims = [b if a is None else a for a, b in zip(said.dims, bound, strict=True)]
    if found.dims is not None and len(found.dims) == len(dims):
        dims = [b if a is None else a for a, b in zip(found.dims, dims, strict=True)]
    elif found.dims is not None:
        dims = list(found.dims)
    return Found(tuple(dims), found.dtype or said.dtype)


def _completed(node: Node, values: Values, place: int, found: Found, note: Note) -> Value:
    first = next((value for value in values if value is not None), UNKNOWN)
    kind = found.dtype or first.dtype
    if found.known:
        return Value(tuple(length or 0 for length in found.dims or ()), kind)
    foreseen = any(value is not None and value.shape is None and not value.sequence for value in values)
    if found.dims is None or foreseen:
        if not (found.sequence or foreseen) and node.outputs[place]:
            note("has outputs whose shapes are unknown, and is not counted", node)
        return Value(None, kind, sequence=found.sequence)
    bound = _AT_MOST.get(node.kind)
    most = None if bound is None else bound(node, values, len(found.dims))
    if most is not None and len(most) == len(found.dims):
        note("is taken to find as many elements as it can", node)
        return Value(most, kind)
    note("has outputs whose sizes depend on data, which are taken as 1", node)
    return Value(tuple(1 if length is None else length for length in found.dims), kind)


def _nonzero(_: Node, values: Values, __: int) -> tuple[int, ...]:
    shape = _shape(values, 0)
    return max(1, len(shape)), math.prod(shape)


def _compressed(node: Node, values: Values, _: int) -> tuple[int, ...]:
    shape = list(_shape(values, 0))
    if "axis" not in node.attributes:
        return (math.prod(shape),)
    axis = node.attributes["axis"]
    shape[axis] = min(shape[axis], math.prod(_shape(values, 1)))
    return tuple(shape)


def _boxes(_: Node, values: Values, __: int) -> tuple[int, ...]:
    """Boxes of each class that suppression leaves at most: those asked for, or all."""
    batch, classes, boxes = _shape(values, 1)
    asked = values[2] if len(values) > 2 else None  # noqa: PLR2004 - max_output_boxes_per_class
    if asked is not None and asked.data is not None:
        boxes = min(boxes, int(asked.data.max(initial=0)))
    return batch * classes * boxes, 3


def _distinct(node: Node, values: Values, rank: int) -> tuple[int, ...]:
    """Distinct elements, or slices along an axis, and as many indices and counts."""
    shape = _shape(values, 0)
    if "axis" not in node.attributes:
        return (math.prod(shape),)
    return shape if rank == len(shape) > 1 else (shape[node.attributes["axis"]],)


def _shape(values: Values, place: int) -> tuple[int, ...]:
    value = values[place]
    assert value is not None
    assert value.shape is not None
    return value.shape


_AT_MOST: dict[str, Callable[[Node, Values, int], tuple[int, ...]]] = {
    "NonZero": _nonzero,
    "Compress": _compressed,
    "NonMaxSuppression": _boxes,
    "Unique": _distinct,
}


# -- sequences ------------------------------------------------------------------------------------------


def _sequence(items: Sequence[Value], kind: str) -> list[Value]:
    return [Value(None, items[0].dtype if items else kind, items=tuple(items), sequence=True)]


def _place(values: Values, place: int, default: int | None) -> int | None:
    """Give a position; None where it is unknown."""
    value = values[place] if place < len(values) else None
    if value is None:
        return default
    return None if value.data is None else int(value.data.ravel()[0])


def _items(values: Values) -> tuple[Value, ...] | None:
    return values[0].items if values and values[0] is not None else None


def _constructed(_: Node, values: Values) -> list[Value] | None:
    return _sequence([value for value in values if value is not None], "")


def _empty(_: Node, __: Values) -> list[Value] | None:
    return _sequence((), "")


def _inserted(_: Node, values: Values) -> list[Value] | None:
    items = _items(values)
    place = _place(values, 2, len(items or ()))
    if items is None or place is None or values[1] is None:
        return None
    return _sequence([*items[:place], values[1], *items[place:]], "")


def _erased(_: Node, values: Values) -> list[Value] | None:
    items = _items(values)
    place = _place(values, 1, -1)
    if not items or place is None or not -len(items) <= place < len(items):
        return None
    place %= len(items)
    return _sequence([*items[:place], *items[place + 1 :]], items[0].dtype)


def _at(_: Node, values: Values) -> list[Value] | None:
    """Give an item; any serves where they are alike."""
    items = _items(values)
    if not items:
        return None
    place = _place(values, 1, 0)
    if place is None:
        return (
            [replace(items[0], data=None, folded=False)] if len({item.shape for item in items}) == 1 else None
        )
    return [items[place]] if -len(items) <= place < len(items) else None


def _length(_: Node, values: Values) -> list[Value] | None:
    items = _items(values)
    if items is None:
        return None
    return [Value((), "int64", data=np.asarray(len(items), np.int64), folded=True)]


def _split(node: Node, values: Values) -> list[Value] | None:
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
    kept = split is not None or node.attributes.get("keepdims", 1)
    return _sequence(
        [Value((*head, *([size] if kept else []), *tail), data.dtype) for size in sizes], data.dtype
    )


def _joined(node: Node, values: Values) -> list[Value] | None:
    items = _items(values)
    if not items or any(item.shape is None for item in items):
        return None
    shape = list(items[0].shape or ())
    axis = node.attributes["axis"]
    if node.attributes.get("new_axis"):
        shape.insert(axis % (len(shape) + 1), len(items))
    else:
        shape[axis] = sum((item.shape or ())[axis] for item in items)
    return [Value(tuple(shape), items[0].dtype)]


def _passed(_: Node, values: Values) -> list[Value] | None:
    return None if not values or values[0] is None else [values[0]]


def _identity(_: Node, values: Values) -> list[Value] | None:
    return _passed(_, values) if values and values[0] is not None and values[0].sequence else None


_SEQUENCES: dict[str, Callable[[Any, Values], list[Value] | None]] = {
    "SequenceConstruct": _constructed,
    "SequenceEmpty": _empty,
    "SequenceInsert": _inserted,
    "SequenceErase": _erased,
    "SequenceAt": _at,
    "SequenceLength": _length,
    "SplitToSequence": _split,
    "ConcatFromSequence": _joined,
    "Optional": _passed,
    "OptionalGetElement": _passed,
    "Identity": _identity,
}
"""None where they cannot tell; then inference is asked."""

"""Evaluates the shape arithmetic of an ONNX graph: small integer tensors that follow from the sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy import ndarray

    from modeldyno.models.loaders.onnx_tracing.nodes import OnnxNode

Arrays = Sequence[Any]
"""Arrays of the inputs; None for an omitted one."""
Rule = Callable[["OnnxNode", Arrays], Any]
"""Returns an array, or a list of them for several outputs."""

MAX_ELEMENTS = 1 << 16
"""Maximum elements of a value that is evaluated."""
UNBOUNDED = frozenset({"Expand", "Tile", "Range", "ConstantOfShape", "Pad", "EyeLike", "OneHot", "Resize"})
"""Operators whose outputs are larger than their inputs: evaluated only where their size was inferred."""


def evaluate(node: OnnxNode, arrays: Arrays) -> list[ndarray] | None:
    """Compute the outputs of a node; None if its operator is not used in shape arithmetic."""
    rule = RULES.get(node.kind) if not node.domain else None
    if rule is None:
        return None
    try:
        with np.errstate(all="ignore"):
            result = rule(node, arrays)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError, MemoryError):
        return None
    return [np.asarray(array) for array in (result if isinstance(result, list) else [result])]


def _elementwise(function: Callable[..., Any]) -> Rule:
    return lambda _, arrays: function(*arrays)


def _reduction_of_inputs(function: Callable[..., Any]) -> Rule:
    return lambda _, arrays: reduce(function, arrays)


def _divide(_: OnnxNode, arrays: Arrays) -> ndarray:
    """Divide; integers towards zero, as ONNX does."""
    first, second = arrays
    if first.dtype.kind == "f":
        return np.asarray(first / second)
    quotient = np.abs(first) // np.abs(second)
    return np.asarray(quotient * np.sign(first) * np.sign(second), first.dtype)


def _axes(node: OnnxNode, arrays: Arrays, position: int = 1) -> tuple[int, ...] | None:
    """Return axes from an input, or, in older versions, from the attribute."""
    if len(arrays) > position and arrays[position] is not None:
        return tuple(int(axis) for axis in arrays[position].ravel())
    axes = node.attributes.get("axes")
    return None if axes is None else tuple(axes)


def _slice(node: OnnxNode, arrays: Arrays) -> ndarray:
    data, *bounds = arrays
    names = ("starts", "ends", "axes", "steps")
    settings: dict[str, Any] = {name: node.attributes.get(name) for name in names}
    settings |= {
        name: array.tolist() for name, array in zip(names, bounds, strict=False) if array is not None
    }
    starts, ends, steps = settings["starts"], settings["ends"], settings["steps"]
    slices = [slice(None)] * data.ndim
    for i, axis in enumerate(settings["axes"] or range(len(starts))):
        step = steps[i] if steps else 1
        end = None if step < 0 and ends[i] < -data.shape[axis] else ends[i]
        slices[axis] = slice(starts[i], end, step)
    return np.asarray(data[tuple(slices)])


def _reshape(node: OnnxNode, arrays: Arrays) -> ndarray:
    data = arrays[0]
    shape = list(arrays[1] if len(arrays) > 1 else node.attributes["shape"])
    if not node.attributes.get("allowzero"):
        shape = [data.shape[i] if length == 0 else length for i, length in enumerate(shape)]
    return np.asarray(data.reshape(shape))


def _unsqueeze(node: OnnxNode, arrays: Arrays) -> ndarray:
    axes = _axes(node, arrays)
    assert axes is not None
    return np.expand_dims(arrays[0], axes)


def _constant_of_shape(node: OnnxNode, arrays: Arrays) -> ndarray:
    value = node.constant.data if node.constant is not None else np.zeros(1, np.float32)
    assert value is not None
    return np.full(tuple(arrays[0]), value.ravel()[0], value.dtype)


def _cast(node: OnnxNode, arrays: Arrays) -> ndarray:
    """Cast to a dtype of NumPy's own; the others saturate."""
    from onnx import helper  # optional

    has_target = len(arrays) > 1
    dtype = (
        arrays[1].dtype if has_target else np.dtype(helper.tensor_dtype_to_np_dtype(node.attributes["to"]))
    )
    if {dtype.isbuiltin, arrays[0].dtype.isbuiltin} != {1}:
        raise ValueError(dtype)
    return np.asarray(arrays[0].astype(dtype))


def _split(node: OnnxNode, arrays: Arrays) -> list[ndarray]:
    data, axis = arrays[0], node.attributes.get("axis", 0)
    sizes = arrays[1] if len(arrays) > 1 and arrays[1] is not None else node.attributes.get("split")
    count = len(node.outputs)
    if sizes is None:
        part = -(-data.shape[axis] // count)
        sizes = [part] * count
    return list(np.split(data, np.cumsum(sizes)[:-1], axis))


def _reduction(function: Callable[..., Any]) -> Rule:
    def rule(node: OnnxNode, arrays: Arrays) -> ndarray:
        axes = _axes(node, arrays)
        if not axes and node.attributes.get("noop_with_empty_axes"):
            return np.asarray(arrays[0])
        keepdims = bool(node.attributes.get("keepdims", 1))
        return np.asarray(function(arrays[0], axis=axes or None, keepdims=keepdims), arrays[0].dtype)

    return rule


def _scatter_nd(node: OnnxNode, arrays: Arrays) -> ndarray:
    if node.attributes.get("reduction", "none") != "none":
        raise ValueError(node.attributes)
    data = arrays[0].copy()
    data[tuple(np.moveaxis(arrays[1], -1, 0))] = arrays[2]
    return np.asarray(data)


def _clip(node: OnnxNode, arrays: Arrays) -> ndarray:
    low, high = (*arrays[1:], None, None)[:2]
    low = node.attributes.get("min") if low is None else low
    high = node.attributes.get("max") if high is None else high
    return np.asarray(np.clip(arrays[0], low, high), arrays[0].dtype)


def _trilu(node: OnnxNode, arrays: Arrays) -> ndarray:
    triangle = np.triu if node.attributes.get("upper", 1) else np.tril
    return triangle(arrays[0], int(arrays[1]) if len(arrays) > 1 and arrays[1] is not None else 0)


def _cumsum(node: OnnxNode, arrays: Arrays) -> ndarray:
    data, axis = arrays[0], int(arrays[1])
    data = np.flip(data, axis) if node.attributes.get("reverse") else data
    sums = np.cumsum(data, axis, dtype=data.dtype)
    sums = sums - data if node.attributes.get("exclusive") else sums
    return np.asarray(np.flip(sums, axis) if node.attributes.get("reverse") else sums)


def _flatten(node: OnnxNode, arrays: Arrays) -> ndarray:
    data, axis = arrays[0], node.attributes.get("axis", 1)
    axis = axis + data.ndim if axis < 0 else axis
    rows = int(np.prod(data.shape[:axis], dtype=np.int64))
    return np.asarray(data.reshape(rows, data.size // max(rows, 1)))


RULES: dict[str, Rule] = {
    "Add": _elementwise(operator.add),
    "Sub": _elementwise(operator.sub),
    "Mul": _elementwise(operator.mul),
    "Div": _divide,
    "Mod": lambda node, arrays: np.asarray((np.fmod if node.attributes.get("fmod") else np.mod)(*arrays)),
    "Pow": lambda _, arrays: np.asarray(np.power(arrays[0], arrays[1]), arrays[0].dtype),
    "Neg": _elementwise(operator.neg),
    "Abs": _elementwise(np.abs),
    "Sign": _elementwise(np.sign),
    "Sqrt": _elementwise(np.sqrt),
    "Floor": _elementwise(np.floor),
    "Ceil": _elementwise(np.ceil),
    "Round": _elementwise(np.round),
    "Reciprocal": _elementwise(lambda x: np.asarray(1 / x, x.dtype)),
    "Min": _reduction_of_inputs(np.minimum),
    "Max": _reduction_of_inputs(np.maximum),
    "Sum": _reduction_of_inputs(operator.add),
    "Equal": _elementwise(operator.eq),
    "Less": _elementwise(operator.lt),
    "LessOrEqual": _elementwise(operator.le),
    "Greater": _elementwise(operator.gt),
    "GreaterOrEqual": _elementwise(operator.ge),
    "And": _elementwise(np.logical_and),
    "Or": _elementwise(np.logical_or),
    "Xor": _elementwise(np.logical_xor),
    "Not": _elementwise(np.logical_not),
    "Where": _elementwise(np.where),
    "Identity": _elementwise(np.asarray),
    "Cast": _cast,
    "CastLike": _cast,
    "Gather": lambda node, arrays: np.asarray(
        np.take(arrays[0], arrays[1], axis=node.attributes.get("axis", 0))
    ),
    "GatherElements": lambda node, arrays: np.take_along_axis(
        arrays[0], arrays[1], node.attributes.get("axis", 0)
    ),
    "Concat": lambda node, arrays: np.concatenate(arrays, axis=node.attributes.get("axis", 1)),
    "Slice": _slice,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": lambda node, arrays: np.squeeze(arrays[0], _axes(node, arrays)),
    "Unsqueeze": _unsqueeze,
    "Transpose": lambda node, arrays: np.transpose(arrays[0], node.attributes.get("perm")),
    "Expand": lambda _, arrays: np.asarray(arrays[0] * np.ones(tuple(arrays[1]), arrays[0].dtype)),
    "Tile": lambda _, arrays: np.tile(arrays[0], arrays[1]),
    "Range": lambda _, arrays: np.arange(*(array.item() for array in arrays), dtype=arrays[0].dtype),
    "ConstantOfShape": _constant_of_shape,
    "Split": _split,
    "ReduceSum": _reduction(np.sum),
    "ReduceProd": _reduction(np.prod),
    "ReduceMax": _reduction(np.max),
    "ReduceMin": _reduction(np.min),
    "ReduceMean": _reduction(np.mean),
    "CumSum": _cumsum,
    "NonZero": lambda _, arrays: np.array(np.nonzero(np.atleast_1d(arrays[0])), np.int64),
    "Compress": lambda node, arrays: np.compress(arrays[1], arrays[0], node.attributes.get("axis")),
    "ScatterND": _scatter_nd,
    "Clip": _clip,
    "Trilu": _trilu,
}

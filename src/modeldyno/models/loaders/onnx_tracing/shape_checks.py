"""Checks whether an ONNX operator accepts its input sizes, by its specification."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from modeldyno.base.job.input_spec import format_shape
from modeldyno.models.loaders.onnx_tracing.nodes import Values, shape_at, value_at

if TYPE_CHECKING:
    from modeldyno.models.loaders.onnx_tracing.nodes import OnnxNode

Rule = Callable[["OnnxNode", Values], str]
"""Returns in a clause why an operator rejects its inputs, or an empty string."""


def rejection_reason(node: OnnxNode, values: Values) -> str:
    """Return why a node cannot run on values of these shapes; empty if nothing is wrong.

    Inputs of unknown shape are never an error.
    """
    rule = _RULES.get(node.kind) if not node.domain else None
    if rule is None:
        return ""
    try:
        return rule(node, values)
    except (IndexError, KeyError, ValueError, TypeError):
        return ""


def _numbers(node: OnnxNode, values: Values, position: int, name: str) -> list[int]:
    """Return the elements of an input, which older versions give as an attribute.

    Raises:
        KeyError: they were left out, or are unknown.
    """
    value = value_at(values, position)
    if value is None:
        return list(node.attributes[name])
    if value.data is None:
        raise KeyError(position)
    return [int(number) for number in value.data.ravel()]


def _convolution(node: OnnxNode, values: Values, *, filters: int = 1) -> str:
    data, weight = shape_at(values, 0), shape_at(values, filters)
    if len(data) != len(weight):
        return (
            f"has a filter of {format_shape(weight)} for {format_shape(data)}, which has "
            f"{len(data)} dimensions"
        )
    channels = weight[1] * node.attributes.get("group", 1)
    if data[1] != channels:
        return f"takes {channels} channels, not the {data[1]} of {format_shape(data)}"
    return _window_fits(node, data, weight[2:], beyond=0)


def _transposed_convolution(_: OnnxNode, values: Values) -> str:
    data, weight = shape_at(values, 0), shape_at(values, 1)
    fits = len(data) != len(weight) or data[1] == weight[0]
    return "" if fits else f"takes {weight[0]} channels, not the {data[1]} of {format_shape(data)}"


def _pooling(node: OnnxNode, values: Values) -> str:
    return _window_fits(node, shape_at(values, 0), tuple(node.attributes["kernel_shape"]), beyond=1)


def _window_fits(node: OnnxNode, data: tuple[int, ...], kernel: tuple[int, ...], *, beyond: int) -> str:
    """Reject a window larger than its padded input.

    A pooling may reach `beyond` it by less than a stride, as ONNX Runtime rounds.
    """
    if node.attributes.get("auto_pad", "NOTSET") not in {"NOTSET", "VALID"}:
        return ""
    lengths = data[2:]
    pads = node.attributes.get("pads", (0,) * 2 * len(lengths))
    steps = node.attributes.get("dilations", (1,) * len(lengths))
    strides = node.attributes.get("strides", (1,) * len(lengths))
    for axis, side in enumerate(lengths):
        padded_size = side + pads[axis] + pads[axis + len(lengths)]
        window = steps[axis] * (kernel[axis] - 1) + 1
        if window > padded_size + beyond * (strides[axis] - 1):
            return f"has a window of {window} for {padded_size} values (its input is {format_shape(data)})"
    return ""


def _matmul(_: OnnxNode, values: Values, *, second: int = 1) -> str:
    left, right = shape_at(values, 0), shape_at(values, second)
    inner = right[0] if len(right) == 1 else right[-2]
    if left[-1] != inner:
        return f"multiplies {format_shape(left)} by {format_shape(right)}: {left[-1]} is not {inner}"
    return _broadcast_error(left[:-2], right[:-2])


def _gemm(node: OnnxNode, values: Values) -> str:
    left, right = shape_at(values, 0), shape_at(values, 1)
    inner = left[0 if node.attributes.get("transA") else 1], right[1 if node.attributes.get("transB") else 0]
    if inner[0] == inner[1]:
        return ""
    return f"multiplies {format_shape(left)} by {format_shape(right)}: {inner[0]} is not {inner[1]}"


def _broadcast(node: OnnxNode, values: Values) -> str:
    if "broadcast" in node.attributes or "axis" in node.attributes:  # other rules before opset 7
        return ""
    shapes = [shape_at(values, position) for position, value in enumerate(values) if value is not None]
    return _broadcast_error(*shapes)


def _broadcast_error(*shapes: tuple[int, ...]) -> str:
    """Reject shapes that do not broadcast: aligned from the last axis, sizes are equal or 1."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    for sizes in zip(*padded, strict=True):
        if len(set(sizes) - {1}) > 1:
            return f"cannot combine {' with '.join(map(format_shape, shapes))}"
    return ""


def _concat(node: OnnxNode, values: Values) -> str:
    shapes = [shape_at(values, position) for position, value in enumerate(values) if value is not None]
    axis = node.attributes["axis"] % len(shapes[0])
    others = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes if shape != (0,)}
    return (
        f"cannot join {' and '.join(map(format_shape, shapes))} along axis {axis}" if len(others) > 1 else ""
    )


def _reshape(node: OnnxNode, values: Values) -> str:
    data = shape_at(values, 0)
    target = values[1].data if len(values) > 1 and values[1] is not None else node.attributes.get("shape")
    if target is None:
        return ""
    target_shape = [int(size) for size in target]
    if not node.attributes.get("allowzero"):
        target_shape = [data[axis] if size == 0 else size for axis, size in enumerate(target_shape)]
    known_product = math.prod(size for size in target_shape if size >= 0)
    size = math.prod(data)
    fits = (
        size % known_product == 0
        if -1 in target_shape and known_product
        else -1 in target_shape or size == known_product
    )
    return "" if fits else f"cannot reshape {format_shape(data)} to {', '.join(map(str, target_shape))}"


def _einsum(node: OnnxNode, values: Values) -> str:
    """Reject letters that stand for two sizes, neither of them 1; an ellipsis is left to the runtime."""
    equation = node.attributes["equation"].replace(" ", "")
    terms = equation.partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for position, term in enumerate(terms):
        shape = shape_at(values, position)
        if "." in term or len(term) != len(shape):
            return ""
        for letter, size in zip(term, shape, strict=True):
            earlier = sizes.get(letter, 1)
            if 1 not in {earlier, size} and earlier != size:
                return f"has {earlier} and {size} for '{letter}' of {equation}"
            sizes[letter] = size if earlier == 1 else earlier
    return ""


def _one_way_broadcast(node: OnnxNode, values: Values) -> str:
    """Reject a second input that does not broadcast to the first, which keeps its shape."""
    if node.schema is None or node.schema.since_version < _BROADCASTING:
        return ""
    data, other = shape_at(values, 0), shape_at(values, 1)
    if len(other) > len(data):
        return f"cannot combine {format_shape(data)} with {format_shape(other)}"
    wider = any(b not in {1, a} for a, b in zip(reversed(data), reversed(other), strict=False))
    return f"cannot combine {format_shape(data)} with {format_shape(other)}" if wider else ""


_BROADCASTING = 7
"""Version of the operators since which their inputs broadcast as in numpy."""


def _expand(_: OnnxNode, values: Values) -> str:
    target = values[1].data if len(values) > 1 and values[1] is not None else None
    return "" if target is None else _broadcast_error(shape_at(values, 0), tuple(map(int, target)))


def _depth_to_space(node: OnnxNode, values: Values) -> str:
    data, block = shape_at(values, 0), node.attributes["blocksize"] ** 2
    return _divisible(data, data[1:2], block)


def _space_to_depth(node: OnnxNode, values: Values) -> str:
    data = shape_at(values, 0)
    return _divisible(data, data[2:], node.attributes["blocksize"])


def _divisible(data: tuple[int, ...], sizes: tuple[int, ...], by: int) -> str:
    return next((f"divides {s} of {format_shape(data)} by {by}" for s in sizes if s % by), "")


def _split(node: OnnxNode, values: Values) -> str:
    data, parts = shape_at(values, 0), _numbers(node, values, 1, "split")
    axis = node.attributes.get("axis", 0)
    if data[axis] == sum(parts):
        return ""
    return f"splits axis {axis} of {format_shape(data)} into {' + '.join(map(str, parts))}"


def _top_k(node: OnnxNode, values: Values) -> str:
    data, axis = shape_at(values, 0), node.attributes.get("axis", -1)
    (k,) = _numbers(node, values, 1, "k") if len(values) > 1 else (node.attributes["k"],)
    return f"takes the top {k} of axis {axis} of {format_shape(data)}" if k > data[axis] else ""


def _tile(node: OnnxNode, values: Values) -> str:
    data = shape_at(values, 0)
    if len(values) > _TILE_INPUTS:  # before version 6
        return ""
    repeats = _numbers(node, values, 1, "repeats")
    return "" if len(repeats) == len(data) else f"repeats {format_shape(data)} {len(repeats)}-fold by axis"


_TILE_INPUTS = 2


def _gather(node: OnnxNode, values: Values) -> str:
    data, axis = shape_at(values, 0), node.attributes.get("axis", 0)
    size = data[axis]
    beyond = [index for index in _numbers(node, values, 1, "indices") if not -size <= index < size]
    return f"takes place {beyond[0]} of axis {axis} of {format_shape(data)}" if beyond else ""


def _gather_nd(node: OnnxNode, values: Values) -> str:
    data, indices, batch = shape_at(values, 0), shape_at(values, 1), node.attributes.get("batch_dims", 0)
    width = indices[-1]
    if width > len(data) - batch:
        return f"takes places of {width} axes from {format_shape(data)}"
    numbers = _numbers(node, values, 1, "indices")
    for position, index in enumerate(numbers):
        axis = batch + position % width
        if not -data[axis] <= index < data[axis]:
            return f"takes place {index} of axis {axis} of {format_shape(data)}"
    return ""


def _arg_max(node: OnnxNode, values: Values) -> str:
    data = shape_at(values, 0)
    axis = node.attributes.get("axis", 0) % len(data)
    outputs = math.prod(data[:axis] + data[axis + 1 :])
    return (
        ""
        if data[axis] or not outputs
        else f"looks along axis {axis} of {format_shape(data)}, which is empty"
    )


def _pad(node: OnnxNode, values: Values) -> str:
    data, pads = shape_at(values, 0), _numbers(node, values, 1, "pads")
    if len(values) > _AXES and values[_AXES] is not None:
        axes = [axis % len(data) for axis in _numbers(node, values, _AXES, "axes")]
    else:
        axes = list(range(len(data)))
    reflect = node.attributes.get("mode", "constant") == "reflect"
    for position, axis in enumerate(axes):
        ends = pads[position], pads[position + len(axes)]
        if data[axis] + sum(ends) < 0 or (reflect and max(ends) >= data[axis]):
            return f"pads axis {axis} of {format_shape(data)} by {ends[0]} and {ends[1]}"
    return ""


_AXES = 3
"""Position of the axes among the inputs of Pad."""


def _squeeze(node: OnnxNode, values: Values) -> str:
    data = shape_at(values, 0)
    axes = values[1].data if len(values) > 1 and values[1] is not None else node.attributes.get("axes")
    for axis in () if axes is None else axes:
        if data[int(axis)] != 1:
            return f"removes axis {int(axis)} of {format_shape(data)}, which is not 1"
    return ""


def _recurrent(_: OnnxNode, values: Values) -> str:
    data, weight = shape_at(values, 0), shape_at(values, 1)
    width = weight[2]
    return (
        ""
        if data[2] == width
        else f"takes {width} values per step, not the {data[2]} of {format_shape(data)}"
    )


def _normalisation(_: OnnxNode, values: Values) -> str:
    data, scale = shape_at(values, 0), shape_at(values, 1)
    return (
        "" if data[1] == scale[0] else f"takes {scale[0]} channels, not the {data[1]} of {format_shape(data)}"
    )


_RULES: dict[str, Rule] = {
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "QLinearConv": partial(_convolution, filters=3),
    "ConvTranspose": _transposed_convolution,
    "MaxPool": _pooling,
    "AveragePool": _pooling,
    "LpPool": _pooling,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": partial(_matmul, second=3),
    "Einsum": _einsum,
    "Gemm": _gemm,
    **dict.fromkeys(
        ("Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean",
         "Min", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor"), _broadcast),
    "Concat": _concat,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Expand": _expand,
    "PRelu": _one_way_broadcast,
    "LayerNormalization": _one_way_broadcast,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "TopK": _top_k,
    "Tile": _tile,
    "Gather": _gather,
    "GatherElements": _gather,
    "ScatterElements": _gather,
    "GatherND": _gather_nd,
    "ArgMax": _arg_max,
    "ArgMin": _arg_max,
    "Pad": _pad,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "BatchNormalization": _normalisation,
    "InstanceNormalization": _normalisation,
}  # fmt: skip
"""Operators of the default domain whose input shapes must fit each other."""

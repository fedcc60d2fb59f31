"""Checks whether an ONNX operator accepts its input sizes, by its specification."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from modeldyno.core.spec.input_spec import format_shape

if TYPE_CHECKING:
    from modeldyno.adapters.loaders.onnx_tracing.nodes import GraphValue, OnnxNode

Values = Sequence["GraphValue | None"]
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


def _shape(values: Values, position: int) -> tuple[int, ...]:
    """Return the shape of an input.

    Raises:
        KeyError: it was left out, or is unknown.
    """
    value = values[position] if position < len(values) else None
    if value is None or value.shape is None:
        raise KeyError(position)
    return value.shape


def _convolution(node: OnnxNode, values: Values) -> str:
    data, weight = _shape(values, 0), _shape(values, 1)
    if len(data) != len(weight):
        return (
            f"has a filter of {format_shape(weight)} for {format_shape(data)}, which has "
            f"{len(data)} dimensions"
        )
    channels = weight[1] * node.attributes.get("group", 1)
    if data[1] != channels:
        return f"takes {channels} channels, not the {data[1]} of {format_shape(data)}"
    return _window_fits(node, data, weight[2:], beyond=0)


def _pooling(node: OnnxNode, values: Values) -> str:
    return _window_fits(node, _shape(values, 0), tuple(node.attributes["kernel_shape"]), beyond=1)


def _window_fits(node: OnnxNode, data: tuple[int, ...], kernel: tuple[int, ...], *, beyond: int) -> str:
    """Reject a window larger than its padded input.

    A pooling may reach `beyond` it by less than a stride, as ONNX Runtime rounds.
    """
    if node.attributes.get("auto_pad", "NOTSET") not in {"NOTSET", "VALID"}:
        return ""
    sides = data[2:]
    pads = node.attributes.get("pads", (0,) * 2 * len(sides))
    steps = node.attributes.get("dilations", (1,) * len(sides))
    strides = node.attributes.get("strides", (1,) * len(sides))
    for axis, side in enumerate(sides):
        padded_size = side + pads[axis] + pads[axis + len(sides)]
        window = steps[axis] * (kernel[axis] - 1) + 1
        if window > padded_size + beyond * (strides[axis] - 1):
            return f"has a window of {window} for {padded_size} values (its input is {format_shape(data)})"
    return ""


def _matmul(_: OnnxNode, values: Values) -> str:
    left, right = _shape(values, 0), _shape(values, 1)
    inner = right[0] if len(right) == 1 else right[-2]
    if left[-1] != inner:
        return f"multiplies {format_shape(left)} by {format_shape(right)}: {left[-1]} is not {inner}"
    return _broadcast_error(left[:-2], right[:-2])


def _gemm(node: OnnxNode, values: Values) -> str:
    left, right = _shape(values, 0), _shape(values, 1)
    inner = left[0 if node.attributes.get("transA") else 1], right[1 if node.attributes.get("transB") else 0]
    if inner[0] == inner[1]:
        return ""
    return f"multiplies {format_shape(left)} by {format_shape(right)}: {inner[0]} is not {inner[1]}"


def _broadcast(node: OnnxNode, values: Values) -> str:
    if "broadcast" in node.attributes or "axis" in node.attributes:  # other rules before opset 7
        return ""
    shapes = [_shape(values, position) for position, value in enumerate(values) if value is not None]
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
    shapes = [_shape(values, position) for position, value in enumerate(values) if value is not None]
    axis = node.attributes["axis"] % len(shapes[0])
    others = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes if shape != (0,)}
    return (
        f"cannot join {' and '.join(map(format_shape, shapes))} along axis {axis}" if len(others) > 1 else ""
    )


def _reshape(node: OnnxNode, values: Values) -> str:
    data = _shape(values, 0)
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


def _squeeze(node: OnnxNode, values: Values) -> str:
    data = _shape(values, 0)
    axes = values[1].data if len(values) > 1 and values[1] is not None else node.attributes.get("axes")
    for axis in () if axes is None else axes:
        if data[int(axis)] != 1:
            return f"removes axis {int(axis)} of {format_shape(data)}, which is not 1"
    return ""


def _recurrent(_: OnnxNode, values: Values) -> str:
    data, weight = _shape(values, 0), _shape(values, 1)
    width = weight[2]
    return (
        ""
        if data[2] == width
        else f"takes {width} values per step, not the {data[2]} of {format_shape(data)}"
    )


def _normalisation(_: OnnxNode, values: Values) -> str:
    data, scale = _shape(values, 0), _shape(values, 1)
    return (
        "" if data[1] == scale[0] else f"takes {scale[0]} channels, not the {data[1]} of {format_shape(data)}"
    )


_RULES: dict[str, Rule] = {
    "Conv": _convolution,
    "MaxPool": _pooling,
    "AveragePool": _pooling,
    "LpPool": _pooling,
    "MatMul": _matmul,
    "Gemm": _gemm,
    **dict.fromkeys(
        ("Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean",
         "Min", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor"), _broadcast),
    "Concat": _concat,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "BatchNormalization": _normalisation,
    "InstanceNormalization": _normalisation,
}  # fmt: skip
"""Operators of the default domain whose input shapes must fit each other."""

"""Sizes that an ONNX operator cannot be carried out at, as its specification says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from modeldyno.core.spec.input_spec import show

if TYPE_CHECKING:
    from modeldyno.adapters.loaders.onnx_tracing.nodes import Node, Value

Values = Sequence["Value | None"]
Rule = Callable[["Node", Values], str]
"""Says in a clause why an operator refuses its inputs, or nothing."""


def refusal(node: Node, values: Values) -> str:
    """Say why a node cannot be carried out on values of these shapes; empty where nothing speaks against it.

    Inputs of unknown shape speak against nothing.
    """
    rule = _RULES.get(node.kind) if not node.domain else None
    if rule is None:
        return ""
    try:
        return rule(node, values)
    except (IndexError, KeyError, ValueError, TypeError):
        return ""


def _shape(values: Values, place: int) -> tuple[int, ...]:
    """Give the shape of an input.

    Raises:
        KeyError: it was left out, or is unknown.
    """
    value = values[place] if place < len(values) else None
    if value is None or value.shape is None:
        raise KeyError(place)
    return value.shape


def _convolved(node: Node, values: Values) -> str:
    data, weight = _shape(values, 0), _shape(values, 1)
    if len(data) != len(weight):
        return f"has a filter of {show(weight)} for {show(data)}, which has {len(data)} dimensions"
    channels = weight[1] * node.attributes.get("group", 1)
    if data[1] != channels:
        return f"takes {channels} channels, not the {data[1]} of {show(data)}"
    return _windowed(node, data, weight[2:], beyond=0)


def _pooled(node: Node, values: Values) -> str:
    return _windowed(node, _shape(values, 0), tuple(node.attributes["kernel_shape"]), beyond=1)


def _windowed(node: Node, data: tuple[int, ...], kernel: tuple[int, ...], *, beyond: int) -> str:
    """Refuse a window that is larger than what it slides over, padding included.

    A pooling may reach `beyond` it by less than a stride, as ONNX Runtime rounds.
    """
    if node.attributes.get("auto_pad", "NOTSET") not in {"NOTSET", "VALID"}:
        return ""
    sides = data[2:]
    pads = node.attributes.get("pads", (0,) * 2 * len(sides))
    steps = node.attributes.get("dilations", (1,) * len(sides))
    strides = node.attributes.get("strides", (1,) * len(sides))
    for axis, side in enumerate(sides):
        room = side + pads[axis] + pads[axis + len(sides)]
        window = steps[axis] * (kernel[axis] - 1) + 1
        if window > room + beyond * (strides[axis] - 1):
            return f"has a window of {window} for {room} values (it is given {show(data)})"
    return ""


def _multiplied(_: Node, values: Values) -> str:
    left, right = _shape(values, 0), _shape(values, 1)
    inner = right[0] if len(right) == 1 else right[-2]
    if left[-1] != inner:
        return f"multiplies {show(left)} by {show(right)}: {left[-1]} is not {inner}"
    return _unlike(left[:-2], right[:-2])


def _general(node: Node, values: Values) -> str:
    left, right = _shape(values, 0), _shape(values, 1)
    inner = left[0 if node.attributes.get("transA") else 1], right[1 if node.attributes.get("transB") else 0]
    if inner[0] == inner[1]:
        return ""
    return f"multiplies {show(left)} by {show(right)}: {inner[0]} is not {inner[1]}"


def _spread(node: Node, values: Values) -> str:
    if "broadcast" in node.attributes or "axis" in node.attributes:  # before opset 7 by other rules
        return ""
    shapes = [_shape(values, place) for place, value in enumerate(values) if value is not None]
    return _unlike(*shapes)


def _unlike(*shapes: tuple[int, ...]) -> str:
    """Refuse shapes that cannot be spread to one: sizes of an axis, from the last, are alike or 1."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    for sizes in zip(*padded, strict=True):
        if len(set(sizes) - {1}) > 1:
            return f"cannot combine {' with '.join(map(show, shapes))}"
    return ""


def _joined(node: Node, values: Values) -> str:
    shapes = [_shape(values, place) for place, value in enumerate(values) if value is not None]
    axis = node.attributes["axis"] % len(shapes[0])
    others = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes if shape != (0,)}
    return f"cannot join {' and '.join(map(show, shapes))} along axis {axis}" if len(others) > 1 else ""


def _reshaped(node: Node, values: Values) -> str:
    data = _shape(values, 0)
    target = values[1].data if len(values) > 1 and values[1] is not None else node.attributes.get("shape")
    if target is None:
        return ""
    wanted = [int(size) for size in target]
    if not node.attributes.get("allowzero"):
        wanted = [data[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    known = math.prod(size for size in wanted if size >= 0)
    size = math.prod(data)
    fits = size % known == 0 if -1 in wanted and known else -1 in wanted or size == known
    return "" if fits else f"cannot bring {show(data)} into the shape {', '.join(map(str, wanted))}"


def _squeezed(node: Node, values: Values) -> str:
    data = _shape(values, 0)
    given = values[1].data if len(values) > 1 and values[1] is not None else node.attributes.get("axes")
    for axis in () if given is None else given:
        if data[int(axis)] != 1:
            return f"takes axis {int(axis)} of {show(data)} away, which is not 1"
    return ""


def _recurred(_: Node, values: Values) -> str:
    data, weight = _shape(values, 0), _shape(values, 1)
    width = weight[2]
    return "" if data[2] == width else f"takes {width} numbers a step, not the {data[2]} of {show(data)}"


def _normed(_: Node, values: Values) -> str:
    data, scale = _shape(values, 0), _shape(values, 1)
    return "" if data[1] == scale[0] else f"takes {scale[0]} channels, not the {data[1]} of {show(data)}"


_RULES: dict[str, Rule] = {
    "Conv": _convolved,
    "MaxPool": _pooled,
    "AveragePool": _pooled,
    "LpPool": _pooled,
    "MatMul": _multiplied,
    "Gemm": _general,
    **dict.fromkeys(
        ("Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean",
         "Min", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor"), _spread),
    "Concat": _joined,
    "Reshape": _reshaped,
    "Squeeze": _squeezed,
    "LSTM": _recurred,
    "GRU": _recurred,
    "RNN": _recurred,
    "BatchNormalization": _normed,
    "InstanceNormalization": _normed,
}  # fmt: skip
"""Operators of the default domain whose inputs must fit each other."""

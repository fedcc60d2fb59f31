"""Guesses the dynamic input sizes of an ONNX graph from the graph itself; still to be verified."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING

from modeldyno.base.job.dimension_expression import solve
from modeldyno.base.job.input_spec import BATCH
from modeldyno.base.job.size_guesses import guess_sizes, image_axes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.models.loaders.onnx_tracing.tensors import Proto

Shape = tuple[int, ...]
Places = dict[int, int]
"""Axis of an input to the size that an operator needs there."""

_INTEGER_TYPES = frozenset({6, 7})
"""TensorProto.DataType of int32 and int64."""
_SAME_NUMBER = frozenset({"Cast", "Gather", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that pass a single number through."""
_SAME_SHAPE = frozenset({
    "Add", "BatchNormalization", "Cast", "Clip", "DequantizeLinear", "Div", "Identity", "Mul",
    "QuantizeLinear", "Relu", "Sub",
})  # fmt: skip
"""Operators through which an input is followed; of two operands the other is assumed to broadcast."""


def size_guesses(
    model: Proto, inputs: tuple[InputSpec, ...]
) -> Callable[[Mapping[str, int]], Iterator[Mapping[str, int]]]:
    """Return a function that guesses the sizes of dynamic dimensions, from the known ones."""
    expected = expected_sizes(model, inputs)
    return lambda known_sizes: guess_sizes(inputs, known_sizes, expected)


def expected_sizes(model: Proto, inputs: tuple[InputSpec, ...]) -> dict[str, int]:
    """Return the sizes of dimensions that weights, windows and exporter metadata suggest."""
    shapes = _constants(model.graph)
    needed = _required_sizes(model.graph, {spec.name for spec in inputs}, shapes)
    sizes: dict[str, int] = {}
    image_size = _metadata_image_size(model)
    for spec in inputs:
        axes = image_axes(spec)
        image_axes_sizes = (
            dict(zip(axes[1:], image_size, strict=True)) if axes is not None and image_size else {}
        )
        for axis, size in chain(needed.get(spec.name, {}).items(), image_axes_sizes.items()):
            dimension = (spec.shape or ())[axis] if axis < len(spec.shape or ()) else BATCH
            if isinstance(dimension, str) and dimension != BATCH and size > 0:
                sizes = solve(dimension, size, sizes) | sizes
    return sizes


def compared_constants(graph: Proto) -> dict[str, int]:
    """Return the integers that values are compared with: an input that is compared takes that number.

    An audio model for several sampling rates checks which one it gets.
    """
    from onnx import numpy_helper  # optional

    constants = _constants(graph)
    origin: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _SAME_NUMBER and node.output:
            origin[node.output[0]] = origin.get(node.input[0], node.input[0])
        for name, other in zip(node.input, reversed(node.input), strict=True):
            if node.op_type == "Equal" and other in constants and name not in constants:
                tensor = constants[other]
                if (
                    tensor.data_type in _INTEGER_TYPES
                    and math.prod(tensor.dims) == 1
                    and not tensor.external_data
                ):
                    numbers.setdefault(origin.get(name, name), int(numpy_helper.to_array(tensor).ravel()[0]))
    return numbers


def _metadata_image_size(model: Proto) -> Shape:
    """Return height and width as Ultralytics writes them into its detectors' metadata; else empty."""
    for entry in model.metadata_props:
        if entry.key == "imgsz":
            try:
                sizes = json.loads(entry.value)
            except ValueError:
                return ()
            sizes = sizes if isinstance(sizes, list) else [sizes, sizes]
            if len(sizes) == 2 and all(isinstance(side, int) for side in sizes):
                return tuple(sizes)
    return ()


def _constants(graph: Proto) -> dict[str, Proto]:
    """Return the tensors in the file, by name; their values may have been removed."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            constants.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
    return constants


def _required_sizes(graph: Proto, inputs: set[str], constants: Mapping[str, Proto]) -> dict[str, Places]:
    """Follow each input to the first operators whose weights fix its sizes."""
    axes: dict[str, tuple[str, Shape | None]] = {name: (name, None) for name in inputs}
    needed: dict[str, Places] = {}
    for node in graph.node:
        for name in node.input:
            origin, order = axes.get(name, ("", None))
            if not origin or (node.op_type != "Transpose" and name != node.input[0] and name not in inputs):
                continue
            if node.op_type == "Transpose" and node.output:
                perm = tuple(next((a.ints for a in node.attribute if a.name == "perm"), ()))
                if perm and order is None:
                    axes[node.output[0]] = (origin, perm)
            elif node.op_type in _SAME_SHAPE and name == node.input[0] and node.output:
                axes[node.output[0]] = (origin, order)
            for axis, size in _operator_sizes(node, name, constants).items():
                position = axis if order is None else order[axis] if axis < len(order) else axis
                needed.setdefault(origin, {}).setdefault(position, size)
    return needed


def _operator_sizes(node: Proto, name: str, constants: Mapping[str, Proto]) -> Places:
    """Return the sizes that an operator needs of the input of this name."""
    places = [position for position, input_name in enumerate(node.input) if input_name == name]
    rule = _RULES.get(node.op_type)
    if rule is None or not places:
        return {}
    shapes = [
        tuple(constants[input_name].dims) if input_name in constants else None for input_name in node.input
    ]
    try:
        return rule(node, places[0], shapes, constants)
    except (IndexError, ValueError):
        return {}


Rule = Callable[["Proto", int, "list[Shape | None]", "Mapping[str, Proto]"], Places]


def _attribute(node: Proto, name: str, default: int) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)


def _convolution(node: Proto, position: int, shapes: list[Shape | None], _: Mapping[str, Proto]) -> Places:
    weight = shapes[1]
    return {1: weight[1] * _attribute(node, "group", 1)} if position == 0 and weight else {}


def _product(node: Proto, position: int, shapes: list[Shape | None], _: Mapping[str, Proto]) -> Places:
    """The last axis of a two-dimensional matrix; with more dimensions its position is unknown."""
    weight = shapes[1]
    if position or not weight or len(weight) != 2:
        return {}
    return {1: weight[1 if _attribute(node, "transB", 0) else 0]}


def _recurrence(_: Proto, position: int, shapes: list[Shape | None], __: Mapping[str, Proto]) -> Places:
    """For LSTM, GRU and RNN: the tokens, then from the sixth input on the states."""
    weight, recurrence = shapes[1], shapes[2]
    if position == 0 and weight:
        return {2: weight[2]}
    return {0: recurrence[0], 2: recurrence[2]} if position > 4 and recurrence else {}


def _reshape(node: Proto, position: int, _: list[Shape | None], constants: Mapping[str, Proto]) -> Places:
    """A constant target whose first size is dynamic fixes the product for the second axis."""
    from onnx import numpy_helper  # optional

    if position or node.input[1] not in constants:
        return {}
    target = [int(size) for size in numpy_helper.to_array(constants[node.input[1]]).ravel()]
    return {1: math.prod(target[1:])} if target[0] in {0, -1, 1} and min(target[1:], default=0) > 0 else {}


def _scaler(node: Proto, position: int, _: list[Shape | None], __: Mapping[str, Proto]) -> Places:
    lengths = [len(a.floats) for a in node.attribute if a.name in {"offset", "scale"}]
    return {1: max(lengths)} if position == 0 and max(lengths, default=0) > 1 else {}


_RULES: dict[str, Rule] = {
    "Conv": _convolution,
    "MatMul": _product,
    "Gemm": _product,
    "LSTM": _recurrence,
    "GRU": _recurrence,
    "RNN": _recurrence,
    "Reshape": _reshape,
    "Scaler": _scaler,
}
"""Operators that fix sizes of their inputs."""

"""What an ONNX graph itself says of the free sizes of its inputs: guesses, still to be proven."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING

from modeldyno.core.spec.input_spec import BATCH
from modeldyno.core.spec.size_guesses import guess_sizes, image_axes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.adapters.loaders.onnx_tracing.tensors import Proto
    from modeldyno.core.spec.input_spec import InputSpec

Shape = tuple[int, ...]
Places = dict[int, int]
"""Axis of an input to the size that an operator needs there."""

_WHOLE = frozenset({6, 7})
"""TensorProto.DataType of int32 and int64."""
_SAME_NUMBER = frozenset({"Cast", "Gather", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that give a single number as they were given it."""
_SAME_SHAPE = frozenset({
    "Add", "BatchNormalization", "Cast", "Clip", "DequantizeLinear", "Div", "Identity", "Mul",
    "QuantizeLinear", "Relu", "Sub",
})  # fmt: skip
"""Operators through which an input is followed; those of two operands are taken to spread the other one."""


def size_guesses(
    model: Proto, inputs: tuple[InputSpec, ...]
) -> Callable[[Mapping[str, int]], Iterator[Mapping[str, int]]]:
    """Give what guesses the sizes of free dimensions, given those that are known."""
    expected = expected_sizes(model, inputs)
    return lambda given: guess_sizes(inputs, given, expected)


def expected_sizes(model: Proto, inputs: tuple[InputSpec, ...]) -> dict[str, int]:
    """Give the sizes of dimensions that weights, windows and the exporter's notes speak for."""
    shapes = _constants(model.graph)
    needed = _needed(model.graph, {spec.name for spec in inputs}, shapes)
    sizes: dict[str, int] = {}
    noted = _noted_image(model)
    for spec in inputs:
        axes = image_axes(spec)
        places = dict(zip(axes[1:], noted, strict=True)) if axes is not None and noted else {}
        for axis, size in chain(needed.get(spec.name, {}).items(), places.items()):
            dimension = (spec.shape or ())[axis] if axis < len(spec.shape or ()) else BATCH
            if isinstance(dimension, str) and dimension != BATCH and size > 0:
                sizes.setdefault(dimension, size)
    return sizes


def compared_with(graph: Proto) -> dict[str, int]:
    """Give the whole numbers that values are compared with: an input that is, takes such a number.

    A network for sounds of several sampling rates asks which one it is given.
    """
    from onnx import numpy_helper  # noqa: PLC0415 - optional

    held = _constants(graph)
    origin: dict[str, str] = {}
    found: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _SAME_NUMBER and node.output:
            origin[node.output[0]] = origin.get(node.input[0], node.input[0])
        for name, other in zip(node.input, reversed(node.input), strict=True):
            if node.op_type == "Equal" and other in held and name not in held:
                tensor = held[other]
                if tensor.data_type in _WHOLE and math.prod(tensor.dims) == 1 and not tensor.external_data:
                    found.setdefault(origin.get(name, name), int(numpy_helper.to_array(tensor).ravel()[0]))
    return found


def _noted_image(model: Proto) -> Shape:
    """Give height and width as Ultralytics notes them beside its detectors; nothing elsewhere."""
    for entry in model.metadata_props:
        if entry.key == "imgsz":
            try:
                noted = json.loads(entry.value)
            except ValueError:
                return ()
            noted = noted if isinstance(noted, list) else [noted, noted]
            if len(noted) == 2 and all(isinstance(side, int) for side in noted):  # noqa: PLR2004 - height, width
                return tuple(noted)
    return ()


def _constants(graph: Proto) -> dict[str, Proto]:
    """Give the tensors that the file holds, by name; their values may have been taken out."""
    held = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            held.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
    return held


def _needed(graph: Proto, inputs: set[str], held: Mapping[str, Proto]) -> dict[str, Places]:
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
            for axis, size in _of_operator(node, name, held).items():
                place = axis if order is None else order[axis] if axis < len(order) else axis
                needed.setdefault(origin, {}).setdefault(place, size)
    return needed


def _of_operator(node: Proto, name: str, held: Mapping[str, Proto]) -> Places:
    """Give the sizes that an operator needs of the input of this name."""
    places = [place for place, given in enumerate(node.input) if given == name]
    rule = _RULES.get(node.op_type)
    if rule is None or not places:
        return {}
    shapes = [tuple(held[given].dims) if given in held else None for given in node.input]
    try:
        return rule(node, places[0], shapes, held)
    except (IndexError, ValueError):
        return {}


Rule = Callable[["Proto", int, "list[Shape | None]", "Mapping[str, Proto]"], Places]


def _attribute(node: Proto, name: str, default: int) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)


def _convolution(node: Proto, place: int, shapes: list[Shape | None], _: Mapping[str, Proto]) -> Places:
    weight = shapes[1]
    return {1: weight[1] * _attribute(node, "group", 1)} if place == 0 and weight else {}


def _product(node: Proto, place: int, shapes: list[Shape | None], _: Mapping[str, Proto]) -> Places:
    """The last axis of a matrix of two dimensions: of more, its place is not known here."""
    weight = shapes[1]
    if place or not weight or len(weight) != 2:  # noqa: PLR2004 - a matrix
        return {}
    return {1: weight[1 if _attribute(node, "transB", 0) else 0]}


def _recurrence(_: Proto, place: int, shapes: list[Shape | None], __: Mapping[str, Proto]) -> Places:
    """As LSTM, GRU and RNN: the tokens, then from the sixth input on the states."""
    weight, recurrence = shapes[1], shapes[2]
    if place == 0 and weight:
        return {2: weight[2]}
    return {0: recurrence[0], 2: recurrence[2]} if place > 4 and recurrence else {}  # noqa: PLR2004 - initial_h


def _reshape(node: Proto, place: int, _: list[Shape | None], held: Mapping[str, Proto]) -> Places:
    """A constant target whose first size is free fixes what is left for the second axis."""
    from onnx import numpy_helper  # noqa: PLC0415 - optional

    if place or node.input[1] not in held:
        return {}
    target = [int(size) for size in numpy_helper.to_array(held[node.input[1]]).ravel()]
    return {1: math.prod(target[1:])} if target[0] in {0, -1, 1} and min(target[1:], default=0) > 0 else {}


def _scaler(node: Proto, place: int, _: list[Shape | None], __: Mapping[str, Proto]) -> Places:
    lengths = [len(a.floats) for a in node.attribute if a.name in {"offset", "scale"}]
    return {1: max(lengths)} if place == 0 and max(lengths, default=0) > 1 else {}


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
"""Operators that fix sizes of what they are given."""

"""Operator kind, arguments and tensors of an ONNX node in the terms of the neutral Graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.models.loaders.onnx_tracing.contrib_shapes import OPERATORS
from modeldyno.models.static.graph import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.models.loaders.onnx_tracing.nodes import GraphValue, OnnxNode

_NUMERIC_INPUTS = frozenset({
    "K", "axes", "axis", "depth", "dft_length", "ends", "frame_length", "frame_step", "k", "pads", "repeats",
    "shape", "sizes", "split", "starts", "steps",
})  # fmt: skip
"""Inputs passed as numbers where they are known, as if they were attributes."""


def operator_kind(node: OnnxNode) -> str:
    """Return the operator name: ``onnx.Conv``, ``com.microsoft.FusedMatMul``."""
    return f"{node.domain or 'onnx'}.{node.kind}"


def operand(value: GraphValue) -> Tensor:
    """Return a value as an operand."""
    return Tensor(value.shape or (), value.dtype, value.storage)


def operands(value: GraphValue) -> list[Tensor]:
    """Return a value as operands: a sequence as its items, where they are known."""
    if value.items is not None:
        return [part for item in value.items for part in operands(item)]
    return [] if value.sequence else [operand(value)]


def has_known_shape(value: GraphValue) -> bool:
    """Whether its shape, or those of its items, are known."""
    return value.shape is not None or value.items is not None


def operator_arguments(node: OnnxNode, values: Iterable[GraphValue | None]) -> dict[str, Any]:
    """Return inputs by their formal names, and attributes; omitted or unknown ones are absent."""
    all_values = list(values)
    formals = _formal_names(node, len(all_values))
    named: dict[str, Any] = {}
    for i, value in enumerate(all_values):
        name = formals[min(i, len(formals) - 1)] if formals else f"input_{i}"
        if value is None:
            continue
        operand_tensors = operands(value)
        if not has_known_shape(value):
            continue
        if name in _NUMERIC_INPUTS and value.folded and value.data is not None:
            named[name] = value.data.item() if value.data.ndim == 0 else tuple(value.data.ravel().tolist())
        elif name.endswith("*"):
            named.setdefault(name[:-1], []).extend(operand_tensors)
        elif value.items is not None:
            named[name] = operand_tensors
        else:
            named[name if name not in named else f"input_{i}"] = operand_tensors[0]
    return named | {name: value for name, value in node.attributes.items() if name not in named}


def _formal_names(node: OnnxNode, inputs: int) -> tuple[str, ...]:
    """Name the inputs; a name that ends in ``*`` takes all remaining ones."""
    contrib = OPERATORS.get(node.kind)
    if node.schema is None:
        return contrib.formals if contrib is not None else tuple(f"input_{i}" for i in range(inputs))
    variadic = type(node.schema).FormalParameterOption.Variadic
    return tuple(f"{p.name}*" if p.option == variadic else p.name for p in node.schema.inputs)

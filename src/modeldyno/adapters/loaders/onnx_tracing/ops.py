"""The words of the neutral Graph for an ONNX node: its kind, its arguments, its tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.adapters.loaders.onnx_tracing.contrib_shapes import OPERATORS
from modeldyno.core.static.graph import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy import ndarray

    from modeldyno.adapters.loaders.onnx_tracing.nodes import Node, Value

_PLAIN = frozenset({
    "K", "axes", "axis", "depth", "dft_length", "ends", "frame_length", "frame_step", "k", "pads", "repeats",
    "shape", "sizes", "split", "starts", "steps",
})  # fmt: skip
"""Inputs that are given as numbers where they are known, as if they were attributes."""


def kind(node: Node) -> str:
    """Name the operator: ``onnx.Conv``, ``com.microsoft.FusedMatMul``."""
    return f"{node.domain or 'onnx'}.{node.kind}"


def tensor(value: Value) -> Tensor:
    """Give a value as an operand."""
    return Tensor(value.shape or (), value.dtype, value.storage)


def tensors(value: Value) -> list[Tensor]:
    """Give a value as operands: a sequence is its items, where they are known."""
    if value.items is not None:
        return [tensor for item in value.items for tensor in tensors(item)]
    return [] if value.sequence else [tensor(value)]


def is_known(value: Value) -> bool:
    """Whether its shape is, or those of its items."""
    return value.shape is not None or value.items is not None


def arguments(node: Node, values: Iterable[Value | None]) -> dict[str, Any]:
    """Give inputs by their formal names, and attributes; what was left out or is unknown is absent."""
    given = list(values)
    formals = _formals(node, len(given))
    named: dict[str, Any] = {}
    for i, value in enumerate(given):
        name = formals[min(i, len(formals) - 1)] if formals else f"input_{i}"
        if value is None:
            continue
        found = tensors(value)
        if not is_known(value):
            continue
        if name in _PLAIN and value.folded and value.data is not None:
            named[name] = _plain(value.data)
        elif name.endswith("*"):
            named.setdefault(name[:-1], []).extend(found)
        elif value.items is not None:
            named[name] = found
        else:
            named[name if name not in named else f"input_{i}"] = found[0]
    return named | {name: value for name, value in node.attributes.items() if name not in named}


def _formals(node: Node, inputs: int) -> tuple[str, ...]:
    """Name the inputs; a name that ends in ``*`` takes all that follow."""
    known = OPERATORS.get(node.kind)
    if node.schema is None:
        return known.formals if known is not None else tuple(f"input_{i}" for i in range(inputs))
    variadic = type(node.schema).FormalParameterOption.Variadic
    return tuple(f"{p.name}*" if p.option == variadic else p.name for p in node.schema.inputs)


def _plain(data: ndarray) -> Any:
    """Give a number, or a tuple of them."""
    return data.item() if data.ndim == 0 else tuple(data.ravel().tolist())

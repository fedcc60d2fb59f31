"""Which tensors of an ONNX file are parameters: decided by what the operators that read them call them.

Initialisers and what nodes ``Constant`` hold are the same thing: exporters choose (Paddle2ONNX writes every
weight as a Constant). docs/explanation/counting.md states the definition.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from modeldyno.adapters.loaders.onnx_tracing import ml_operators
from modeldyno.adapters.loaders.onnx_tracing.contrib_shapes import OPERATORS
from modeldyno.adapters.loaders.onnx_tracing.nodes import schema
from modeldyno.adapters.loaders.onnx_tracing.scopes import owners
from modeldyno.adapters.loaders.onnx_tracing.tensors import (
    KNOWN_FLOATS,
    KNOWN_WHOLE,
    Proto,
    check_text,
    element,
    entries,
    graphs,
    nested,
    quoted,
)
from modeldyno.core.static.weights import Weight
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Role = tuple[str, str]
"""An operator that reads a tensor, and its own name for that input."""
Roles = dict[str, set[Role]]

_PASSING = frozenset({
    "Cast", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators whose first input has the roles of their output."""
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Einsum", "FusedMatMul", "Gemm", "MatMul"})
"""Operators after which a sum with a constant is a bias."""
_RUNNING = frozenset({"mean", "var", "input_mean", "input_var"})
"""What BatchNormalization calls its running statistics."""
_SETTING = re.compile(
    r".*_scales?|.*zero_points?|absmax|scales|roi|min|max|constant_value|initial_\w+|shape|sizes|axes|axis"
    r"|pads|starts|ends|steps|repeats|indices|split|depth|values|condition|k|K|start|limit|delta"
)
"""Names of inputs that say how to compute; scales and zero points of quantised numbers are among them.

A norm's factor is called ``scale`` or ``Scale``, and is none.
"""
_WEIGHING = re.compile(r"W|B|C|R|P|w|b|A|scale|Scale|bias|slope|gamma|beta|weights?|x|bias after a product")
"""Names of inputs that are a parameter even where it is a single number."""
_WIDE = re.compile(r"u?int(16|32)|uint64")
"""Whole numbers that are a parameter only where they are brought to a scale, or are a quantised bias."""
_QUANTISED = frozenset({
    ("DequantizeLinear", "x"), ("QLinearConv", "B"), ("QLinearConvTranspose", "B"), ("QGemm", "C"),
})  # fmt: skip
_NEVER = frozenset({"int64", "bool", "string"})
"""Shapes, indices, flags and words."""
_OWN_NAME = re.compile(r"(?!val_\d)[A-Za-z_]\w*(\.\w+)*")
"""How PyTorch names a parameter in a file; its exporters call constants ``val_7`` or ``onnx::Mul_7``."""


def weights(model: Proto, path: Path) -> Iterator[Weight]:
    """Give the tensors of the file, those of subgraphs and functions too, by their declared shape and dtype.

    A Constant that is no parameter and so small that it belongs to the arithmetic of shapes is left out.
    """
    roles = _roles(model)
    places = owners(model)
    named = model.producer_name == "pytorch"
    for graph in graphs(model.graph):
        for tensor in graph.initializer:
            own = named and _OWN_NAME.fullmatch(tensor.name) is not None
            found = _weight(tensor, tensor.name, path, roles=roles.get(tensor.name, ()), own=own)
            yield replace(found, scope=places.get(tensor.name))
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            yield _weight(sparse.values, name, path, roles=roles.get(name, ()), own=True)
        for node in graph.node:
            if node.domain == ml_operators.DOMAIN and node.output:
                yield from ml_operators.weights(node)
    for number, (name, tensor) in enumerate(_constants(model)):
        found = _weight(tensor, name, path, roles=roles.get(name, ()), kept=f"constant {number}")
        if found.parameter or not is_small(found.size, found.dtype):
            yield replace(found, scope=places.get(name))


def is_small(size: int, dtype: str) -> bool:
    """Whether a constant of so many elements may be part of the arithmetic of shapes."""
    return size <= (KNOWN_WHOLE if dtype.startswith(("int", "uint", "bool")) else KNOWN_FLOATS)


def _constants(model: Proto) -> Iterator[tuple[str, Proto]]:
    """Give what nodes Constant hold, by the names of their outputs."""
    bodies = (body for function in model.functions for body in nested(function.node))
    nodes = (*(each.node for each in graphs(model.graph)), *(f.node for f in model.functions))
    for node in (node for each in (*nodes, *(body.node for body in bodies)) for node in each):
        if node.op_type == "Constant" and node.domain in {"", "ai.onnx"} and node.output:
            for attribute in node.attribute:
                if attribute.name == "value":
                    yield node.output[0], attribute.t
                elif attribute.name == "sparse_value":
                    yield node.output[0], attribute.sparse_tensor.values


def _weight(
    tensor: Proto,
    name: str,
    path: Path,
    *,
    roles: Iterable[Role],
    own: bool = False,
    kept: str = "",
) -> Weight:
    check_text(path, name, tensor.name)
    what = f"{'constant' if kept else 'initialiser'} {quoted(name)}"
    dtype, bits = element(tensor.data_type, what, path)
    shape = tuple(tensor.dims)
    if any(d < 0 for d in shape):
        raise RequestError(f"{path} is damaged: {what} has the shape {shape}.")
    size = math.prod(shape)
    stored = (size * bits + 7) // 8 if bits else sum(map(len, tensor.string_data))
    place = entries(tensor)
    if not place and not _holds(tensor, size, stored):
        raise RequestError(f"{path} is truncated or damaged: {what} holds fewer than {size:,} elements.")
    return Weight(
        name=name,
        shape=shape,
        dtype=dtype,
        size=size,
        bytes=stored,
        storage=f"{place['location']}@{place.get('offset', 0)}+{stored}" if place else kept,
        parameter=_is_parameter(dtype, shape, frozenset(roles), own=own),
    )


def _holds(tensor: Proto, size: int, stored: int) -> bool:
    """Whether a tensor can have its values in it; a typed field takes a byte or more for each."""
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data) >= stored
    return bool(tensor.ByteSize() >= min(size, stored or size))


def _is_parameter(dtype: str, shape: tuple[int, ...], roles: frozenset[Role], *, own: bool) -> bool:
    """Whether a tensor is a parameter.

    Args:
        dtype: of its elements.
        shape: its dimensions.
        roles: all that read it; none where only an output of the graph does.
        own: whether it has the name of a parameter, so that a single number is one, too.
    """
    if dtype in _NEVER or (_WIDE.fullmatch(dtype) and not roles & _QUANTISED):
        return False
    if roles and all(_SETTING.fullmatch(name) or name in _RUNNING for _, name in roles):
        return False
    if math.prod(shape) != 1 or own:
        return True
    return any(_weighs(shape, *role) for role in roles)


def _weighs(shape: tuple[int, ...], kind: str, name: str) -> bool:
    """Whether a single number is a parameter for an operator: not as an operand of plain arithmetic."""
    if kind in {"Add", "Div", "Max", "Min", "Mul", "Pow", "Sub"}:
        return name == _AFTER and bool(shape)
    return _WEIGHING.fullmatch(name) is not None


_AFTER = "bias after a product"


# -- roles ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Scan:
    """Who reads what, in a file."""

    versions: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], Proto]
    roles: Roles = field(default_factory=lambda: defaultdict(set))
    known: dict[tuple[str, str, str], list[set[Role]]] = field(default_factory=dict)
    """Of functions: the roles of their inputs."""

    def read(self, nodes: Iterable[Proto]) -> None:
        """Go backwards through nodes, so that the readers of an output are known before its maker."""
        given = list(nodes)
        made = {name: node.op_type for node in given for name in node.output}
        for node in reversed(given):
            for body in nested([node]):
                self.read(body.node)
            for place, name in enumerate(node.input):
                if name:
                    self.roles[name] |= self._of(node, place, made)

    def _of(self, node: Proto, place: int, made: Mapping[str, str]) -> set[Role]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        key = (domain, node.op_type, getattr(node, "overload", ""))
        if key in self.functions:
            inputs = self._called(key)
            return inputs[place] if place < len(inputs) else set()
        if node.op_type in _PASSING and not domain and place == 0 and node.output:
            return set(self.roles.get(node.output[0], ()))
        if node.op_type == "Add" and any(made.get(other) in _PRODUCTS for other in node.input):
            return {("Add", _AFTER)}
        return {(node.op_type, _formal(node.op_type, domain, self.versions.get(domain), place))}

    def _called(self, key: tuple[str, str, str]) -> list[set[Role]]:
        """Give the roles of the inputs of a function of the file; of one that calls itself, none."""
        if key not in self.known:
            self.known[key] = []
            function = self.functions[key]
            inner = _Scan({each.domain: each.version for each in function.opset_import}, self.functions)
            inner.known = self.known
            inner.read(function.node)
            self.known[key] = [inner.roles[name] for name in function.input]
            for name in {output for node in function.node for output in node.output}:
                self.roles[name] |= inner.roles[name]
        return self.known[key]


def _roles(model: Proto) -> Roles:
    versions = {"" if each.domain == "ai.onnx" else each.domain: each.version for each in model.opset_import}
    functions = {(f.domain, f.name, getattr(f, "overload", "")): f for f in model.functions}
    scan = _Scan(versions, functions)
    scan.read(model.graph.node)
    return scan.roles


@lru_cache(maxsize=4096)
def _formal(kind: str, domain: str, version: int | None, place: int) -> str:
    """Give an operator's own name for an input; empty where it is unknown."""
    known = schema(kind, domain, version)
    contrib = OPERATORS.get(kind)
    if known is not None:
        names = [parameter.name for parameter in known.inputs]
    else:
        names = [name.rstrip("*") for name in contrib.formals] if contrib is not None else []
    return names[min(place, len(names) - 1)] if names else ""

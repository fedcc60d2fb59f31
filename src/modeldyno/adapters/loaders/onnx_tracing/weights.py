"""Which tensors of an ONNX file are parameters: decided by the input names of the operators that read them.

Initialisers and ``Constant`` nodes are equivalent: exporters choose (Paddle2ONNX writes every weight as a
Constant). docs/explanation/counting.md has the definition.
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
from modeldyno.adapters.loaders.onnx_tracing.nodes import find_schema, owning_modules
from modeldyno.adapters.loaders.onnx_tracing.tensors import (
    KNOWN_FLOATS,
    KNOWN_WHOLE,
    Proto,
    all_graphs,
    check_text,
    direct_bodies,
    element_type,
    external_entries,
    nested_graphs,
    quote_name,
)
from modeldyno.core.static.weights import Weight
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Role = tuple[str, str]
"""An operator that reads a tensor, and its formal name for that input."""
Roles = dict[str, set[Role]]

_PASS_THROUGH = frozenset({
    "Cast", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators whose first input has the roles of their output."""
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Einsum", "FusedMatMul", "Gemm", "MatMul"})
"""Operators after which a sum with a constant is a bias."""
_RUNNING_STATISTICS = frozenset({"mean", "var", "input_mean", "input_var"})
"""Names of running statistics of BatchNormalization."""
_CONFIGURING = re.compile(
    r".*_scales?|.*zero_points?|absmax|scales|roi|min|max|constant_value|initial_\w+|shape|sizes|axes|axis"
    r"|pads|starts|ends|steps|repeats|indices|split|depth|values|condition|k|K|start|limit|delta"
)
"""Names of inputs that configure the computation, among them scales and zero points of quantised numbers.

A norm's factor is called ``scale`` or ``Scale``, and is not one of them.
"""
_PARAMETER_NAMES = re.compile(
    r"W|B|C|R|P|w|b|A|scale|Scale|bias|slope|gamma|beta|weights?|x|bias after a product"
)
"""Names of inputs that are a parameter even as a single number."""
_WIDE_INTEGER = re.compile(r"u?int(16|32)|uint64")
"""Integers that are a parameter only where they are dequantised, or are a quantised bias."""
_QUANTISED = frozenset({
    ("DequantizeLinear", "x"), ("QLinearConv", "B"), ("QLinearConvTranspose", "B"), ("QGemm", "C"),
})  # fmt: skip
_NEVER_PARAMETERS = frozenset({"int64", "bool", "string"})
"""Shapes, indices, flags and strings."""
_PARAMETER_NAME = re.compile(r"(?!val_\d)[A-Za-z_]\w*(\.\w+)*")
"""PyTorch's parameter names in a file; its exporters name constants ``val_7`` or ``onnx::Mul_7``."""


def list_weights(model: Proto, path: Path) -> Iterator[Weight]:
    """Yield the tensors of the file, including subgraphs and functions, by declared shape and dtype.

    A Constant that is no parameter and small enough to belong to shape arithmetic is left out.
    """
    roles = _roles(model)
    modules = owning_modules(model)
    is_pytorch = model.producer_name == "pytorch"
    for graph in all_graphs(model.graph):
        for tensor in graph.initializer:
            own = is_pytorch and _PARAMETER_NAME.fullmatch(tensor.name) is not None
            tensor_weight = _weight(tensor, tensor.name, path, roles=roles.get(tensor.name, ()), own=own)
            yield replace(tensor_weight, scope=modules.get(tensor.name))
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            yield _weight(sparse.values, name, path, roles=roles.get(name, ()), own=True)
        for node in graph.node:
            if node.domain == ml_operators.DOMAIN and node.output:
                yield from ml_operators.learned_weights(node)
    for number, (name, tensor) in enumerate(_constants(model)):
        tensor_weight = _weight(
            tensor, name, path, roles=roles.get(name, ()), constant_key=f"constant {number}"
        )
        if tensor_weight.parameter or not is_small(tensor_weight.size, tensor_weight.dtype):
            yield replace(tensor_weight, scope=modules.get(name))


def is_small(size: int, dtype: str) -> bool:
    """Whether a constant of this size may be part of shape arithmetic."""
    return size <= (KNOWN_WHOLE if dtype.startswith(("int", "uint", "bool")) else KNOWN_FLOATS)


def _constants(model: Proto) -> Iterator[tuple[str, Proto]]:
    """Yield the tensors of Constant nodes, by the names of their outputs."""
    bodies = (body for function in model.functions for body in nested_graphs(function.node))
    nodes = (
        *(nodes_of_graph.node for nodes_of_graph in all_graphs(model.graph)),
        *(f.node for f in model.functions),
    )
    for node in (
        node for nodes_of_graph in (*nodes, *(body.node for body in bodies)) for node in nodes_of_graph
    ):
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
    constant_key: str = "",
) -> Weight:
    check_text(path, name, tensor.name)
    label = f"{'constant' if constant_key else 'initialiser'} {quote_name(name)}"
    dtype, bits = element_type(tensor.data_type, label, path)
    shape = tuple(tensor.dims)
    if any(d < 0 for d in shape):
        raise RequestError(f"{path} is damaged: {label} has the shape {shape}.")
    size = math.prod(shape)
    stored = (size * bits + 7) // 8 if bits else sum(map(len, tensor.string_data))
    location = external_entries(tensor)
    if not location and not _contains_values(tensor, size, stored):
        raise RequestError(f"{path} is truncated or damaged: {label} holds fewer than {size:,} elements.")
    return Weight(
        name=name,
        shape=shape,
        dtype=dtype,
        size=size,
        bytes=stored,
        storage=f"{location['location']}@{location.get('offset', 0)}+{stored}" if location else constant_key,
        parameter=_is_parameter(dtype, shape, frozenset(roles), own=own),
    )


def _contains_values(tensor: Proto, size: int, stored: int) -> bool:
    """Whether a tensor can contain its values; a typed field takes a byte or more for each."""
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data) >= stored
    return bool(tensor.ByteSize() >= min(size, stored or size))


def _is_parameter(dtype: str, shape: tuple[int, ...], roles: frozenset[Role], *, own: bool) -> bool:
    """Whether a tensor is a parameter.

    Args:
        dtype: of its elements.
        shape: its dimensions.
        roles: all that read it; none where only an output of the graph does.
        own: whether it has the name of a parameter, so that a single number counts too.
    """
    if dtype in _NEVER_PARAMETERS or (_WIDE_INTEGER.fullmatch(dtype) and not roles & _QUANTISED):
        return False
    if roles and all(_CONFIGURING.fullmatch(name) or name in _RUNNING_STATISTICS for _, name in roles):
        return False
    if math.prod(shape) != 1 or own:
        return True
    return any(_is_scalar_parameter(shape, *role) for role in roles)


def _is_scalar_parameter(shape: tuple[int, ...], kind: str, name: str) -> bool:
    """Whether a single number is a parameter of an operator: not as an operand of plain arithmetic."""
    if kind in {"Add", "Div", "Max", "Min", "Mul", "Pow", "Sub"}:
        return name == _BIAS_AFTER_PRODUCT and bool(shape)
    return _PARAMETER_NAMES.fullmatch(name) is not None


_BIAS_AFTER_PRODUCT = "bias after a product"


# -- roles ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Scan:
    """The roles of tensors, in a file."""

    versions: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], Proto]
    roles: Roles = field(default_factory=lambda: defaultdict(set))
    function_roles: dict[tuple[str, str, str], list[set[Role]]] = field(default_factory=dict)
    """Of functions: the roles of their inputs."""

    def read(self, nodes: Iterable[Proto]) -> None:
        """Read nodes in reverse, so that the readers of an output are known before its producer."""
        nodes_list = list(nodes)
        producers = {name: node.op_type for node in nodes_list for name in node.output}
        for node in reversed(nodes_list):
            for body in direct_bodies([node]):
                self.read(body.node)
            for position, name in enumerate(node.input):
                if name:
                    self.roles[name] |= self._roles_of(node, position, producers)

    def _roles_of(self, node: Proto, position: int, producers: Mapping[str, str]) -> set[Role]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        key = (domain, node.op_type, getattr(node, "overload", ""))
        if key in self.functions:
            inputs = self._function_roles(key)
            return inputs[position] if position < len(inputs) else set()
        if node.op_type in _PASS_THROUGH and not domain and position == 0 and node.output:
            return set(self.roles.get(node.output[0], ()))
        if node.op_type == "Add" and any(producers.get(other) in _PRODUCTS for other in node.input):
            return {("Add", _BIAS_AFTER_PRODUCT)}
        return {(node.op_type, _formal_name(node.op_type, domain, self.versions.get(domain), position))}

    def _function_roles(self, key: tuple[str, str, str]) -> list[set[Role]]:
        """Return the roles of the inputs of a function of the file; none for one that calls itself."""
        if key not in self.function_roles:
            self.function_roles[key] = []
            function = self.functions[key]
            inner = _Scan({opset.domain: opset.version for opset in function.opset_import}, self.functions)
            inner.function_roles = self.function_roles
            inner.read(function.node)
            self.function_roles[key] = [inner.roles[name] for name in function.input]
            for name in {output for node in function.node for output in node.output}:
                self.roles[name] |= inner.roles[name]
        return self.function_roles[key]


def _roles(model: Proto) -> Roles:
    versions = {
        "" if opset.domain == "ai.onnx" else opset.domain: opset.version for opset in model.opset_import
    }
    functions = {(f.domain, f.name, getattr(f, "overload", "")): f for f in model.functions}
    scan = _Scan(versions, functions)
    scan.read(model.graph.node)
    return scan.roles


@lru_cache(maxsize=4096)
def _formal_name(kind: str, domain: str, version: int | None, position: int) -> str:
    """Return an operator's formal name for an input; empty where it is unknown."""
    operator_schema = find_schema(kind, domain, version)
    contrib = OPERATORS.get(kind)
    if operator_schema is not None:
        names = [parameter.name for parameter in operator_schema.inputs]
        return names[min(position, len(names) - 1)] if names else ""
    names = list(contrib.formals) if contrib is not None else []
    if names and names[-1].endswith("*"):
        position = min(position, len(names) - 1)
    return names[position].rstrip("*") if position < len(names) else ""

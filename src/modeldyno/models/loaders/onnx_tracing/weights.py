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
from typing import TYPE_CHECKING, NamedTuple

from modeldyno.base.errors import RequestError
from modeldyno.models.loaders.onnx_tracing import ml_operators
from modeldyno.models.loaders.onnx_tracing.contrib_shapes import OPERATORS
from modeldyno.models.loaders.onnx_tracing.nodes import (
    decoded_attributes,
    few_integers,
    find_schema,
    owning_modules,
)
from modeldyno.models.loaders.onnx_tracing.packed_weights import BYTES, PackedOperand, Packing, find_packing
from modeldyno.models.loaders.onnx_tracing.tensors import (
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
from modeldyno.models.static.weights import Weight

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


class Reader(NamedTuple):
    """An operator that reads a tensor."""

    kind: str
    name: str
    """Its formal name for that input."""
    packing: Packing | None = None
    """How it unpacks the tensor; None where each element is a number."""


Roles = dict[str, set[Reader]]

_PASS_THROUGH = frozenset({
    "Cast", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators whose first input has the roles of their output."""
_ONNX_RUNTIME = "com.microsoft"
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Einsum", "FusedMatMul", "Gemm", "MatMul"})
"""Operators after which a sum with a constant is a bias."""
_RUNNING_STATISTICS = frozenset({"mean", "var", "input_mean", "input_var"})
"""Names of running statistics of BatchNormalization."""
_CONFIGURING = re.compile(
    r"(?!.*norm_scale).*_scales?|.*_scale_2|.*zero_points?|absmax|scales|B_shape|roi|min|max|constant_value|initial_\w+|shape|sizes|axes|axis"
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


def list_weights(model: Proto, path: Path, roles: Roles) -> Iterator[Weight]:
    """Yield the tensors that operators read, including those of subgraphs and functions.

    They have the declared shape and dtype, and the size of what is packed in them. A Constant that is no
    parameter and small enough to belong to shape arithmetic is left out.
    """
    modules = owning_modules(model)
    is_pytorch = model.producer_name == "pytorch"
    for graph in all_graphs(model.graph):
        for tensor in graph.initializer:
            if tensor.name not in roles:
                continue
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


def unread_bytes(model: Proto, path: Path, roles: Roles) -> int:
    """Return the bytes of the initialisers that no operator reads, and no output returns.

    A runtime drops them as it loads the file.
    """
    unread = (t for graph in all_graphs(model.graph) for t in graph.initializer if t.name not in roles)
    return sum(_weight(tensor, tensor.name, path, roles=()).bytes for tensor in unread)


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
    roles: Iterable[Reader],
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
        size=_unpacked_size(size, dtype, roles),
        bytes=stored,
        storage=f"{location['location']}@{location.get('offset', 0)}+{stored}" if location else constant_key,
        parameter=_is_parameter(dtype, shape, frozenset(roles), own=own),
    )


def _unpacked_size(size: int, dtype: str, roles: Iterable[Reader]) -> int:
    """Return the numbers in so many elements."""
    packing = next((role.packing for role in roles if role.packing is not None), None)
    return size if packing is None or dtype not in BYTES else packing.size(size)


def _contains_values(tensor: Proto, size: int, stored: int) -> bool:
    """Whether a tensor can contain its values; a typed field takes a byte or more for each."""
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data) >= stored
    return bool(tensor.ByteSize() >= min(size, stored or size))


def _is_parameter(dtype: str, shape: tuple[int, ...], roles: frozenset[Reader], *, own: bool) -> bool:
    """Whether a tensor is a parameter.

    Args:
        dtype: of its elements.
        shape: its dimensions.
        roles: all that read it; none where only an output of the graph does.
        own: whether it has the name of a parameter, so that a single number counts too.
    """
    if dtype in _NEVER_PARAMETERS:
        return False
    if _WIDE_INTEGER.fullmatch(dtype) and not any((role.kind, role.name) in _QUANTISED for role in roles):
        return False
    if roles and all(_CONFIGURING.fullmatch(role.name) or role.name in _RUNNING_STATISTICS for role in roles):
        return False
    if math.prod(shape) != 1 or own:
        return True
    return any(_is_scalar_parameter(shape, role.kind, role.name) for role in roles)


def _is_scalar_parameter(shape: tuple[int, ...], kind: str, name: str) -> bool:
    """Whether a single number is a parameter of an operator: not as an operand of plain arithmetic."""
    if kind in _COMPARISONS:
        return False
    if kind in {"Add", "Div", "Max", "Min", "Mul", "Pow", "Sub"}:
        return name == _BIAS_AFTER_PRODUCT and bool(shape)
    # An initial state of a loop without a dimension has all roles that its body gives it.
    return (bool(shape) or kind == "PRelu") and _PARAMETER_NAMES.fullmatch(name) is not None


_COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod"})
_BIAS_AFTER_PRODUCT = "bias after a product"


# -- roles ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Scan:
    """The roles of tensors, in a file."""

    versions: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], Proto]
    tensors: Mapping[str, Proto]
    """Of the file, by name."""
    roles: Roles = field(default_factory=lambda: defaultdict(set))
    function_roles: dict[tuple[str, str, str], list[set[Reader]]] = field(default_factory=dict)
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

    def _roles_of(self, node: Proto, position: int, producers: Mapping[str, str]) -> set[Reader]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        key = (domain, node.op_type, getattr(node, "overload", ""))
        if key in self.functions:
            inputs = self._function_roles(key)
            return inputs[position] if position < len(inputs) else set()
        if node.op_type in _PASS_THROUGH and not domain and position == 0 and node.output:
            return set(self.roles.get(node.output[0], ()))
        if node.op_type == "Add" and any(producers.get(other) in _PRODUCTS for other in node.input):
            return {Reader("Add", _BIAS_AFTER_PRODUCT)}
        name = _formal_name(node.op_type, domain, self.versions.get(domain), position)
        return {Reader(node.op_type, name, self._packing(node, domain, name))}

    def _packing(self, node: Proto, domain: str, name: str) -> Packing | None:
        if domain != _ONNX_RUNTIME:
            return None
        formals = [_formal_name(node.op_type, domain, None, place) for place in range(len(node.input))]
        operands = {
            formal: self.tensors[given]
            for formal, given in zip(formals, node.input, strict=True)
            if given in self.tensors
        }
        return find_packing(
            node.op_type,
            PackedOperand(
                name=name,
                attributes=decoded_attributes(node),
                shapes={formal: tuple(tensor.dims) for formal, tensor in operands.items()},
                numbers={formal: few_integers(tensor) for formal, tensor in operands.items()},
            ),
        )

    def _function_roles(self, key: tuple[str, str, str]) -> list[set[Reader]]:
        """Return the roles of the inputs of a function of the file; none for one that calls itself."""
        if key not in self.function_roles:
            self.function_roles[key] = []
            function = self.functions[key]
            versions = {opset.domain: opset.version for opset in function.opset_import}
            inner = _Scan(versions, self.functions, self.tensors)
            inner.function_roles = self.function_roles
            inner.read(function.node)
            self.function_roles[key] = [inner.roles[name] for name in function.input]
            for name in inner.roles.keys() & {output for node in function.node for output in node.output}:
                self.roles[name] |= inner.roles[name]
        return self.function_roles[key]


def read_roles(model: Proto) -> Roles:
    """Return the roles of all tensors that an operator reads, or an output returns."""
    versions = {
        "" if opset.domain == "ai.onnx" else opset.domain: opset.version for opset in model.opset_import
    }
    functions = {(f.domain, f.name, getattr(f, "overload", "")): f for f in model.functions}
    tensors = {tensor.name: tensor for graph in all_graphs(model.graph) for tensor in graph.initializer}
    scan = _Scan(versions, functions, tensors | dict(_constants(model)))
    scan.read(model.graph.node)
    for graph in all_graphs(model.graph):
        for value in graph.output:
            scan.roles.setdefault(value.name, set())
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

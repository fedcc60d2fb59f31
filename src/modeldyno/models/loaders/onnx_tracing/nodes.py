"""An ONNX graph as plain values: nodes with decoded attributes, bodies, small constants.

Weights are not read: of an initialiser only shape and dtype are taken, unless it is a few numbers in the file
itself, which may be a shape, an axis or an index.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from numpy import ndarray

from modeldyno.models.loaders.onnx_tracing.tensors import (
    DTYPES,
    KNOWN_FLOATS,
    KNOWN_WHOLE,
    Proto,
    all_graphs,
    external_entries,
)
from modeldyno.models.static.fused_nodes import NOWHERE, SCOPES, parse_name_list, scope_of_node
from modeldyno.models.static.graph import bits_per_element

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ATTRIBUTE_ELEMENTS = 16
_MAX_DEPTH = 64
_FLOAT = re.compile(r"float(\d)(e.*)")
_FORMALS = {1: "f", 2: "i", 3: "s", 6: "floats", 7: "ints", 8: "strings"}
_TENSOR, _GRAPH = 4, 5
_FOLDING = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators into which exporters fold a batch norm; they then name its module instead of the operator's."""


@dataclass(frozen=True, slots=True, eq=False)
class GraphValue:
    """A value on an edge of the graph."""

    shape: tuple[int, ...] | None
    """None where it is unknown."""
    dtype: str
    storage: int = -1
    data: ndarray | None = None
    """Its elements where they are few and follow from constants and sizes alone."""
    folded: bool = False
    """Whether it belongs to shape arithmetic, which is no operator of the Graph."""
    items: tuple[GraphValue, ...] | None = None
    """The tensors of a sequence, where they are known."""
    sequence: bool = False

    @property
    def size(self) -> int:
        """Number of elements; 0 where the shape is unknown."""
        return 0 if self.shape is None else math.prod(self.shape)


Values = Sequence[GraphValue | None]
"""The inputs of a node; None for one that is left out."""


def value_at(values: Values, position: int) -> GraphValue | None:
    """Return an input; None if it is left out."""
    return values[position] if position < len(values) else None


def shape_at(values: Values, position: int) -> tuple[int, ...]:
    """Return the shape of an input.

    Raises:
        KeyError: it is left out, or its shape is unknown.
    """
    value = value_at(values, position)
    if value is None or value.shape is None:
        raise KeyError(position)
    return value.shape


@dataclass(frozen=True, slots=True, eq=False)
class OnnxNode:
    """A call of an operator."""

    proto: Proto
    """Without bodies; references to function attributes are resolved."""
    name: str
    kind: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    bodies: dict[str, Body]
    scope: str
    schema: Any
    """From onnx.defs, or None."""
    function: tuple[str, str, str] = ("", "", "")
    """Domain, name and overload, by which a function of the file is called."""
    constant: OnnxConstant | None = None
    """Value of a Constant node."""


@dataclass(frozen=True, slots=True, eq=False)
class OnnxConstant:
    """An initialiser, or the value of a Constant node."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    place: tuple[tuple[str, str], ...] = ()
    """Location of its external data."""
    data: ndarray | None = None
    read: bool = True
    """False for an initialiser that no node reads: a runtime drops it."""


@dataclass(slots=True, eq=False)
class Body:
    """A graph: the main one, a branch, a loop body, or a function of the file."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: list[OnnxNode] = field(default_factory=list)
    constants: list[OnnxConstant] = field(default_factory=list)
    types: dict[str, Proto] = field(default_factory=dict)
    """Declared type of a value, a TypeProto by name."""
    reads: frozenset[str] = frozenset()
    """Names that its nodes, those of the bodies within it, and its outputs use."""


@dataclass(frozen=True, slots=True, eq=False)
class _ReaderContext:
    """What is common to all nodes of a graph or a function."""

    versions: Mapping[str, int]
    function_attributes: Mapping[str, Proto] = field(default_factory=dict)
    """Attributes that a function was called with."""
    scope: str = ""
    classes: dict[str, str] = field(default_factory=dict)
    """Output: module path to class."""


Expand = Callable[[OnnxNode], Body]


def element_dtype(number: int) -> str:
    """Return the dtype name as `models.static.graph.bits_per_element` knows it; empty for an unknown one."""
    name, _ = DTYPES.get(number, ("", 0))
    return _FLOAT.sub(r"float\1_\2", name)


def read_main_body(model: Proto, classes: dict[str, str]) -> Body:
    """Read the graph of a model; `classes` is filled with module paths and the names of their classes."""
    return _body(model.graph, _ReaderContext(versions=_versions(model.opset_import), classes=classes))


def read_function(proto: Proto, node: OnnxNode, classes: dict[str, str]) -> Body:
    """Read a function of the file, as it is called by a node."""
    attributes = {a.name: a for a in proto.attribute_proto} | {a.name: a for a in node.proto.attribute}
    reader = _ReaderContext(
        versions=_versions(proto.opset_import),
        function_attributes=attributes,
        scope=node.scope,
        classes=classes,
    )
    body = Body(inputs=tuple(proto.input), outputs=tuple(proto.output))
    body.nodes = [_node(node_proto, reader, 0) for node_proto in proto.node]
    body.types = {value.name: value.type for value in getattr(proto, "value_info", ())}
    return body


def _versions(imports: Iterable[Proto]) -> dict[str, int]:
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in imports}


def _body(graph: Proto, reader: _ReaderContext, depth: int = 0) -> Body:
    if depth > _MAX_DEPTH:
        raise ValueError(f"bodies are nested more than {_MAX_DEPTH} deep")
    body = Body(
        inputs=tuple(value.name for value in graph.input), outputs=tuple(value.name for value in graph.output)
    )
    body.constants = [read_constant(tensor, tensor.name) for tensor in graph.initializer]
    body.constants += [_sparse(tensor) for tensor in graph.sparse_initializer]
    declared = (*graph.value_info, *graph.output, *graph.input)
    body.types = {value.name: value.type for value in declared}
    body.nodes = [_node(node, reader, depth) for node in graph.node]
    body.reads = frozenset(body.outputs).union(
        *(node.inputs for node in body.nodes),
        *(inner.reads for node in body.nodes for inner in node.bodies.values()),
    )
    body.constants = [
        constant if constant.name in body.reads else replace(constant, read=False)
        for constant in body.constants
    ]
    return body


def _node(proto: Proto, reader: _ReaderContext, depth: int) -> OnnxNode:
    import onnx  # optional

    domain = "" if proto.domain == "ai.onnx" else proto.domain
    resolved, attributes, bodies = onnx.NodeProto(), {}, {}
    resolved.op_type, resolved.domain = proto.op_type, domain
    resolved.input.extend(proto.input)
    resolved.output.extend(proto.output)
    constant_value = None
    for attribute in _attributes(proto, reader):
        if attribute.type == _GRAPH:
            bodies[attribute.name] = _body(attribute.g, reader, depth + 1)
            continue
        if attribute.type == _TENSOR and proto.op_type in {"Constant", "ConstantOfShape"}:
            constant_value = read_constant(attribute.t, "")
        if attribute.type != _TENSOR or proto.op_type != "Constant":
            resolved.attribute.append(attribute)
        decoded = _decoded_attribute(attribute)
        if decoded is not None:
            attributes[attribute.name] = decoded
    full_scope = ".".join(filter(None, (reader.scope, module_scope(proto, reader.classes))))
    return OnnxNode(
        proto=resolved,
        name=printable_name(proto.name),
        kind=printable_name(proto.op_type),
        domain=printable_name(domain),
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        attributes=attributes,
        bodies=bodies,
        scope=full_scope,
        schema=find_schema(proto.op_type, domain, reader.versions.get(domain)),
        function=(domain, proto.op_type, getattr(proto, "overload", "")),
        constant=constant_value,
    )


def _attributes(proto: Proto, reader: _ReaderContext) -> Iterator[Proto]:
    """Yield the attributes of a node; a reference to an attribute of its function is resolved."""
    for attribute in proto.attribute:
        if not attribute.ref_attr_name:
            yield attribute
        elif attribute.ref_attr_name in reader.function_attributes:
            resolved = type(attribute)()
            resolved.CopyFrom(reader.function_attributes[attribute.ref_attr_name])
            resolved.name = attribute.name
            yield resolved


def find_schema(kind: str, domain: str, version: int | None) -> Any:
    """Return the onnx.defs schema of an operator; None if it is unknown."""
    from onnx import defs  # optional

    try:
        if version is None:
            return defs.get_schema(kind, domain)
        return defs.get_schema(kind, version, domain)
    except (defs.SchemaError, TypeError):
        return None


# -- values ---------------------------------------------------------------------------------------------


def decoded_attributes(node: Proto) -> dict[str, Any]:
    """Return the attributes of a NodeProto that are numbers, texts, or short lists or tensors."""
    decoded = {attribute.name: _decoded_attribute(attribute) for attribute in node.attribute}
    return {name: value for name, value in decoded.items() if value is not None}


def few_integers(tensor: Proto) -> tuple[int, ...]:
    """Return the elements of a tensor of a few integers; empty for another one."""
    data = read_constant(tensor, "").data if math.prod(tensor.dims) <= _ATTRIBUTE_ELEMENTS else None
    return () if data is None or data.dtype.kind not in "iu" else tuple(data.ravel().tolist())


def _decoded_attribute(attribute: Proto) -> Any:
    """Decode an attribute; None unless it is a number, text, or a short list or tensor."""
    field = _FORMALS.get(attribute.type)
    if field is None:
        is_small = attribute.type == _TENSOR and math.prod(attribute.t.dims) <= _ATTRIBUTE_ELEMENTS
        data = read_constant(attribute.t, "").data if is_small else None
        return None if data is None else tuple(data.ravel().tolist())
    value = getattr(attribute, field)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, int | float):
        return value
    return tuple(item.decode(errors="replace") if isinstance(item, bytes) else item for item in value)


def read_constant(tensor: Proto, name: str) -> OnnxConstant:
    """Describe a tensor of the file, with its elements where they are few."""
    shape, dtype_name = tuple(tensor.dims), element_dtype(tensor.data_type)
    _check(shape)
    location = external_entries(tensor)
    size_bytes = (math.prod(shape) * bits_per_element(dtype_name) + 7) // 8 if dtype_name else 0
    data = None if location else _data(tensor, math.prod(shape), dtype_name)
    return OnnxConstant(name, shape, dtype_name, size_bytes, tuple(sorted(location.items())), data)


def _sparse(tensor: Proto) -> OnnxConstant:
    shape, dtype_name = tuple(tensor.dims), element_dtype(tensor.values.data_type)
    _check(shape)
    size_bytes = sum(read_constant(part, "").bytes for part in (tensor.values, tensor.indices))
    return OnnxConstant(tensor.values.name, shape, dtype_name, size_bytes)


def _check(shape: tuple[int, ...]) -> None:
    if any(length < 0 for length in shape):
        raise ValueError(f"a tensor has the shape {shape}")


def _data(tensor: Proto, size: int, kind: str) -> ndarray | None:
    from onnx import numpy_helper  # optional

    is_integer = kind.startswith(("int", "uint", "bool"))
    if size > (KNOWN_WHOLE if is_integer else KNOWN_FLOATS) or kind in {"", "string"}:
        return None
    try:
        array: ndarray = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, RuntimeError, KeyError, IndexError):
        return None
    return array


def module_scope(node: Proto, classes: dict[str, str]) -> str:
    """Return the module that a node came from; empty, the whole model, if unknown.

    Args:
        node: a NodeProto.
        classes: filled with module paths and the names of their classes.
    """
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    scopes = metadata.get(SCOPES, "")
    path, kinds = (
        parse_name_list(text_value)
        for text_value in (scopes, metadata.get("pkg.torch.onnx.class_hierarchy", ""))
    )
    if path[:1] != [NOWHERE]:
        for path_name, written in zip(path[:-1], kinds[:-1], strict=False):
            class_name = written.rpartition(".")[2]
            folded = path_name == path[-2] and class_name.startswith("BatchNorm") and node.op_type in _FOLDING
            classes.setdefault(path_name, f"{node.op_type}+{class_name}" if folded else class_name)
    return scope_of_node(printable_name(node.name), scopes) or ""


def owning_modules(model: Proto) -> dict[str, str]:
    """Map each initialiser and Constant, by name, to the module that it belongs to.

    Its own name decides, unless it names no module that reads weights: exporters rename a weight that they
    transposed, ``val_71`` or ``onnx::MatMul_812``. It then belongs to the first node that reads it.
    """
    given_names = [tensor.name for graph in all_graphs(model.graph) for tensor in graph.initializer]
    constants = (n for graph in all_graphs(model.graph) for n in graph.node if n.op_type == "Constant")
    given_names += [name for node in constants for name in node.output[:1]]
    names = {name for name in given_names if isinstance(name, str)}
    readers: dict[str, str] = {}
    for graph in all_graphs(model.graph):
        for node in graph.node:
            read_names = names.intersection(node.input)
            module = module_scope(node, {}) if read_names else ""
            for name in read_names if module else ():
                readers.setdefault(name, module)
    reading_modules = frozenset(readers.values())
    return {name: _owner(name, readers.get(name, ""), reading_modules) for name in names}


def _owner(name: str, reader: str, reading_modules: frozenset[str]) -> str:
    own_module = name.rpartition(".")[0]
    return own_module if own_module in reading_modules or not reader else reader


def printable_name(name: str | bytes) -> str:
    """Return a printable name; anything else, or more than a line, becomes empty."""
    return name if isinstance(name, str) and name.isprintable() else ""

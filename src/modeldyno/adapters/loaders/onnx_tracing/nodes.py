"""An ONNX graph as plain values: nodes with decoded attributes, bodies, constants that are small.

No weight is read: of an initialiser only shape and dtype are taken, unless it is a few numbers in the
file itself, which may be a shape, an axis or an index.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numpy import ndarray

from modeldyno.adapters.loaders.onnx_tracing.scopes import scope, text
from modeldyno.adapters.loaders.onnx_tracing.tensors import DTYPES, KNOWN_FLOATS, KNOWN_WHOLE, Proto, entries
from modeldyno.core.static.graph import bits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
_ATTRIBUTE_ELEMENTS = 16
_DEPTH = 64
_FLOAT = re.compile(r"float(\d)(e.*)")
_FORMALS = {1: "f", 2: "i", 3: "s", 6: "floats", 7: "ints", 8: "strings"}
_TENSOR, _GRAPH = 4, 5


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """What flows along an edge."""

    shape: tuple[int, ...] | None
    """None where it cannot be known."""
    dtype: str
    storage: int = -1
    data: ndarray | None = None
    """Its elements where they are few and follow from constants and sizes alone."""
    folded: bool = False
    """Whether it belongs to the arithmetic of shapes, which is no operator of the Graph."""
    items: tuple[Value, ...] | None = None
    """The tensors of a sequence, where they are known."""
    sequence: bool = False

    @property
    def size(self) -> int:
        """Elements; 0 where the shape is unknown."""
        return 0 if self.shape is None else math.prod(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A call of an operator."""

    proto: Proto
    """Without bodies; references to attributes of a function are resolved."""
    name: str
    kind: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    bodies: dict[str, Body]
    scope: str
    schema: Any
    """Of onnx.defs, or None."""
    function: tuple[str, str, str] = ("", "", "")
    """Domain, name and overload, by which a function of the file is called."""
    constant: Constant | None = None
    """What a Constant gives."""


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """An initialiser, or what a node Constant gives."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    place: tuple[tuple[str, str], ...] = ()
    """Where its external data lie."""
    data: ndarray | None = None


@dataclass(slots=True, eq=False)
class Body:
    """A graph: the whole, a branch, what a loop repeats, or a function of the file."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: list[Node] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    types: dict[str, Proto] = field(default_factory=dict)
    """What the file says of a value, a TypeProto by its name."""


@dataclass(frozen=True, slots=True, eq=False)
class _Reader:
    """What holds for all nodes of a graph or a function."""

    versions: Mapping[str, int]
    given: Mapping[str, Proto] = field(default_factory=dict)
    """Attributes that a function was called with."""
    scope: str = ""
    classes: dict[str, str] = field(default_factory=dict)
    """Filled: module path to class."""


Expand = Callable[[Node], Body]


def dtype(number: int) -> str:
    """Name an element type as `core.static.graph.bits` knows it; empty for an unknown one."""
    name, _ = DTYPES.get(number, ("", 0))
    return _FLOAT.sub(r"float\1_\2", name)


def whole(model: Proto, classes: dict[str, str]) -> Body:
    """Read the graph of a model; `classes` is filled with module paths and the names of their classes."""
    return _body(model.graph, _Reader(versions=_versions(model.opset_import), classes=classes))


def function(proto: Proto, node: Node, classes: dict[str, str]) -> Body:
    """Read a function of the file, as it is called by a node."""
    given = {a.name: a for a in proto.attribute_proto} | {a.name: a for a in node.proto.attribute}
    reader = _Reader(versions=_versions(proto.opset_import), given=given, scope=node.scope, classes=classes)
    body = Body(inputs=tuple(proto.input), outputs=tuple(proto.output))
    body.nodes = [_node(each, reader, 0) for each in proto.node]
    body.types = {value.name: value.type for value in getattr(proto, "value_info", ())}
    return body


def _versions(imports: Iterable[Proto]) -> dict[str, int]:
    return {"" if each.domain == "ai.onnx" else each.domain: each.version for each in imports}


def _body(graph: Proto, reader: _Reader, depth: int = 0) -> Body:
    if depth > _DEPTH:
        raise ValueError(f"bodies are nested more than {_DEPTH} deep")
    body = Body(
        inputs=tuple(value.name for value in graph.input), outputs=tuple(value.name for value in graph.output)
    )
    body.constants = [constant(tensor, tensor.name) for tensor in graph.initializer]
    body.constants += [_sparse(tensor) for tensor in graph.sparse_initializer]
    named = (*graph.value_info, *graph.output, *graph.input)
    body.types = {value.name: value.type for value in named}
    body.nodes = [_node(node, reader, depth) for node in graph.node]
    return body


def _node(proto: Proto, reader: _Reader, depth: int) -> Node:
    import onnx  # noqa: PLC0415 - optional

    domain = "" if proto.domain == "ai.onnx" else proto.domain
    resolved, attributes, bodies = onnx.NodeProto(), {}, {}
    resolved.op_type, resolved.domain = proto.op_type, domain
    resolved.input.extend(proto.input)
    resolved.output.extend(proto.output)
    found = None
    for given in _attributes(proto, reader):
        if given.type == _GRAPH:
            bodies[given.name] = _body(given.g, reader, depth + 1)
            continue
        if given.type == _TENSOR and proto.op_type in {"Constant", "ConstantOfShape"}:
            found = constant(given.t, "")
        if given.type != _TENSOR or proto.op_type != "Constant":
            resolved.attribute.append(given)
        plain = _plain(given)
        if plain is not None:
            attributes[given.name] = plain
    place = ".".join(filter(None, (reader.scope, scope(proto, reader.classes))))
    return Node(
        proto=resolved,
        name=text(proto.name),
        kind=text(proto.op_type),
        domain=text(domain),
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        attributes=attributes,
        bodies=bodies,
        scope=place,
        schema=schema(proto.op_type, domain, reader.versions.get(domain)),
        function=(domain, proto.op_type, getattr(proto, "overload", "")),
        constant=found,
    )


def _attributes(proto: Proto, reader: _Reader) -> Iterator[Proto]:
    """Give the attributes of a node; one that refers to an attribute of its function takes its value."""
    for given in proto.attribute:
        if not given.ref_attr_name:
            yield given
        elif given.ref_attr_name in reader.given:
            taken = type(given)()
            taken.CopyFrom(reader.given[given.ref_attr_name])
            taken.name = given.name
            yield taken


def schema(kind: str, domain: str, version: int | None) -> Any:
    """Give what onnx.defs says of an operator; None where it does not know it."""
    from onnx import defs  # noqa: PLC0415 - optional

    try:
        if version is None:
            return defs.get_schema(kind, domain)
        return defs.get_schema(kind, version, domain)
    except (defs.SchemaError, TypeError):
        return None


# -- values ---------------------------------------------------------------------------------------------


def _plain(given: Proto) -> Any:
    """Decode an attribute; None for what is no number, text, or short list or tensor of them."""
    kind = _FORMALS.get(given.type)
    if kind is None:
        small = given.type == _TENSOR and math.prod(given.t.dims) <= _ATTRIBUTE_ELEMENTS
        data = constant(given.t, "").data if small else None
        return None if data is None else tuple(data.ravel().tolist())
    value = getattr(given, kind)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, int | float):
        return value
    return tuple(item.decode(errors="replace") if isinstance(item, bytes) else item for item in value)


def constant(tensor: Proto, name: str) -> Constant:
    """Describe a tensor of the file, with its elements where they are few."""
    shape, kind = tuple(tensor.dims), dtype(tensor.data_type)
    _check(shape)
    place = entries(tensor)
    held = (math.prod(shape) * bits(kind) + 7) // 8 if kind else 0
    data = None if place else _data(tensor, math.prod(shape), kind)
    return Constant(name, shape, kind, held, tuple(sorted(place.items())), data)


def _sparse(tensor: Proto) -> Constant:
    shape, kind = tuple(tensor.dims), dtype(tensor.values.data_type)
    _check(shape)
    held = sum(constant(part, "").bytes for part in (tensor.values, tensor.indices))
    return Constant(tensor.values.name, shape, kind, held)


def _check(shape: tuple[int, ...]) -> None:
    if any(length < 0 for length in shape):
        raise ValueError(f"a tensor has the shape {shape}")


def _data(tensor: Proto, size: int, kind: str) -> ndarray | None:
    from onnx import numpy_helper  # noqa: PLC0415 - optional

    whole_ = kind.startswith(("int", "uint", "bool"))
    if size > (KNOWN_WHOLE if whole_ else KNOWN_FLOATS) or kind in {"", "string"}:
        return None
    try:
        array: ndarray = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, RuntimeError, KeyError, IndexError):
        return None
    return array

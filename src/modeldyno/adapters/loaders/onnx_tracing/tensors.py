"""Inside an ONNX file and beside it: element types, graphs within graphs, external data.

A file may come from anywhere, and say anything. External data must lie in the model's own directory: a
path that leads out of it is refused, never opened.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Proto = Any
"""A message of onnx, whose types are unknown here: the package is optional."""

DTYPES: dict[int, tuple[str, int]] = {
    1: ("float32", 32), 2: ("uint8", 8), 3: ("int8", 8), 4: ("uint16", 16), 5: ("int16", 16),
    6: ("int32", 32), 7: ("int64", 64), 8: ("string", 0), 9: ("bool", 8), 10: ("float16", 16),
    11: ("float64", 64), 12: ("uint32", 32), 13: ("uint64", 64), 14: ("complex64", 64),
    15: ("complex128", 128), 16: ("bfloat16", 16), 17: ("float8e4m3fn", 8), 18: ("float8e4m3fnuz", 8),
    19: ("float8e5m2", 8), 20: ("float8e5m2fnuz", 8), 21: ("uint4", 4), 22: ("int4", 4),
    23: ("float4e2m1", 4), 24: ("float8e8m0", 8), 25: ("uint2", 2), 26: ("int2", 2),
    27: ("float6e2m3", 6), 28: ("float6e3m2", 6),
}  # fmt: skip
"""TensorProto.DataType to name and bits of an element; several small elements share a byte."""

KNOWN_WHOLE, KNOWN_FLOATS = 1024, 16
"""Elements up to which constants are looked at: whole numbers and flags; other numbers."""

_PLACEHOLDER = re.compile(r"|\?+|-1|none|unk(nown)?|dynamic|\W+", re.IGNORECASE)
_SHOWN = 80
"""Characters of a name in an error."""


def element(number: int, what: str, path: Path) -> tuple[str, int]:
    """Give the name and the bits of an element type."""
    try:
        return DTYPES[number]
    except KeyError:
        raise RequestError(f"{path}: {what} has the unknown element type {number}.") from None


def check_text(path: Path, *names: str | bytes) -> None:
    """Refuse names that are no printable text; protobuf gives those that are not UTF-8 as bytes."""
    for name in names:
        if isinstance(name, bytes) or not name.isprintable():
            raise RequestError(f"{path} is damaged: the name {quoted(name)} in it is not text.")


def quoted(name: str | bytes) -> str:
    """Show a name out of a file, which may hold anything, within one line."""
    return repr(name[:_SHOWN]) + ("..." if len(name) > _SHOWN else "")


def names_nothing(symbol: str) -> bool:
    """Whether the name of a dimension only says that its size is free, so that two of it need not be equal.

    Paddle2ONNX writes ``?`` for each, others ``None`` or nothing at all.
    """
    return _PLACEHOLDER.fullmatch(symbol) is not None


def graphs(graph: Proto) -> Iterator[Proto]:
    """Give a graph and the bodies of its branches and loops."""
    yield graph
    yield from nested(graph.node)


def nested(nodes: Iterable[Proto]) -> Iterator[Proto]:
    """Give the bodies of branches and loops among nodes, and those within them."""
    for attribute in _attributes(nodes):
        for body in (attribute.g, *attribute.graphs):
            if body.node:
                yield from graphs(body)


def _attributes(nodes: Iterable[Proto]) -> Iterator[Proto]:
    for node in nodes:
        yield from node.attribute


# -- external data -------------------------------------------------------------------------------


def external_files(model: Proto, path: Path) -> dict[str, Path]:
    """Give location -> file of all external data, each checked to lie beside the model."""
    files: dict[str, Path] = {}
    for tensor in tensors(model):
        place = entries(tensor)
        if not place:
            continue
        check_text(path, *place, *place.values())
        location = place.get("location", "")
        if location not in files:
            files[location] = _beside(path, location)
        _check_extent(tensor, place, files[location], path)
    return files


def tensors(model: Proto) -> Iterator[Proto]:
    """Give every tensor in the file: initialisers and attributes, of subgraphs and functions too."""
    found = list(graphs(model.graph))
    for function in model.functions:
        for attribute in _attributes(function.node):
            for body in (attribute.g, *attribute.graphs):
                found.extend(graphs(body))
    for info in model.training_info:
        found.extend((*graphs(info.initialization), *graphs(info.algorithm)))
    for graph in found:
        yield from graph.initializer
        yield from _dense(graph.sparse_initializer)
    for nodes in (*(g.node for g in found), *(f.node for f in model.functions)):
        for attribute in _attributes(nodes):
            yield from (attribute.t, *attribute.tensors)
            yield from _dense((attribute.sparse_tensor, *attribute.sparse_tensors))


def _dense(sparse: Iterable[Proto]) -> Iterator[Proto]:
    for tensor in sparse:
        yield tensor.values
        yield tensor.indices


def entries(tensor: Proto) -> dict[str, str]:
    """Give where the values lie outside of the file; empty when they lie inside."""
    external = tensor.data_location == 1 or len(tensor.external_data) > 0
    return {"location": "", **{e.key: e.value for e in tensor.external_data}} if external else {}


def _beside(path: Path, location: str) -> Path:
    """Resolve a location without opening it; it must stay inside the model's directory."""
    refused = RequestError(
        f"{path} asks for external data at {quoted(location)}, outside of its own directory; "
        "such a path is not followed."
    )
    if not location or Path(location).is_absolute() or ".." in Path(location).parts or "\0" in location:
        raise refused
    file = (path.parent / location).resolve()
    # A cache may keep models as links into a directory of blobs: beside the model is there, too.
    homes = (path.parent.resolve(), path.resolve().parent)
    if not any(file.is_relative_to(home) for home in homes):
        raise refused
    if not file.is_file():
        raise RequestError(
            f"{path} keeps weights in {quoted(location)}, which is not there; put it beside the model."
        )
    return file


def _check_extent(tensor: Proto, place: dict[str, str], file: Path, path: Path) -> None:
    try:
        offset, length = int(place.get("offset", 0)), int(place.get("length", 0))
    except ValueError:
        offset = length = -1
    if min(offset, length) < 0:
        raise RequestError(
            f"{path} is damaged: {quoted(tensor.name)} has no valid place in its external data."
        )
    _, bits = element(tensor.data_type, f"tensor {quoted(tensor.name)}", path)
    needed = offset + max(length, (math.prod(tensor.dims) * bits + 7) // 8)
    if needed > file.stat().st_size:
        raise RequestError(
            f"{file} is truncated: {quoted(tensor.name)} of {path.name} needs {needed:,} bytes of it, "
            f"but it has {file.stat().st_size:,}."
        )

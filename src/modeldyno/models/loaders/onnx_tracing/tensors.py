"""Element types, nested graphs and external data of an ONNX file.

Files are untrusted. External data must lie in the model's own directory: a path that leads out of it is
rejected, never opened.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Proto = Any
"""A message of onnx; untyped, as the package is optional."""

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
"""Elements up to which constants are read: integers and flags; other numbers."""

_PLACEHOLDER_NAME = re.compile(r"|\?+|-1|none|unk(nown)?|dynamic|\W+", re.IGNORECASE)
_MAX_NAME = 80
"""Characters of a name shown in an error."""


def element_type(number: int, what: str, path: Path) -> tuple[str, int]:
    """Return the name and the bits of an element type."""
    try:
        return DTYPES[number]
    except KeyError:
        raise RequestError(f"{path}: {what} has the unknown element type {number}.") from None


def check_text(path: Path, *names: str | bytes) -> None:
    """Reject names that are not printable text; protobuf returns those that are not UTF-8 as bytes."""
    for name in names:
        if isinstance(name, bytes) or not name.isprintable():
            raise RequestError(f"{path} is damaged: the name {quote_name(name)} in it is not text.")


def quote_name(name: str | bytes) -> str:
    """Show a name from an untrusted file within one line."""
    return repr(name[:_MAX_NAME]) + ("..." if len(name) > _MAX_NAME else "")


def is_placeholder_name(symbol: str) -> bool:
    """Whether the name of a dimension is a placeholder, so that two dimensions with it need not be equal.

    Paddle2ONNX writes ``?`` for each, others ``None`` or nothing at all.
    """
    return _PLACEHOLDER_NAME.fullmatch(symbol) is not None


def all_graphs(graph: Proto) -> Iterator[Proto]:
    """Yield a graph and the bodies of its branches and loops."""
    yield graph
    yield from nested_graphs(graph.node)


def nested_graphs(nodes: Iterable[Proto]) -> Iterator[Proto]:
    """Yield the bodies of branches and loops among nodes, and those within them, each once."""
    waiting = [direct_bodies(nodes)]
    while waiting:
        body = next(waiting[-1], None)
        if body is None:
            waiting.pop()
        else:
            yield body
            waiting.append(direct_bodies(body.node))


def direct_bodies(nodes: Iterable[Proto]) -> Iterator[Proto]:
    """Yield the bodies of branches and loops among nodes, but not those within them."""
    for attribute in _attributes(nodes):
        for body in (attribute.g, *attribute.graphs):
            if body.node:
                yield body


def _attributes(nodes: Iterable[Proto]) -> Iterator[Proto]:
    for node in nodes:
        yield from node.attribute


# -- external data -------------------------------------------------------------------------------


def external_files(model: Proto, path: Path) -> dict[str, Path]:
    """Map location to file of all external data, each checked to lie in the model's directory."""
    files: dict[str, Path] = {}
    for tensor in all_tensors(model):
        location_entries = external_entries(tensor)
        if not location_entries:
            continue
        check_text(path, *location_entries, *location_entries.values())
        location = location_entries.get("location", "")
        if location not in files:
            files[location] = _external_file(path, location)
        _check_extent(tensor, location_entries, files[location], path)
    return files


def all_tensors(model: Proto) -> Iterator[Proto]:
    """Yield every tensor in the file: initialisers and attributes, of subgraphs and functions too."""
    model_graphs = list(all_graphs(model.graph))
    for function in model.functions:
        for attribute in _attributes(function.node):
            for body in (attribute.g, *attribute.graphs):
                model_graphs.extend(all_graphs(body))
    for info in model.training_info:
        model_graphs.extend((*all_graphs(info.initialization), *all_graphs(info.algorithm)))
    for graph in model_graphs:
        yield from graph.initializer
        yield from _dense_parts(graph.sparse_initializer)
    for nodes in (*(g.node for g in model_graphs), *(f.node for f in model.functions)):
        for attribute in _attributes(nodes):
            yield from (attribute.t, *attribute.tensors)
            yield from _dense_parts((attribute.sparse_tensor, *attribute.sparse_tensors))


def _dense_parts(sparse: Iterable[Proto]) -> Iterator[Proto]:
    for tensor in sparse:
        yield tensor.values
        yield tensor.indices


def external_entries(tensor: Proto) -> dict[str, str]:
    """Return the location of values outside the file; empty if they are inside."""
    external = tensor.data_location == 1 or len(tensor.external_data) > 0
    return {"location": "", **{e.key: e.value for e in tensor.external_data}} if external else {}


def _external_file(path: Path, location: str) -> Path:
    """Resolve a location without opening it; it must stay inside the model's directory."""
    outside_error = RequestError(
        f"{path} asks for external data at {quote_name(location)}, outside its own directory; "
        "such a path is not followed."
    )
    if not location or Path(location).is_absolute() or ".." in Path(location).parts or "\0" in location:
        raise outside_error
    file = (path.parent / location).resolve()
    # A cache may store models as links into a directory of blobs; the link target's directory counts too.
    directories = (path.parent.resolve(), path.resolve().parent)
    if not any(file.is_relative_to(directory) for directory in directories):
        raise outside_error
    if not file.is_file():
        raise RequestError(
            f"{path} keeps weights in {quote_name(location)}, which is missing; put it next to the model."
        )
    return file


def _check_extent(tensor: Proto, location_entries: dict[str, str], file: Path, path: Path) -> None:
    try:
        offset, length = int(location_entries.get("offset", 0)), int(location_entries.get("length", 0))
    except ValueError:
        offset = length = -1
    if min(offset, length) < 0:
        raise RequestError(
            f"{path} is damaged: {quote_name(tensor.name)} has no valid range in its external data."
        )
    _, bits = element_type(tensor.data_type, f"tensor {quote_name(tensor.name)}", path)
    needed = offset + max(length, (math.prod(tensor.dims) * bits + 7) // 8)
    if needed > file.stat().st_size:
        raise RequestError(
            f"{file} is truncated: {quote_name(tensor.name)} of {path.name} needs {needed:,} bytes of it, "
            f"but it has {file.stat().st_size:,}."
        )

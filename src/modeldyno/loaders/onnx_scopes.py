"""The modules that an ONNX graph came from, as far as its exporter told."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from modeldyno.loaders.onnx_data import graphs

if TYPE_CHECKING:
    from modeldyno.loaders.onnx_data import Proto

_LONGEST = 4096
"""Characters of metadata that are read."""
_NOWHERE = "_empty_nn_module_stack_from_metadata_hook"
"""What the dynamo exporter writes where no module is at work."""


def scope(node: Proto, classes: dict[str, str]) -> str:
    """Find the module that a node came from: told by the dynamo exporter, or in the path of its name.

    The TorchScript exporter writes ``/encoder/layer.0/output/MatMul_1``; ONNX Runtime appends what it fused
    it by, such as ``/MatMulScaleFusion/``.

    Args:
        node: a NodeProto.
        classes: filled with module paths and the names of their classes.
    """
    told = {entry.key: entry.value for entry in node.metadata_props}
    path = _list(told.get("pkg.torch.onnx.name_scopes", ""))
    if path[:1] == [_NOWHERE]:
        return ""
    if not path:
        parts = [part for part in text(node.name).split("/") if part]
        while parts and parts[-1].endswith("Fusion"):
            parts.pop()
        return ".".join(parts[:-1])
    kinds = _list(told.get("pkg.torch.onnx.class_hierarchy", ""))
    for place, kind in zip(path[:-1], kinds[:-1], strict=False):
        classes.setdefault(place, kind.rpartition(".")[2])
    return path[-2] if len(path) > 1 else ""


def owners(model: Proto) -> dict[str, str]:
    """Give for each initialiser the module that it belongs to, by its name.

    Its own name tells, unless that names no module that reads weights: exporters rename a weight that they
    transposed, ``val_71`` or ``onnx::MatMul_812``. It then belongs to the first node that reads it.
    """
    given_names = (tensor.name for graph in graphs(model.graph) for tensor in graph.initializer)
    names = {name for name in given_names if isinstance(name, str)}
    readers: dict[str, str] = {}
    for graph in graphs(model.graph):
        for node in graph.node:
            given = names.intersection(node.input)
            place = scope(node, {}) if given else ""
            for name in given if place else ():
                readers.setdefault(name, place)
    known = frozenset(readers.values())
    return {name: _owner(name, readers.get(name, ""), known) for name in names}


def _owner(name: str, reader: str, known: frozenset[str]) -> str:
    own = name.rpartition(".")[0]
    return own if own in known or not reader else reader


def text(name: str | bytes) -> str:
    """Give a name as text; what is no text, or more than a line, is left out."""
    return name if isinstance(name, str) and name.isprintable() else ""


def _list(written: str) -> list[str]:
    """Read a list of names as Python writes it; empty where it is none."""
    if not written or len(written) > _LONGEST:
        return []
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(item) for item in value] if isinstance(value, list) else []

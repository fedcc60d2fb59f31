"""The modules that an ONNX graph came from, as far as its exporter told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.adapters.loaders.onnx_tracing.tensors import graphs
from modeldyno.core.static import node_scope

if TYPE_CHECKING:
    from modeldyno.adapters.loaders.onnx_tracing.tensors import Proto


def scope(node: Proto, classes: dict[str, str]) -> str:
    """Find the module that a node came from; the whole where nothing tells.

    Args:
        node: a NodeProto.
        classes: filled with module paths and the names of their classes.
    """
    told = {entry.key: entry.value for entry in node.metadata_props}
    scopes = told.get(node_scope.SCOPES, "")
    path, kinds = (
        node_scope.listed(each) for each in (scopes, told.get("pkg.torch.onnx.class_hierarchy", ""))
    )
    if path[:1] != [node_scope.NOWHERE]:
        for place, kind in zip(path[:-1], kinds[:-1], strict=False):
            classes.setdefault(place, kind.rpartition(".")[2])
    return node_scope.of_node(text(node.name), scopes) or ""


def owners(model: Proto) -> dict[str, str]:
    """Give for each initialiser and each Constant the module that it belongs to, by its name.

    Its own name tells, unless that names no module that reads weights: exporters rename a weight that they
    transposed, ``val_71`` or ``onnx::MatMul_812``. It then belongs to the first node that reads it.
    """
    given_names = [tensor.name for graph in graphs(model.graph) for tensor in graph.initializer]
    constants = (n for graph in graphs(model.graph) for n in graph.node if n.op_type == "Constant")
    given_names += [name for node in constants for name in node.output[:1]]
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

"""Module scopes of an ONNX graph, as far as the exporter recorded them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.adapters.loaders.onnx_tracing.tensors import all_graphs
from modeldyno.core.static import node_scope

if TYPE_CHECKING:
    from modeldyno.adapters.loaders.onnx_tracing.tensors import Proto


def module_scope(node: Proto, classes: dict[str, str]) -> str:
    """Return the module that a node came from; empty, the whole model, if unknown.

    Args:
        node: a NodeProto.
        classes: filled with module paths and the names of their classes.
    """
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    scopes = metadata.get(node_scope.SCOPES, "")
    path, kinds = (
        node_scope.parse_name_list(text_value)
        for text_value in (scopes, metadata.get("pkg.torch.onnx.class_hierarchy", ""))
    )
    if path[:1] != [node_scope.NOWHERE]:
        for path_name, written in zip(path[:-1], kinds[:-1], strict=False):
            class_name = written.rpartition(".")[2]
            folded = path_name == path[-2] and class_name.startswith("BatchNorm") and node.op_type in _FOLDING
            classes.setdefault(path_name, f"{node.op_type}+{class_name}" if folded else class_name)
    return node_scope.scope_of_node(printable_name(node.name), scopes) or ""


_FOLDING = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators into which exporters fold a batch norm; they then name its module instead of the operator's."""


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

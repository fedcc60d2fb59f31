"""``onnx-fp16``: an ONNX file in half precision, converted by ONNX Runtime; it loses precision."""

from __future__ import annotations

import re
import tempfile
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

from modeldyno.conversion.converters.onnx_float_file import SOURCES, float_file, keep_scopes
from modeldyno.conversion.interface import ConvertedFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from modeldyno.conversion.interface import ConversionSource

sources = SOURCES
file = "model.onnx"
loader = "onnx"
backend = "onnxruntime"
lossy = True

_QUANTISED = re.compile("uantize|^Q[A-Z]|Integer|NBits|Bnb4")
"""Operators whose scales stay float32: most of them take no others."""


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Make weights and operators float16 where they can be; inputs and outputs keep their types."""
    import onnx  # optional, and heavy
    import onnxruntime  # as above
    from onnxruntime.transformers.float16 import (  # as above
        DEFAULT_OP_BLOCK_LIST,
        convert_float_to_float16,
    )

    with tempfile.TemporaryDirectory(prefix="modeldyno-fp16-") as folder:
        floats, converters = float_file(source, folder, opset)
        model = onnx.load(str(floats))
        nodes = (node for graph in _graphs(model.graph) for node in graph.node)
        quantised = {node.op_type for node in nodes if _QUANTISED.search(node.op_type)}
        kept = [*DEFAULT_OP_BLOCK_LIST, *sorted(quantised)]
        half = convert_float_to_float16(model, keep_io_types=True, op_block_list=kept)
        _place_casts(half.graph)
        _sort_nodes(half.graph)
        onnx.save(half, str(path))
        keep_scopes(floats, path)
    return ConvertedFile(converter=", ".join((*converters, f"onnxruntime {onnxruntime.__version__}")))


def _place_casts(graph: Any) -> None:
    """Move the casts of values of a body from the main graph, where the new ones are, to that body."""
    makers = {
        name: body
        for body in list(_graphs(graph))[1:]
        for name in (
            *(output for node in body.node for output in node.output),
            *(constant.name for constant in body.initializer),
            *(value.name for value in body.input),
        )
    }
    moved = True
    while moved:  # a cast may read what another makes
        moved = False
        for node in [node for node in graph.node if node.op_type == "Cast" and node.input[0] in makers]:
            body = makers[node.output[0]] = makers[node.input[0]]
            graph.node.remove(node)
            body.node.append(node)
            moved = True


def _graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph and the bodies within, outer ones first."""
    yield graph
    for node in graph.node:
        for body in _bodies(node):
            yield from _graphs(body)


def _sort_nodes(graph: Any) -> None:
    """Put each node after those whose values it reads, in its body too: the new casts are at the end."""
    nodes = list(graph.node)
    makers = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    order = TopologicalSorter(
        {
            number: {makers[name] for name in _names_read(node) if name in makers}
            for number, node in enumerate(nodes)
        }
    )
    placed = [nodes[number] for number in order.static_order()]
    del graph.node[:]
    graph.node.extend(placed)
    for body in (body for node in graph.node for body in _bodies(node)):
        _sort_nodes(body)


def _names_read(node: Any) -> Iterator[str]:
    yield from node.input
    for body in _bodies(node):
        yield from (output.name for output in body.output)
        for inner in body.node:
            yield from _names_read(inner)


def _bodies(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        yield from (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs)

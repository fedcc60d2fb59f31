"""Costs of the fused nodes of a runtime, from the original operators that each of them replaces.

The module that a node of an exported graph came from is known by its metadata or its name.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING

from modeldyno.models.static.graph import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from modeldyno.models.flops import CountedOp
    from modeldyno.models.static.graph import Graph, Op


NodeNames = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A node: its name, the names of its inputs, and of its outputs."""
SUFFIXES = ("_nchwc",)
"""What a runtime appends to the name of an output whose layout it changed."""


def find_original_operators(
    original: Iterable[NodeNames], rewritten: Iterable[NodeNames]
) -> dict[str, tuple[str, ...]]:
    """Return for each executed node its original operators, by the name of their first output, in order.

    An operator belongs to the node that has its output, or is named after it. An operator whose output no
    node has belongs to the node of its consumer.
    """
    nodes = list(original)
    original_outputs = {output for _, _, outputs in nodes for output in outputs}
    new = list(rewritten)
    owner = {output: name for name, _, outputs in new for output in outputs if output in original_outputs}
    # The node with the other layout does the work; the one that converts the result back only moves it.
    owner |= {
        plain: name
        for name, _, _ in new
        if (plain := _without_suffix(name)) != name and plain in original_outputs
    }
    operators: dict[str, list[str]] = {}
    consumers: dict[str, str] = {}
    for _, inputs, outputs in reversed(nodes):
        candidates = (
            *(owner.get(output) for output in outputs),
            *(consumers.get(output) for output in outputs),
        )
        name = next((candidate for candidate in candidates if candidate is not None), None)
        if name is not None and outputs:
            operators.setdefault(name, []).append(outputs[0])
            consumers.update((operand, name) for operand in inputs if operand not in consumers)
    return {name: tuple(reversed(outputs)) for name, outputs in operators.items()}


def _without_suffix(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)


def sum_costs_by_name(graph: Graph, counted: Sequence[CountedOp]) -> dict[str, dict[str, float]]:
    """Return the costs of the operators of each name: metric to number."""
    by_name: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for op, cost in zip(graph.ops, counted, strict=True):
        if op.name:
            sums = by_name[op.name]
            sums["macs"] += cost.macs
            sums["flops"] += 2 * cost.macs + cost.elementwise
            sums["bytes_read"] += cost.read
            sums["bytes_written"] += cost.written
            sums["weight_bytes"] += _weight_bytes(graph, op)
    return {name: dict(sums) for name, sums in by_name.items()}


def _weight_bytes(graph: Graph, op: Op) -> int:
    weights = {
        tensor.storage
        for tensor in op.tensors()
        if tensor.storage >= 0 and graph.storages[tensor.storage].role is Role.WEIGHT
    }
    return sum(graph.storages[storage].bytes for storage in weights)


def sum_costs_by_node(
    nodes: Mapping[str, Sequence[str]], operator_costs: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Sum the costs of nodes over their operators; a node with an unknown operator is left out."""
    node_costs: dict[str, dict[str, float]] = {}
    for path, names in nodes.items():
        if names and all(name in operator_costs for name in names):
            metrics = dict.fromkeys(metric for name in names for metric in operator_costs[name])
            node_costs[path] = {
                metric: sum(operator_costs[name].get(metric, 0.0) for name in names) for metric in metrics
            }
    return node_costs


SCOPES = "pkg.torch.onnx.name_scopes"
"""Metadata in which torch's exporter writes the paths of the modules around a node."""
NOWHERE = "_empty_nn_module_stack_from_metadata_hook"
"""What it writes there outside of any module."""
_LONGEST = 4096
"""Most characters of metadata that are parsed."""


def scope_of_node(name: str, scopes: str = "") -> str | None:
    """Return the path of a node's module by its metadata or its name; None where neither has it.

    The older exporter of torch names a node ``/encoder/layer.0/output/MatMul_1``. ONNX Runtime appends the
    fusion that made a node, such as ``/MatMulScaleFusion/``, or prepends ``fused`` and a space.
    """
    path = parse_name_list(scopes)
    if path:
        return path[-2] if len(path) > 1 and path[0] != NOWHERE else ""
    parts = [part for part in name.split("/") if part]
    while parts and parts[-1].rstrip("_0123456789").endswith("Fusion"):
        parts.pop()
    is_path = " " not in name and (len(parts) > 1 or name.startswith("/"))
    return ".".join(parts[:-1]) if parts and is_path else None


def parse_name_list(written: str) -> list[str]:
    """Parse a Python literal list of names; empty if it is not one."""
    if not written or len(written) > _LONGEST:
        return []
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(item) for item in value] if isinstance(value, list) else []

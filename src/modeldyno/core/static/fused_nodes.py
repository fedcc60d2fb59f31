"""Costs of the fused nodes of a runtime, from the original operators that each of them replaces."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from modeldyno.core.static.graph import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from modeldyno.core.static.flops import CountedOp
    from modeldyno.core.static.graph import Graph, Op

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

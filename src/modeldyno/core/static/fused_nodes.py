"""What nodes of a runtime cost that rewrote a network: each by the operators of the network that it does."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from modeldyno.core.static.graph import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from modeldyno.core.static.flops import Counted
    from modeldyno.core.static.graph import Graph, Op

Made = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A node: what it is called, the names of what it takes, and of what it gives."""
SUFFIXES = ("_nchwc",)
"""What a runtime appends to the name of what a node gave, for that of a node with another layout."""


def origins(original: Iterable[Made], rewritten: Iterable[Made]) -> dict[str, tuple[str, ...]]:
    """Give for each node as it runs what its operators give, by the names in the file, in their order.

    An operator belongs to the node that gives what it gave, or is called by that. What no node gives is
    within the one that does what takes it.
    """
    nodes = list(original)
    known = {output for _, _, given in nodes for output in given}
    new = list(rewritten)
    owner = {output: name for name, _, given in new for output in given if output in known}
    # What another layout was made for does the work; who brings the result back only moves it.
    owner |= {bare: name for name, _, _ in new if (bare := _bare(name)) != name and bare in known}
    found: dict[str, list[str]] = {}
    takers: dict[str, str] = {}
    for _, taken, given in reversed(nodes):
        told = (*(owner.get(output) for output in given), *(takers.get(output) for output in given))
        name = next((each for each in told if each is not None), None)
        if name is not None and given:
            found.setdefault(name, []).append(given[0])
            takers.update((each, name) for each in taken if each not in takers)
    return {name: tuple(reversed(given)) for name, given in found.items()}


def _bare(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)


def costs(graph: Graph, counted: Sequence[Counted]) -> dict[str, dict[str, float]]:
    """Give what the operators of each name cost: metric to number."""
    found: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for op, cost in zip(graph.ops, counted, strict=True):
        if op.name:
            sums = found[op.name]
            sums["macs"] += cost.macs
            sums["flops"] += 2 * cost.macs + cost.elementwise
            sums["bytes_read"] += cost.read
            sums["bytes_written"] += cost.written
            sums["weight_bytes"] += _weights(graph, op)
    return {name: dict(sums) for name, sums in found.items()}


def _weights(graph: Graph, op: Op) -> int:
    weights = {
        tensor.storage
        for tensor in op.tensors()
        if tensor.storage >= 0 and graph.storages[tensor.storage].role is Role.WEIGHT
    }
    return sum(graph.storages[storage].bytes for storage in weights)


def joined(
    nodes: Mapping[str, Sequence[str]], known: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Add up what nodes cost by their operators; one of which some are not known is left out."""
    found: dict[str, dict[str, float]] = {}
    for path, names in nodes.items():
        if names and all(name in known for name in names):
            metrics = dict.fromkeys(metric for name in names for metric in known[name])
            found[path] = {metric: sum(known[name].get(metric, 0.0) for name in names) for metric in metrics}
    return found

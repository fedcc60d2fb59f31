"""Which module's output goes into which other, followed through a graph in its order."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from modeldyno.core.result.static_data import ModuleJoin, ModuleLink
from modeldyno.core.static.graph import Phase, Role
from modeldyno.core.static.totals import parent_scope

if TYPE_CHECKING:
    from modeldyno.core.static.graph import Graph, Op, Tensor

_MOST = 4000
"""Links and joins of a graph that are kept; of a larger one, none are."""
_Key: TypeAlias = "tuple[int, tuple[int, ...], int]"


def flow_between_modules(graph: Graph) -> tuple[tuple[ModuleLink, ...], tuple[ModuleJoin, ...]]:
    """Return the links between the modules of a forward pass, and the joins; none if they are too many.

    An operator counts as the module whose code calls it. Code of a module that has others in it is followed
    through, and is a join where it brings several of their outputs together, as a residual connection does.
    """
    holders = {parent_scope(path) for path in graph.modules if path}
    made: dict[_Key, frozenset[str]] = {}
    latest: dict[int, frozenset[str]] = {
        at: frozenset({""}) for at, storage in enumerate(graph.storages) if storage.role == Role.INPUT
    }
    links: dict[ModuleLink, None] = {}
    joins: list[ModuleJoin] = []

    def sources_of(tensor: Tensor) -> frozenset[str]:
        if tensor.storage < 0:
            return frozenset()
        return made.get(_key(tensor)) or latest.get(tensor.storage, frozenset())

    def maker_of(op: Op, sources: list[str]) -> frozenset[str]:
        if op.scope in graph.modules and op.scope not in holders:
            return frozenset({op.scope})
        if len(sources) < 2:  # noqa: PLR2004 - one source is followed through
            return frozenset(sources)
        join = ModuleJoin(name=f"join {len(joins) + 1}", scope=op.scope, kind=op.kind)
        joins.append(join)
        return frozenset({join.name})

    for op in graph.ops:
        if op.phase is not Phase.FORWARD:
            continue
        sources = list(dict.fromkeys(one for tensor in op.tensors() for one in sorted(sources_of(tensor))))
        maker = maker_of(op, sources)
        if maker != frozenset(sources):
            (target,) = maker
            links.update({ModuleLink(source=s, target=target): None for s in sources if s != target})
        for tensor in op.outputs:
            if tensor.storage >= 0:
                made[_key(tensor)] = latest[tensor.storage] = maker
        if len(links) + len(joins) > _MOST:
            return (), ()
    ends = (latest.get(at, frozenset()) for at, storage in enumerate(graph.storages) if storage.output)
    links.update({ModuleLink(source=s, target=""): None for found in ends for s in sorted(found) if s})
    return tuple(links), tuple(joins)


def _key(tensor: Tensor) -> _Key:
    return tensor.storage, tensor.shape, tensor.offset

"""Which module's output goes into which other, followed through a graph in its order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from modeldyno.core.result.static_data import ModuleJoin, ModuleLink
from modeldyno.core.static.graph import Phase, Role
from modeldyno.core.static.totals import parent_scope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.core.static.graph import Graph, Op, Tensor

_MOST = 4000
"""Links and joins of a graph that are kept; of a larger one, none are."""
_Key: TypeAlias = "tuple[int, tuple[int, ...], int]"


def flow_between_modules(graph: Graph) -> tuple[tuple[ModuleLink, ...], tuple[ModuleJoin, ...]]:
    """Return the links between the modules of a forward pass, and the joins; none if they are too many.

    An operator counts as the module whose code calls it. Code of a module that has others in it is followed
    through, and is a join where it brings several of their outputs together, as a residual connection does.
    """
    flow = _Flow(
        leaves=frozenset(graph.modules) - {parent_scope(path) for path in graph.modules if path},
        latest={at: ("",) for at, storage in enumerate(graph.storages) if storage.role == Role.INPUT},
    )
    for op in graph.ops:
        if op.phase is Phase.FORWARD:
            flow.follow(op)
        if len(flow.links) + len(flow.joins) > _MOST:
            return (), ()
    ends = (flow.latest.get(at, ()) for at, storage in enumerate(graph.storages) if storage.output)
    flow.link((source for sources in ends for source in sources if source), "")
    return tuple(flow.links), tuple(flow.joins)


@dataclass(slots=True, kw_only=True)
class _Flow:
    """What was followed so far: by whom each tensor was made, and what went where."""

    leaves: frozenset[str]
    """Modules with no others in them."""
    latest: dict[int, tuple[str, ...]]
    """Makers of what is in each storage."""
    made: dict[_Key, tuple[str, ...]] = field(default_factory=dict)
    """Makers of each tensor, which may be one of several views of a storage."""
    links: dict[ModuleLink, None] = field(default_factory=dict)
    joins: list[ModuleJoin] = field(default_factory=list)

    def follow(self, op: Op) -> None:
        """Follow an operator."""
        makers_by_input = (self.made.get(_key(t)) or self.latest.get(t.storage, ()) for t in op.tensors())
        sources = tuple(dict.fromkeys(source for makers in makers_by_input for source in makers))
        makers = self._makers(op, sources)
        if makers != sources:
            self.link(sources, makers[0])
        for tensor in op.outputs:
            if tensor.storage >= 0:
                self.made[_key(tensor)] = self.latest[tensor.storage] = makers

    def link(self, sources: Iterable[str], target: str) -> None:
        """Note that something goes from sources to a target."""
        self.links.update({ModuleLink(source=s, target=target): None for s in sources if s != target})

    def _makers(self, op: Op, sources: tuple[str, ...]) -> tuple[str, ...]:
        if op.scope in self.leaves:
            return (op.scope,)
        if len(sources) < 2:  # noqa: PLR2004 - one source is followed through
            return sources
        self.joins.append(ModuleJoin(name=f"join {len(self.joins) + 1}", scope=op.scope, kind=op.kind))
        return (self.joins[-1].name,)


def _key(tensor: Tensor) -> _Key:
    return tensor.storage, tensor.shape, tensor.offset

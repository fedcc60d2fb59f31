"""Liveness analysis: bytes held while each operator runs, and what is held at the peak.

A storage is live during operator k when ``born <= k`` and ``k < died``, or it never dies. One that was
there before (`born` is -1) is live from the first operator on. A storage takes the bytes requested, as with
torch's allocator on the CPU (c10/core/CPUAllocator.cpp); others round up to blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from modeldyno.core.result.static_data import MemoryItem
from modeldyno.core.static.graph import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.core.static.graph import Graph, Storage

EVERYTHING: frozenset[Role] = frozenset(Role)
WORKING: frozenset[Role] = frozenset({Role.ACTIVATION, Role.GRADIENT})
"""Memory that a call allocates, beyond what it is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPeak:
    """The peak memory of a graph."""

    bytes: int
    op: int
    """Index of the first operator at the peak; -1 in a graph without operators."""
    held: tuple[MemoryItem, ...]
    """The largest first; one for each module and role."""


def live_bytes_by_operator(graph: Graph, *, roles: frozenset[Role] = EVERYTHING) -> list[int]:
    """Return the bytes of those roles that are live during each operator."""
    spans = ((item.born, item.died, item.bytes) for item in graph.storages if item.role in roles)
    return sum_live_spans(spans, len(graph.ops))


def sum_live_spans(spans: Iterable[tuple[int, int | None, int]], length: int) -> list[int]:
    """Return the live bytes of (born, died, bytes) spans during the operators 0 to `length` - 1."""
    change = [0] * (length + 1)
    for born, died, size in spans:
        if died is None:
            change[max(born, 0)] += size
        elif died > born and died > 0:
            change[max(born, 0)] += size
            change[min(died, length)] -= size
    return list(accumulate(change))[:length]


def find_static_peak(graph: Graph, *, roles: frozenset[Role] = EVERYTHING) -> StaticPeak:
    """Find the operator at which most bytes of those roles are live, and what holds them."""
    live = live_bytes_by_operator(graph, roles=roles)
    op = live.index(max(live)) if live else -1
    held = _by_module_and_role(item for item in graph.storages if item.role in roles and _is_live(item, op))
    return StaticPeak(bytes=sum(item.bytes for item in held), op=op, held=held)


def _is_live(storage: Storage, op: int) -> bool:
    return storage.born <= op and (storage.died is None or op < storage.died)


def _by_module_and_role(storages: Iterable[Storage]) -> tuple[MemoryItem, ...]:
    sizes: dict[tuple[str, Role], int] = {}
    for storage in storages:
        key = storage.scope, storage.role
        sizes[key] = sizes.get(key, 0) + storage.bytes
    largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return tuple(MemoryItem(scope=scope, role=role.value, bytes=size) for (scope, role), size in largest)

"""How much memory is held while each operator runs, and what it holds at the peak.

A storage is live during operator k when ``born <= k`` and ``k < died``, or it never dies. One that was
there before (`born` is -1) is live from the first operator on.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from modeldyno.core.graph import Role
from modeldyno.core.outline import Held

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.core.graph import Graph, Storage

ALLOCATORS: dict[str, int] = {"cpu": 1, "cuda": 512}
"""Allocator to the block in bytes that it rounds each storage up to.

``cpu`` is torch's: its records hold what was asked for (c10/core/CPUAllocator.cpp). ``cuda`` is torch's
caching allocator, whose smallest block is 512 bytes (kMinBlockSize in c10/cuda/CUDACachingAllocator.cpp).
"""

EVERYTHING: frozenset[Role] = frozenset(Role)
WORKING: frozenset[Role] = frozenset({Role.ACTIVATION, Role.GRADIENT})
"""What a call makes, beyond what it is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The moment at which most is held."""

    bytes: int
    op: int
    """Index of the first operator during which it is; -1 in a graph that has none."""
    held: tuple[Held, ...]
    """The largest first; one for each module and role."""


def timeline(graph: Graph, *, roles: frozenset[Role] = EVERYTHING, block: int = 1) -> list[int]:
    """Give the bytes of those roles that are live during each operator."""
    spans = (
        (storage.born, storage.died, rounded(storage.bytes, block))
        for storage in graph.storages
        if storage.role in roles
    )
    return course(spans, len(graph.ops))


def course(spans: Iterable[tuple[int, int | None, int]], length: int) -> list[int]:
    """Add up (born, died, bytes) over the operators 0 to `length` - 1, by differences."""
    change = [0] * (length + 1)
    for born, died, size in spans:
        if died is None:
            change[max(born, 0)] += size
        elif died > born and died > 0:
            change[max(born, 0)] += size
            change[min(died, length)] -= size
    return list(accumulate(change))[:length]


def peak(graph: Graph, *, roles: frozenset[Role] = EVERYTHING, block: int = 1) -> Peak:
    """Find where most bytes of those roles are live, and whose they are."""
    live = timeline(graph, roles=roles, block=block)
    at = live.index(max(live)) if live else -1
    held = _held((item for item in graph.storages if item.role in roles and _lives(item, at)), block)
    return Peak(bytes=sum(item.bytes for item in held), op=at, held=held)


def rounded(size: int, block: int) -> int:
    """Round bytes up to whole blocks."""
    return -(-size // block) * block


def _lives(storage: Storage, op: int) -> bool:
    return storage.born <= op and (storage.died is None or op < storage.died)


def _held(storages: Iterable[Storage], block: int) -> tuple[Held, ...]:
    sizes: dict[tuple[str, Role], int] = {}
    for storage in storages:
        key = storage.scope, storage.role
        sizes[key] = sizes.get(key, 0) + rounded(storage.bytes, block)
    largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Held(scope=scope, role=role.value, bytes=size) for (scope, role), size in largest)

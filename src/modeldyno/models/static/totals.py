"""Total costs of a graph, those of each of its modules, and the bytes held while each operator runs.

A storage is live during operator k when ``born <= k`` and ``k < died``, or it never dies. One that was
there before (`born` is -1) is live from the first operator on. A storage takes the bytes requested, as with
torch's allocator on the CPU (c10/core/CPUAllocator.cpp); others round up to blocks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from modeldyno.base.result.static_data import MemoryItem, sum_memory_items
from modeldyno.models.flops import CountedOp, count_op
from modeldyno.models.static.graph import Graph, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from modeldyno.models.flops import Formula
    from modeldyno.models.static.graph import Storage


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
    held = sum_memory_items(
        MemoryItem(scope=item.scope, role=item.role, bytes=item.bytes)
        for item in graph.storages
        if item.role in roles and _is_live(item, op)
    )
    return StaticPeak(bytes=sum(item.bytes for item in held), op=op, held=held)


def _is_live(storage: Storage, op: int) -> bool:
    return storage.born <= op and (storage.died is None or op < storage.died)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditiveCost:
    """Additive costs of operators: of a module with its children, or of the whole."""

    macs: int = 0
    elementwise: int = 0
    skippable: int = 0
    """The part of `macs` that a causal kernel may skip."""
    bytes_read: int = 0
    bytes_written: int = 0
    calls: int = 0
    """Calls of operators."""
    counted_calls: int = 0
    """Calls that have a formula."""

    @property
    def flops(self) -> int:
        """All operations, 2 for each MAC."""
        return 2 * self.macs + self.elementwise

    @property
    def causal_macs(self) -> int:
        """MACs if causal attention skips masked pairs."""
        return self.macs - self.skippable

    @property
    def coverage(self) -> float:
        """Fraction of the calls that have a formula; 1 without calls."""
        return self.counted_calls / self.calls if self.calls else 1.0

    @property
    def arithmetic_intensity(self) -> float | None:
        """Operations per byte that the operators read or write; None where no byte moves."""
        traffic = self.bytes_read + self.bytes_written
        return self.flops / traffic if traffic else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals(AdditiveCost):
    """The cost and memory of one call of the whole model."""

    input_bytes: int = 0
    output_bytes: int = 0
    gradient_bytes: int = 0
    optimizer_bytes: int = 0
    moved: int = 0
    """Bytes that must move at least once, see `least_moved_bytes`."""
    activation_peak: int = 0
    """Peak bytes of activations and gradients together."""
    memory_peak: int = 0
    """Peak bytes of everything together."""


def sum_totals(graph: Graph, counted: Sequence[CountedOp]) -> Totals:
    """Sum the costs of the operators, given in their order, and the memory."""
    storages = graph.storages
    return Totals(
        macs=sum(cost.macs for cost in counted),
        elementwise=sum(cost.elementwise for cost in counted),
        skippable=sum(cost.skippable for cost in counted),
        bytes_read=sum(cost.read for cost in counted),
        bytes_written=sum(cost.written for cost in counted),
        calls=len(counted),
        counted_calls=sum(cost.known for cost in counted),
        input_bytes=_sum_bytes(storages, lambda item: item.role is Role.INPUT),
        output_bytes=_sum_bytes(storages, lambda item: item.output),
        gradient_bytes=_sum_bytes(storages, lambda item: item.role is Role.GRADIENT),
        optimizer_bytes=_sum_bytes(storages, lambda item: item.role is Role.STATE),
        moved=least_moved_bytes(graph, counted),
        activation_peak=peak_live_bytes(graph, WORKING),
        memory_peak=peak_live_bytes(graph, EVERYTHING),
    )


def peak_live_bytes(graph: Graph, roles: frozenset[Role]) -> int:
    """Return the peak of the live bytes of those roles."""
    if not graph.ops:
        return find_static_peak(graph, roles=roles).bytes
    return max(live_bytes_by_operator(graph, roles=roles))


def least_moved_bytes(graph: Graph, counted: Sequence[CountedOp]) -> int:
    """Return a lower bound on the bytes that one call must move, however its operators are fused.

    Of a storage that is there before the call, the most that any one operator reads: for an embedding only
    the rows looked up, for an unused weight nothing. Parts read by different operators are not summed, as
    they may overlap. What is returned is written once.
    """
    least_reads = (
        least_read_bytes(graph.storages[i].bytes, parts)
        for i, parts in reads_by_storage(graph, counted).items()
    )
    return sum(least_reads) + _sum_bytes(graph.storages, lambda item: item.output and item.born >= 0)


def least_read_bytes(size: int, parts: Iterable[ReadPart]) -> int:
    """Return a lower bound on the bytes of a storage that are read: the most that one operator reads."""
    return min(size, max(max(0, min(held, read)) for held, read in parts))


ReadPart = tuple[int, int]
"""Bytes of an operator's operands in one storage, and what remains for them of its bytes read if all its
other operands are read whole; it may be negative, as an operator need not read all of them."""


def reads_by_storage(graph: Graph, counted: Sequence[CountedOp]) -> dict[int, list[ReadPart]]:
    """Return for each storage from before the call what each operator reads of it."""
    parts_by_storage: defaultdict[int, list[ReadPart]] = defaultdict(list)
    for op, cost in zip(graph.ops, counted, strict=True):
        held: Counter[int] = Counter()
        for tensor in set(op.tensors()):
            held[tensor.storage] += tensor.bytes
        unheld = cost.read - held.total()
        for index, size in held.items():
            if index >= 0 and graph.storages[index].born < 0:
                parts_by_storage[index].append((size, size + unheld))
    return dict(parts_by_storage)


def cost_by_module(graph: Graph, counted: Sequence[CountedOp]) -> dict[str, AdditiveCost]:
    """Return the cost of each module and each of their parents, children included.

    An operator in a scope that the graph does not list as a module counts for the nearest listed parent.
    """
    scopes = _with_parents(graph.modules)
    sums = {scope: [0] * 7 for scope in scopes}
    nearest = {scope: scope for scope in scopes}
    for op, cost in zip(graph.ops, counted, strict=True):
        _add_row(sums[_nearest_listed(op.scope, nearest)], _cost_row(cost))
    for scope in sorted(scopes, key=_depth, reverse=True):
        if scope:
            _add_row(sums[parent_scope(scope)], sums[scope])
    return {scope: _cost_from_row(sums[scope]) for scope in scopes}


def parent_scope(scope: str) -> str:
    """Return the parent of a module: ``a.b`` for ``a.b.c``, ``""`` for ``a``."""
    return scope.rpartition(".")[0]


def _with_parents(modules: Iterable[str]) -> dict[str, None]:
    """Return modules and all their parents in their order, parents before children."""
    scopes: dict[str, None] = {"": None}
    for path in modules:
        dots = (at for at, character in enumerate(path) if character == ".")
        scopes.update(dict.fromkeys(path[:at] for at in dots))
        scopes[path] = None
    return scopes


def _nearest_listed(scope: str, listed: dict[str, str]) -> str:
    nearest = listed.get(scope)
    if nearest is None:
        nearest = listed[scope] = _nearest_listed(parent_scope(scope), listed)
    return nearest


def _depth(scope: str) -> int:
    return scope.count(".") + 1 if scope else 0


def _cost_row(cost: CountedOp) -> tuple[int, ...]:
    """Return the cost of an operator in the order of the fields of Cost."""
    return cost.macs, cost.elementwise, cost.skippable, cost.read, cost.written, 1, int(cost.known)


def _add_row(row: list[int], other: Sequence[int]) -> None:
    for at, value in enumerate(other):
        row[at] += value


def _cost_from_row(row: Sequence[int]) -> AdditiveCost:
    names = AdditiveCost.__dataclass_fields__
    return AdditiveCost(**dict(zip(names, row, strict=True)))


def _sum_bytes(storages: Iterable[Storage], holds: Callable[[Storage], bool]) -> int:
    return sum(item.bytes for item in storages if holds(item))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysedGraph:
    """A graph and the cost of each of its operators."""

    graph: Graph
    counts: tuple[CountedOp, ...]

    @classmethod
    def of(cls, graph: Graph, formulas: Mapping[str, Formula]) -> AnalysedGraph:
        """Count the cost of every operator."""
        return cls(graph=graph, counts=tuple(count_op(op, formulas) for op in graph.ops))

    def totals(self) -> Totals:
        """Return the totals of the graph."""
        return sum_totals(self.graph, self.counts)

"""What a network costs in all, and what each of its modules costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.core.static.graph import Role
from modeldyno.core.static.liveness import EVERYTHING, WORKING, peak, timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from modeldyno.core.static.flops import Counted
    from modeldyno.core.static.graph import Graph, Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What adds up over operators: of a module with its children, or of the whole."""

    macs: int = 0
    elementwise: int = 0
    skippable: int = 0
    """Those of `macs` that a causal kernel may skip."""
    bytes_read: int = 0
    bytes_written: int = 0
    calls: int = 0
    """Calls of operators."""
    counted_calls: int = 0
    """Those of them that have a formula."""

    @property
    def flops(self) -> int:
        """Operations in all, 2 for each MAC."""
        return 2 * self.macs + self.elementwise

    @property
    def causal_macs(self) -> int:
        """MACs when causal attention skips what is masked."""
        return self.macs - self.skippable

    @property
    def coverage(self) -> float:
        """Share of the calls that have a formula; 1 where nothing is called."""
        return self.counted_calls / self.calls if self.calls else 1.0

    @property
    def arithmetic_intensity(self) -> float | None:
        """Operations for each byte that the operators read or write; None where none moves."""
        traffic = self.bytes_read + self.bytes_written
        return self.flops / traffic if traffic else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals(Cost):
    """The whole of one call: its Cost and its memory."""

    input_bytes: int = 0
    output_bytes: int = 0
    gradient_bytes: int = 0
    optimizer_bytes: int = 0
    moved: int = 0
    """Bytes that must move at least once, see `moved`."""
    activation_peak: int = 0
    """Most bytes of activations and gradients together."""
    memory_peak: int = 0
    """Most bytes of everything together."""


def totals(graph: Graph, counted: Sequence[Counted]) -> Totals:
    """Add up the operators, counted in their order, and the memory."""
    held = graph.storages
    return Totals(
        macs=sum(cost.macs for cost in counted),
        elementwise=sum(cost.elementwise for cost in counted),
        skippable=sum(cost.skippable for cost in counted),
        bytes_read=sum(cost.read for cost in counted),
        bytes_written=sum(cost.written for cost in counted),
        calls=len(counted),
        counted_calls=sum(cost.known for cost in counted),
        input_bytes=_bytes(held, lambda item: item.role is Role.INPUT),
        output_bytes=_bytes(held, lambda item: item.output),
        gradient_bytes=_bytes(held, lambda item: item.role is Role.GRADIENT),
        optimizer_bytes=_bytes(held, lambda item: item.role is Role.STATE),
        moved=moved(graph, counted),
        activation_peak=highest(graph, WORKING),
        memory_peak=highest(graph, EVERYTHING),
    )


def highest(graph: Graph, roles: frozenset[Role]) -> int:
    """Give the most bytes of those roles that are live together."""
    if not graph.ops:
        return peak(graph, roles=roles).bytes
    return max(timeline(graph, roles=roles))


def moved(graph: Graph, counted: Sequence[Counted]) -> int:
    """Bound from below the bytes that one call must move, however its operators are fused.

    What is there before is read as far as that operator reads it that reads most of it: of an embedding
    only the rows that are looked up, of a table only the part that is taken, of a weight that is not used
    nothing. Parts that different operators take are not added up, for they may be the same. What is
    returned is written once.
    """
    given = (touched(graph.storages[i].bytes, parts) for i, parts in reads(graph, counted).items())
    return sum(given) + _bytes(graph.storages, lambda item: item.output and item.born >= 0)


def touched(size: int, parts: Iterable[Part]) -> int:
    """Give how many of a storage's bytes are read at least, by the operator that reads most of them."""
    return min(size, max(max(0, min(held, read)) for held, read in parts))


Part = tuple[int, int]
"""Bytes of an operator's operands in one storage, and what is left for them of all that it reads once its
other operands are taken to be read whole; it may be below 0, for an operator need not read all of them."""


def reads(graph: Graph, counted: Sequence[Counted]) -> dict[int, list[Part]]:
    """Give for each storage that was there before what each operator reads that is given a part of it."""
    found: defaultdict[int, list[Part]] = defaultdict(list)
    for op, cost in zip(graph.ops, counted, strict=True):
        held: Counter[int] = Counter()
        for tensor in set(op.tensors()):
            held[tensor.storage] += tensor.bytes
        rest = cost.read - held.total()
        for index, size in held.items():
            if index >= 0 and graph.storages[index].born < 0:
                found[index].append((size, size + rest))
    return dict(found)


def by_scope(graph: Graph, counted: Sequence[Counted]) -> dict[str, Cost]:
    """Give what each module costs with all its children, for every module and all their parents.

    What the graph does not list as a module counts for the nearest parent that it lists.
    """
    scopes = _with_parents(graph.modules)
    sums = {scope: [0] * 7 for scope in scopes}
    nearest = {scope: scope for scope in scopes}
    for op, cost in zip(graph.ops, counted, strict=True):
        _add(sums[_nearest(op.scope, nearest)], _row(cost))
    for scope in sorted(scopes, key=_depth, reverse=True):
        if scope:
            _add(sums[parent(scope)], sums[scope])
    return {scope: _cost(sums[scope]) for scope in scopes}


def parent(scope: str) -> str:
    """Give the module around another: ``a.b`` of ``a.b.c``, ``""`` of ``a``."""
    return scope.rpartition(".")[0]


def _with_parents(modules: Iterable[str]) -> dict[str, None]:
    """List modules and all their parents in their order, parents before children."""
    found: dict[str, None] = {"": None}
    for path in modules:
        dots = (at for at, character in enumerate(path) if character == ".")
        found.update(dict.fromkeys(path[:at] for at in dots))
        found[path] = None
    return found


def _nearest(scope: str, known: dict[str, str]) -> str:
    found = known.get(scope)
    if found is None:
        found = known[scope] = _nearest(parent(scope), known)
    return found


def _depth(scope: str) -> int:
    return scope.count(".") + 1 if scope else 0


def _row(cost: Counted) -> tuple[int, ...]:
    """Write what an operator costs in the order of the fields of Cost."""
    return cost.macs, cost.elementwise, cost.skippable, cost.read, cost.written, 1, int(cost.known)


def _add(row: list[int], other: Sequence[int]) -> None:
    for at, value in enumerate(other):
        row[at] += value


def _cost(row: Sequence[int]) -> Cost:
    names = Cost.__dataclass_fields__
    return Cost(**dict(zip(names, row, strict=True)))


def _bytes(storages: Iterable[Storage], wanted: Callable[[Storage], bool]) -> int:
    return sum(item.bytes for item in storages if wanted(item))

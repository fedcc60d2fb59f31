"""Analysis of the allocations of a call: the peak, what is held there, the memory over time, leaks.

Pure: a backend records what its allocator did during a call, and everything else is computed from that
record. Bytes are those that the allocator counts: requested bytes on the CPU, whole blocks on a device. Times
are seconds from the beginning of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Measurement, observed_number, pack
from modeldyno.base.result.static_data import MemoryItem, sum_memory_items
from modeldyno.base.result.trace_data import Allocation, MemoryTimeline, TraceReport
from modeldyno.base.stats.units import BYTES, format_quantity
from modeldyno.engine.trace.memory_category import GIVEN, Category


@dataclass(frozen=True, slots=True)
class AllocationEvent:
    """An allocation or a deallocation. Positional arguments, as there are thousands of them."""

    time: float
    address: int
    bytes: int
    """Negative for a deallocation."""
    scope: str = ""
    """The module that runs; in the backward pass the one whose gradient is computed."""
    operator: int = 0
    """Number of the operator call during which it happens; 0 outside of any."""
    category: Category | None = None
    """What it is used for, where that is known at once."""
    reserved: int = 0
    """Bytes that the allocator has reserved on the device after it; 0 where it keeps no reserve."""
    allocated: int = 0
    """Bytes of the reserve that are in use."""
    kind: str = ""
    """Name of that operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CategorizedMemory:
    """The category of the memory at some addresses, as found at one moment."""

    time: float
    category: Category
    addresses: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRecord:
    """What the allocator did during one call, until everything that the call returned was freed."""

    events: tuple[AllocationEvent, ...]
    """In the order in which they happened."""
    seconds: float
    before: tuple[MemoryItem, ...] = ()
    """What was there before and stays: weights, inputs, optimiser state."""
    stages: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Part of the call, such as ``forward``, to its begin and end."""
    named: tuple[CategorizedMemory, ...] = ()


AllocationRecorder = AbstractContextManager[Callable[[], AllocationRecord]]
"""A context manager that yields a callable, which makes one call and returns what the allocator did."""


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """Memory from its allocation to its deallocation, by the indices of these events."""

    bytes: int
    begin: int
    end: int | None
    """None where the call does not free it."""
    scope: str
    category: Category


def pair_memory_blocks(call: AllocationRecord) -> tuple[MemoryBlock, ...]:
    """Pair allocations with deallocations; memory from before the call is left out."""
    result: list[MemoryBlock] = []
    live: dict[int, tuple[int, AllocationEvent]] = {}
    categories: dict[int, Category] = {}
    pending = sorted(call.named, key=lambda named: named.time)
    for index, event in enumerate(call.events):
        while pending and pending[0].time <= event.time:
            categories |= _categories_of(pending.pop(0), live)
        if event.bytes > 0:
            live[event.address] = index, event
        elif (allocation := live.pop(event.address, None)) is not None:
            result.append(_make_block(allocation, categories, index, event))
    for named in pending:
        categories |= _categories_of(named, live)
    result += [_make_block(allocation, categories, None, None) for allocation in live.values()]
    return tuple(sorted(result, key=lambda block: block.begin))


def _categories_of(
    named: CategorizedMemory, live: dict[int, tuple[int, AllocationEvent]]
) -> dict[int, Category]:
    """Return the categories of the live blocks at those addresses, by the index of their event."""
    return {live[address][0]: named.category for address in named.addresses if address in live}


def _make_block(
    allocation: tuple[int, AllocationEvent],
    categories: dict[int, Category],
    end: int | None,
    deallocation: AllocationEvent | None,
) -> MemoryBlock:
    begin, event = allocation
    same_operator = deallocation is not None and event.operator == deallocation.operator != 0
    default = Category.WORKSPACE if same_operator else event.category or Category.ACTIVATIONS
    category = event.category if event.category in GIVEN else categories.get(begin, default)
    return MemoryBlock(event.bytes, begin, end, event.scope, category)


# --- the peak ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedPeak:
    """The peak memory of a call."""

    bytes: int
    """Beyond what the call is given."""
    scope: str = ""
    """The module that runs."""
    held: tuple[MemoryItem, ...] = ()
    """The largest first, including what was there before."""
    stages: dict[str, int] = field(default_factory=dict)
    """Most bytes during each stage."""
    fragmentation: float | None = None
    """Unused fraction of the allocator's reserve; None where it keeps none."""


def find_allocated_peak(call: AllocationRecord) -> AllocatedPeak:
    """Find the peak memory of a call, and what is held there."""
    own = [block for block in pair_memory_blocks(call) if block.category not in GIVEN]
    levels = _bytes_over_time(own, len(call.events))
    most = max(levels, default=0)
    if not most:
        return AllocatedPeak(
            bytes=0, held=sum_memory_items(call.before), stages=dict.fromkeys(call.stages, 0)
        )
    index = levels.index(most)
    held = [
        MemoryItem(scope=block.scope, role=block.category, bytes=block.bytes)
        for block in own
        if block.begin <= index and (block.end is None or index < block.end)
    ]
    event = call.events[index]
    return AllocatedPeak(
        bytes=most,
        scope=event.scope,
        held=sum_memory_items((*call.before, *held)),
        stages={name: _most_between(call, levels, *span) for name, span in call.stages.items()},
        fragmentation=1 - event.allocated / event.reserved if event.reserved else None,
    )


def _bytes_over_time(memory_blocks: Iterable[MemoryBlock], length: int) -> list[int]:
    """Return the bytes in use after each event."""
    change = [0] * (length + 1)
    for block in memory_blocks:
        change[block.begin] += block.bytes
        change[length if block.end is None else block.end] -= block.bytes
    return list(accumulate(change[:length]))


def _most_between(call: AllocationRecord, levels: Sequence[int], begin: float, end: float) -> int:
    """Return the most bytes in use between two times, including what is there at the begin."""
    levels_before = [level for event, level in zip(call.events, levels, strict=True) if event.time < begin]
    levels_within = (
        level for event, level in zip(call.events, levels, strict=True) if begin <= event.time < end
    )
    return max((*levels_before[-1:], *levels_within), default=0)


# --- memory over time ----------------------------------------------------------------------------

MOMENTS = 500
"""Most moments of a Course; the one with most bytes in use represents those around it."""


def memory_over_time(call: AllocationRecord, moments: int = MOMENTS) -> MemoryTimeline:
    """Return the memory in use over time by category, at no more than `moments` moments."""
    memory_blocks, length = pair_memory_blocks(call), len(call.events)
    categories = {block.category for block in memory_blocks} | {Category(held.role) for held in call.before}
    levels: dict[Category, list[int]] = {}
    for category in (category for category in Category if category in categories):
        base = sum(held.bytes for held in call.before if held.role == category)
        own = [block for block in memory_blocks if block.category is category]
        levels[category] = [base, *(base + level for level in _bytes_over_time(own, length))]
    times = [0.0, *(event.time for event in call.events)]
    indices = _kept_indices([sum(column) for column in zip(*levels.values(), strict=True)], moments)
    return MemoryTimeline(
        times=pack(times[index] for index in indices),
        levels={
            str(name): pack(float(values[index]) for index in indices) for name, values in levels.items()
        },
    )


def _kept_indices(levels: Sequence[int], moments: int) -> list[int]:
    """Return the indices to keep: of each of equal stretches the maximum, and always the first and last."""
    last = len(levels) - 1
    stretch = max(1, -(-last // max(1, moments - 2)))
    tops = (
        max(range(begin, min(begin + stretch, last)), key=levels.__getitem__)
        for begin in range(1, last, stretch)
    )
    return list(dict.fromkeys((0, *tops, max(last, 0)))) if levels else []


# --- single allocations --------------------------------------------------------------------------

LARGEST = 20
"""Allocations of a call that are kept one by one."""


def largest_allocations(call: AllocationRecord, most: int = LARGEST) -> tuple[Allocation, ...]:
    """Return the largest allocations of a call with what made them, and when they were made and freed."""
    blocks = sorted(pair_memory_blocks(call), key=lambda block: -block.bytes)[:most]
    return tuple(
        Allocation(
            bytes=block.bytes,
            scope=block.scope,
            operator=call.events[block.begin].kind,
            category=str(block.category),
            made=call.events[block.begin].time,
            freed=None if block.end is None else call.events[block.end].time,
        )
        for block in blocks
    )


# --- growth --------------------------------------------------------------------------------------

_FEWEST = 4
"""Least calls to judge growth; the first of them may leave caches behind that serve all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGrowth:
    """Memory growth from call to call."""

    bytes: float
    """Per call, on average."""
    steady: bool
    """Whether memory grew in every call: a leak."""
    left: tuple[MemoryItem, ...] = ()
    """What the last call left, by the module that allocated it, the largest first."""


def find_memory_growth(calls: Sequence[AllocationRecord]) -> MemoryGrowth | None:
    """Return the growth of the bytes in use from call to call, without the first; None for too few calls."""
    if len(calls) < _FEWEST:
        return None
    levels, live = _bytes_after_calls(calls)
    rises = [after - before for before, after in pairwise(levels[1:])]
    last = len(calls) - 1
    left = (
        MemoryItem(scope=event.scope, role="", bytes=event.bytes)
        for number, event in live.values()
        if number == last
    )
    return MemoryGrowth(
        bytes=sum(rises) / len(rises),
        steady=min(rises) > 0,
        left=sum_memory_items(left) if min(rises) > 0 else (),
    )


def _bytes_after_calls(
    calls: Sequence[AllocationRecord],
) -> tuple[list[int], dict[int, tuple[int, AllocationEvent]]]:
    """Return the bytes in use after each call, and what is live after the last, with its call's number."""
    live: dict[int, tuple[int, AllocationEvent]] = {}
    levels: list[int] = []
    level = 0
    for number, call in enumerate(calls):
        for event in call.events:
            _, before = live.pop(event.address, (0, None))
            level -= before.bytes if before is not None else 0
            if event.bytes > 0:
                live[event.address] = number, event
                level += event.bytes
        levels.append(level)
    return levels, live


# --- as measurements -----------------------------------------------------------------------------


def allocation_measurements(calls: Sequence[AllocationRecord]) -> Iterator[Measurement | Doubt | TraceReport]:
    """Yield the memory metrics of recorded calls: the peak of the largest call, and the growth."""
    if not calls:
        return
    peaks = [find_allocated_peak(call) for call in calls]
    index = max(range(len(calls)), key=lambda i: peaks[i].bytes)
    largest = peaks[index]
    yield observed_number("allocated_peak", largest.bytes)
    for name, size in largest.stages.items():
        yield observed_number("allocated_peak", size, scope=name)
    if largest.fragmentation is not None:
        yield observed_number("fragmentation", largest.fragmentation)
    if (grown := find_memory_growth(calls)) is not None:
        yield observed_number("memory_growth", grown.bytes)
        if grown.steady:
            yield _leak_doubt(grown, len(calls))
    yield TraceReport(
        course=memory_over_time(calls[index]),
        held=largest.held,
        held_in=largest.scope,
        allocations=largest_allocations(calls[index]),
    )


def _leak_doubt(grown: MemoryGrowth, calls: int) -> Doubt:
    largest = grown.left[0] if grown.left else None
    whose = "no module" if largest is None or not largest.scope else largest.scope
    share = 0.0 if largest is None else largest.bytes / sum(held.bytes for held in grown.left)
    return Doubt(
        code="leak",
        seen=f"each of {calls} calls left memory behind, {format_quantity(grown.bytes, BYTES, 3)} per call, "
        f"{share:.0%} of it allocated by {whose}",
        advice="look there for what outlives a call: a list of outputs, a loss that keeps its graph, a cache",
    )

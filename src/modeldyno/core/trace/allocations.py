"""What a call takes from the allocator and gives back: its peak, what lies there then, what stays.

Pure: a backend writes down what its allocator did while a call was watched, and everything else follows
from that record. Bytes are those that the allocator counts: what was asked for on the CPU, whole blocks
on a device. Times are seconds from the beginning of the call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate, pairwise

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Measurement, observed, pack
from modeldyno.core.result.static_data import Held
from modeldyno.core.result.trace_data import Activity, Course
from modeldyno.core.stats.units import BYTES, format_quantity


class Category(StrEnum):
    """What memory is taken for."""

    WEIGHTS = "weights"
    """Parameters and buffers."""
    INPUTS = "inputs"
    ACTIVATIONS = "activations"
    """What an operator gives to others, in training for the backward course, too."""
    WORKSPACE = "workspace"
    """Given back within the very operator, or the step of the optimiser, that took it."""
    GRADIENTS = "gradients"
    """Of parameters; those of activations are activations."""
    OPTIMIZER = "optimizer"
    """The optimiser's state."""


GIVEN = frozenset({Category.WEIGHTS, Category.INPUTS})
"""What a call is given: no part of its own peak, even where the call itself copies it to the device."""
ROOM = "room="
"""How the scope of a largest batch begins that was predicted for so many bytes."""


@dataclass(frozen=True, slots=True)
class Event:
    """Memory taken or given back. Positional, for there are thousands of them."""

    time: float
    address: int
    bytes: int
    """Negative where it is given back."""
    scope: str = ""
    """The module at work; in the backward course the one whose gradient is found."""
    operator: int = 0
    """Number of the call of an operator during which it happens; 0 outside of any."""
    category: Category | None = None
    """What it is for, where that is known from the beginning."""
    reserved: int = 0
    """Bytes that the allocator itself holds on the device after it; 0 where it keeps no reserve."""
    allocated: int = 0
    """Bytes of them that are in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What turned out at a moment to be in the memory at some addresses."""

    time: float
    category: Category
    addresses: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the allocator did during one call, until all that the call returned was given back."""

    events: tuple[Event, ...]
    """In the order in which they happened."""
    seconds: float
    before: tuple[Held, ...] = ()
    """What was there before and stays: weights, inputs, the optimiser's state."""
    stages: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Part of the call, such as ``forward``, to its beginning and its end."""
    named: tuple[Named, ...] = ()


Watching = AbstractContextManager[Callable[[], Recorded]]
"""While entered, gives a callable that makes one call and tells what the allocator did."""


@dataclass(frozen=True, slots=True)
class Block:
    """Memory from the event that took it to the one that gave it back, by their places."""

    bytes: int
    begin: int
    end: int | None
    """None where the call does not give it back."""
    scope: str
    category: Category


def blocks(call: Recorded) -> tuple[Block, ...]:
    """Pair what was taken with what was given back; what was there before the call is not told of."""
    found: list[Block] = []
    live: dict[int, tuple[int, Event]] = {}
    known: dict[int, Category] = {}
    due = sorted(call.named, key=lambda named: named.time)
    for place, event in enumerate(call.events):
        while due and due[0].time <= event.time:
            known |= _name(due.pop(0), live)
        if event.bytes > 0:
            live[event.address] = place, event
        elif (taken := live.pop(event.address, None)) is not None:
            found.append(_block(taken, known, place, event))
    for named in due:
        known |= _name(named, live)
    found += [_block(taken, known, None, None) for taken in live.values()]
    return tuple(sorted(found, key=lambda block: block.begin))


def _name(named: Named, live: dict[int, tuple[int, Event]]) -> dict[int, Category]:
    """Give the places of the blocks that are named."""
    return {live[address][0]: named.category for address in named.addresses if address in live}


def _block(taken: tuple[int, Event], known: dict[int, Category], end: int | None, by: Event | None) -> Block:
    begin, event = taken
    within = by is not None and event.operator == by.operator != 0
    usual = Category.WORKSPACE if within else event.category or Category.ACTIVATIONS
    category = event.category if event.category in GIVEN else known.get(begin, usual)
    return Block(event.bytes, begin, end, event.scope, category)


# --- the peak ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The moment at which a call holds most."""

    bytes: int
    """Beyond what it is given."""
    scope: str = ""
    """The module at work."""
    held: tuple[Held, ...] = ()
    """The largest first, with what was there before."""
    stages: dict[str, int] = field(default_factory=dict)
    """Most bytes during each stage."""
    fragmentation: float | None = None
    """Share of the allocator's reserve that lies idle; None where it keeps none."""


def peak(call: Recorded) -> Peak:
    """Find the peak of a call."""
    own = [block for block in blocks(call) if block.category not in GIVEN]
    levels = _levels(own, len(call.events))
    most = max(levels, default=0)
    if not most:
        return Peak(bytes=0, held=_largest(call.before), stages=dict.fromkeys(call.stages, 0))
    at = levels.index(most)
    held = [
        Held(scope=block.scope, role=block.category, bytes=block.bytes)
        for block in own
        if block.begin <= at and (block.end is None or at < block.end)
    ]
    event = call.events[at]
    return Peak(
        bytes=most,
        scope=event.scope,
        held=_largest((*call.before, *held)),
        stages={name: _most(call, levels, *span) for name, span in call.stages.items()},
        fragmentation=1 - event.allocated / event.reserved if event.reserved else None,
    )


def _levels(found: Iterable[Block], length: int) -> list[int]:
    """Give the bytes in use after each event."""
    change = [0] * (length + 1)
    for block in found:
        change[block.begin] += block.bytes
        change[length if block.end is None else block.end] -= block.bytes
    return list(accumulate(change[:length]))


def _most(call: Recorded, levels: Sequence[int], begin: float, end: float) -> int:
    """Give the most bytes in use from a moment, with what was there then, to another."""
    before = [level for event, level in zip(call.events, levels, strict=True) if event.time < begin]
    within = (level for event, level in zip(call.events, levels, strict=True) if begin <= event.time < end)
    return max((*before[-1:], *within), default=0)


def _largest(held: Iterable[Held]) -> tuple[Held, ...]:
    """Add up by module and category, the largest first."""
    sizes: Counter[tuple[str, str]] = Counter()
    for item in held:
        sizes[item.scope, item.role] += item.bytes
    ranked = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Held(scope=scope, role=str(role), bytes=size) for (scope, role), size in ranked)


# --- the course ----------------------------------------------------------------------------------

MOMENTS = 500
"""Moments of a Course at most; of those between two of them the one with most in use stands for all."""


def course(call: Recorded, moments: int = MOMENTS) -> Course:
    """Follow the memory in use by category, through at most so many moments."""
    found, length = blocks(call), len(call.events)
    categories = {block.category for block in found} | {Category(held.role) for held in call.before}
    levels: dict[Category, list[int]] = {}
    for category in (category for category in Category if category in categories):
        base = sum(held.bytes for held in call.before if held.role == category)
        mine = [block for block in found if block.category is category]
        levels[category] = [base, *(base + level for level in _levels(mine, length))]
    times = [0.0, *(event.time for event in call.events)]
    kept = _kept([sum(column) for column in zip(*levels.values(), strict=True)], moments)
    return Course(
        times=pack(times[place] for place in kept),
        levels={str(name): pack(float(line[place]) for place in kept) for name, line in levels.items()},
    )


def _kept(whole: Sequence[int], moments: int) -> list[int]:
    """Choose places, evenly spread, of each stretch the one that has most; the first and last always."""
    last = len(whole) - 1
    stretch = max(1, -(-last // max(1, moments - 2)))
    tops = (
        max(range(begin, min(begin + stretch, last)), key=whole.__getitem__)
        for begin in range(1, last, stretch)
    )
    return list(dict.fromkeys((0, *tops, max(last, 0)))) if whole else []


# --- growth --------------------------------------------------------------------------------------

_FEWEST = 4
"""Calls from which growth is told; the first of them may leave tables behind that serve all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What calls leave behind."""

    bytes: float
    """A call, on average."""
    steady: bool
    """Whether every call left something and none gave any of it back: a leak."""
    left: tuple[Held, ...] = ()
    """What the last of the calls left, by the module that made it, the largest first."""


def growth(calls: Sequence[Recorded]) -> Growth | None:
    """Follow the bytes in use from call to call, the first left out; None where there are too few."""
    if len(calls) < _FEWEST:
        return None
    levels, live = _ends(calls)
    rises = [after - before for before, after in pairwise(levels[1:])]
    last = len(calls) - 1
    left = (Held(scope=event.scope, role="", bytes=event.bytes) for at, event in live.values() if at == last)
    return Growth(
        bytes=sum(rises) / len(rises), steady=min(rises) > 0, left=_largest(left) if min(rises) > 0 else ()
    )


def _ends(calls: Sequence[Recorded]) -> tuple[list[int], dict[int, tuple[int, Event]]]:
    """Give the bytes in use after each call, and what still is after the last, with the call's number."""
    live: dict[int, tuple[int, Event]] = {}
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


# --- in the words of a Result --------------------------------------------------------------------


def seen(calls: Sequence[Recorded]) -> Iterator[Measurement | Doubt | Activity]:
    """Tell what several watched calls took: the peak of the costliest of them, and what they left."""
    if not calls:
        return
    tops = [peak(call) for call in calls]
    at = max(range(len(calls)), key=lambda place: tops[place].bytes)
    top = tops[at]
    yield observed("allocated_peak", top.bytes)
    for name, size in top.stages.items():
        yield observed("allocated_peak", size, scope=name)
    if top.fragmentation is not None:
        yield observed("fragmentation", top.fragmentation)
    if (found := growth(calls)) is not None:
        yield observed("memory_growth", found.bytes)
        if found.steady:
            yield _leak(found, len(calls))
    yield Activity(course=course(calls[at]), held=top.held, held_in=top.scope)


def _leak(found: Growth, calls: int) -> Doubt:
    largest = found.left[0] if found.left else None
    whose = "no module" if largest is None or not largest.scope else largest.scope
    share = 0.0 if largest is None else largest.bytes / sum(held.bytes for held in found.left)
    return Doubt(
        code="memory-leak",
        seen=f"each of {calls} calls left memory behind, {format_quantity(found.bytes, BYTES, 3)} a call, "
        f"{share:.0%} of it made by {whose}",
        advice="look there for what outlives a call: a list of outputs, a loss that keeps its graph, a cache",
    )

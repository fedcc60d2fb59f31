from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from modeldyno.base.metrics.doubt import CODES, Doubt
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.result.static_data import MemoryItem
from modeldyno.base.result.trace_data import Allocation, MemoryTimeline, TraceReport
from modeldyno.base.stats.statistics import unpack_samples
from modeldyno.engine.trace import allocations
from modeldyno.engine.trace.allocations import (
    AllocationEvent,
    AllocationRecord,
    CategorizedMemory,
    MemoryBlock,
)
from modeldyno.engine.trace.memory_category import Category


def recorded(*events: AllocationEvent, **more: Any) -> AllocationRecord:
    return AllocationRecord(events=events, seconds=1.0, **more)


def test_what_is_taken_is_paired_with_what_is_given_back() -> None:
    """A block lasts from its event to that of the same address; what never ends outlives the call."""
    call = recorded(
        AllocationEvent(0.1, 1, 100, "a"),
        AllocationEvent(0.2, 2, 50, "b"),
        AllocationEvent(0.3, 1, -100),
        AllocationEvent(0.4, 1, 10),
    )
    assert allocations.pair_memory_blocks(call) == (
        MemoryBlock(100, 0, 2, "a", Category.ACTIVATIONS),
        MemoryBlock(50, 1, None, "b", Category.ACTIVATIONS),
        MemoryBlock(10, 3, None, "", Category.ACTIVATIONS),
    )


def test_what_was_there_before_the_call_is_not_told_of() -> None:
    """Giving back memory of unknown origin takes nothing from the peak."""
    call = recorded(AllocationEvent(0.1, 9, -1000), AllocationEvent(0.2, 1, 100))
    assert allocations.find_allocated_peak(call).bytes == 100


def test_workspace_is_given_back_by_the_operator_that_took_it() -> None:
    """Within one call of an operator, but not between operators, nor outside of any."""
    call = recorded(
        AllocationEvent(0.1, 1, 10, "", 1), AllocationEvent(0.2, 1, -10, "", 1),
        AllocationEvent(0.3, 2, 20, "", 2), AllocationEvent(0.4, 2, -20, "", 3),
        AllocationEvent(0.5, 3, 30), AllocationEvent(0.6, 3, -30),
    )  # fmt: skip
    assert [block.category for block in allocations.pair_memory_blocks(call)] == [
        Category.WORKSPACE,
        Category.ACTIVATIONS,
        Category.ACTIVATIONS,
    ]


def test_memory_that_turns_out_to_be_gradients_is_named_so() -> None:
    """What is live at an address at that moment is meant, not what lay there before or comes after."""
    call = recorded(
        AllocationEvent(0.1, 1, 10),
        AllocationEvent(0.2, 1, -10),
        AllocationEvent(0.3, 1, 20),
        AllocationEvent(0.5, 1, -20),
        AllocationEvent(0.6, 1, 30),
        named=(CategorizedMemory(time=0.4, category=Category.GRADIENTS, addresses=frozenset({1, 7})),),
    )
    assert {block.bytes: block.category for block in allocations.pair_memory_blocks(call)} == {
        10: Category.ACTIVATIONS,
        20: Category.GRADIENTS,
        30: Category.ACTIVATIONS,
    }


def test_memory_may_be_named_after_the_last_event() -> None:
    """What still lives at the end can be named, too."""
    named = CategorizedMemory(time=0.9, category=Category.GRADIENTS, addresses=frozenset({1}))
    call = recorded(AllocationEvent(0.1, 1, 10), named=(named,))
    assert allocations.pair_memory_blocks(call)[0].category is Category.GRADIENTS


def test_the_peak_is_the_most_at_once_and_knows_its_contents() -> None:
    """Its contents are added up by module and category, with what was there before, the largest first."""
    weights = MemoryItem(scope="a", role=Category.WEIGHTS, bytes=1000)
    call = recorded(
        AllocationEvent(0.1, 1, 40, "a"),
        AllocationEvent(0.2, 2, 30, "b"),
        AllocationEvent(0.3, 3, 30, "b"),
        AllocationEvent(0.4, 2, -30, "c"),
        AllocationEvent(0.5, 4, 20, "c"),
        before=(weights,),
    )
    at_peak = allocations.find_allocated_peak(call)
    assert (at_peak.bytes, at_peak.scope, at_peak.fragmentation) == (100, "b", None)
    assert at_peak.held == (
        weights,
        MemoryItem(scope="b", role="activations", bytes=60),
        MemoryItem(scope="a", role="activations", bytes=40),
    )


def test_inputs_that_the_call_copies_are_no_part_of_its_peak() -> None:
    """They are given, wherever they are put."""
    call = recorded(AllocationEvent(0.1, 1, 500, "", 0, Category.INPUTS), AllocationEvent(0.2, 2, 10))
    assert allocations.find_allocated_peak(call).bytes == 10
    assert allocations.pair_memory_blocks(call)[0].category is Category.INPUTS


def test_each_stage_has_a_peak_of_its_own() -> None:
    """What a stage finds when it begins counts for it; one in which nothing happens holds that."""
    call = recorded(
        AllocationEvent(0.1, 1, 10),
        AllocationEvent(0.2, 2, 50),
        AllocationEvent(0.3, 2, -50),
        AllocationEvent(0.6, 3, 5),
        AllocationEvent(0.7, 1, -10),
        stages={"forward": (0.0, 0.4), "backward": (0.5, 0.8), "idle": (0.9, 1.0), "early": (0.0, 0.05)},
    )
    assert allocations.find_allocated_peak(call).stages == {
        "forward": 60,
        "backward": 15,
        "idle": 5,
        "early": 0,
    }


def test_a_call_that_takes_nothing_has_no_peak() -> None:
    """It holds what it is given."""
    held = MemoryItem(scope="", role=Category.WEIGHTS, bytes=8)
    at_peak = allocations.find_allocated_peak(recorded(before=(held,), stages={"forward": (0.0, 1.0)}))
    assert (at_peak.bytes, at_peak.scope, at_peak.held, at_peak.stages) == (0, "", (held,), {"forward": 0})


def test_fragmentation_is_what_lies_idle_in_the_reserve_at_the_peak() -> None:
    """A quarter of the reserve is not in use when most is."""
    call = recorded(
        AllocationEvent(0.1, 1, 300, reserved=400, allocated=300),
        AllocationEvent(0.2, 1, -300, reserved=400, allocated=0),
    )
    assert allocations.find_allocated_peak(call).fragmentation == pytest.approx(0.25)


def test_the_course_follows_each_category() -> None:
    """It begins with what was there, and has a level for each category after every event."""
    call = recorded(
        AllocationEvent(0.25, 1, 10),
        AllocationEvent(0.5, 2, 30, "", 1),
        AllocationEvent(0.75, 2, -30, "", 1),
        before=(
            MemoryItem(scope="", role=Category.WEIGHTS, bytes=7),
            MemoryItem(scope="a", role="weights", bytes=1),
        ),
    )
    timeline = allocations.memory_over_time(call)
    assert list(unpack_samples(timeline.times)) == [0, 0.25, 0.5, 0.75]
    assert {name: list(unpack_samples(line)) for name, line in timeline.levels.items()} == {
        "weights": [8, 8, 8, 8],
        "activations": [0, 10, 10, 10],
        "workspace": [0, 0, 30, 0],
    }


@pytest.mark.parametrize("length", [0, 1, 2, 3, 9, 10, 11, 97, 1000])
def test_a_long_course_keeps_its_peak_and_its_ends(length: int) -> None:
    """It has no more moments than it may, in their order, and the highest one is among them."""
    events = [AllocationEvent((1 + i) / 1000, i, 1000 if i == 40 else 1 + i % 7) for i in range(length)]
    events += [AllocationEvent(2 + i / 1000, i, -1) for i in range(length)]
    timeline = allocations.memory_over_time(recorded(*events), moments=10)
    times, levels = (
        unpack_samples(timeline.times),
        [unpack_samples(line) for line in timeline.levels.values()],
    )
    assert len(times) <= 10
    assert all(before < after for before, after in pairwise(times))
    if length:
        assert (times[0], times[-1]) == (0, events[-1].time)
        assert (
            max(map(sum, zip(*levels, strict=True)))
            == allocations.find_allocated_peak(recorded(*events)).bytes
        )


def test_a_course_of_nothing_is_empty() -> None:
    """There is neither a moment nor a level."""
    assert allocations.memory_over_time(recorded()) == MemoryTimeline(times=b"", levels={})


def leaking(*left: int) -> list[AllocationRecord]:
    """Calls that take 100 bytes, and leave so many behind each."""
    calls = []
    for number, size in enumerate(left):
        taken = (
            AllocationEvent(0.1, number, size, "keeper")
            if size > 0
            else AllocationEvent(0.1, number + size, size)
        )
        calls.append(recorded(taken, AllocationEvent(0.2, -1, 100, "other"), AllocationEvent(0.3, -1, -100)))
    return calls


def test_memory_that_every_call_leaves_behind_is_a_leak() -> None:
    """The growth is told a call, with the module that made what the last call left."""
    grown = allocations.find_memory_growth(leaking(500, 10, 10, 40, 10))
    assert grown is not None
    assert (grown.bytes, grown.steady) == (20, True)
    assert grown.left == (MemoryItem(scope="keeper", role="", bytes=10),)


def test_what_the_first_call_leaves_is_no_growth() -> None:
    """Tables that it makes serve all others."""
    calls = [
        *leaking(500),
        *(recorded(AllocationEvent(0.1, 9, 10), AllocationEvent(0.2, 9, -10)) for _ in range(4)),
    ]
    grown = allocations.find_memory_growth(calls)
    assert grown is not None
    assert (grown.bytes, grown.steady, grown.left) == (0, False, ())


def test_what_is_given_back_later_is_no_leak() -> None:
    """A cache that is renewed by each call grows once."""
    calls = [recorded(AllocationEvent(0.1, n, 10), AllocationEvent(0.2, n - 1, -10)) for n in range(5)]
    grown = allocations.find_memory_growth(calls)
    assert grown is not None
    assert (grown.bytes, grown.steady) == (0, False)


def test_memory_at_an_address_replaces_what_lay_there() -> None:
    """What was given back unseen, between two calls, is not counted for ever."""
    grown = allocations.find_memory_growth([recorded(AllocationEvent(0.1, 1, 10)) for _ in range(4)])
    assert grown is not None
    assert grown.bytes == 0


def test_three_calls_are_too_few_for_growth() -> None:
    """Nothing is said of it."""
    assert allocations.find_memory_growth(leaking(1, 1, 1)) is None


def test_the_costliest_of_several_calls_is_told() -> None:
    """Its peak and stages are measurements, its contents and course an Activity."""
    small = recorded(AllocationEvent(0.1, 1, 10, "a"))
    large = recorded(
        AllocationEvent(0.1, 1, 30, "b", reserved=60, allocated=30), stages={"forward": (0.0, 1.0)},
    )  # fmt: skip
    reported = list(allocations.allocation_measurements([small, large]))
    numbers = {(m.metric, m.scope): m.value for m in reported if isinstance(m, Measurement)}
    assert numbers == {
        ("allocated_peak", ""): 30,
        ("allocated_peak", "forward"): 30,
        ("fragmentation", ""): 0.5,
    }
    (activity,) = (each for each in reported if isinstance(each, TraceReport))
    assert activity == TraceReport(
        course=allocations.memory_over_time(large),
        held=(MemoryItem(scope="b", role="activations", bytes=30),),
        held_in="b",
        allocations=allocations.largest_allocations(large),
    )


def test_a_leak_is_a_doubt_that_names_the_module() -> None:
    """With the bytes a call, and the share of the module that made most."""
    reported = list(allocations.allocation_measurements(leaking(500, 10, 10, 10)))
    assert [m.value for m in reported if isinstance(m, Measurement) and m.metric == "memory_growth"] == [10]
    (doubt,) = (each for each in reported if isinstance(each, Doubt))
    assert doubt.code in CODES
    assert doubt.seen == "each of 4 calls left memory behind, 10 B per call, 100% of it allocated by keeper"


def test_growth_that_comes_and_goes_is_told_and_not_doubted() -> None:
    """A number without a doubt."""
    reported = list(
        allocations.allocation_measurements(
            [recorded(AllocationEvent(0.1, n, 10), AllocationEvent(0.2, n - 1, -10)) for n in range(4)]
        )
    )
    assert [m.value for m in reported if isinstance(m, Measurement) and m.metric == "memory_growth"] == [0]
    assert not [each for each in reported if isinstance(each, Doubt)]


def test_a_leak_outside_of_any_module_is_told_as_such() -> None:
    """Code between the modules may keep what it makes."""
    calls = [recorded(AllocationEvent(0.1, number, 10)) for number in range(4)]
    (doubt,) = (each for each in allocations.allocation_measurements(calls) if isinstance(each, Doubt))
    assert doubt.seen.endswith("allocated by no module")


def test_no_calls_tell_nothing() -> None:
    """There is neither a number nor a doubt."""
    assert list(allocations.allocation_measurements([])) == []


def test_the_largest_allocations_are_kept_with_what_made_them_and_how_long_they_lived() -> None:
    """The largest first, no more than asked for; what outlives the call is never freed."""
    call = recorded(
        AllocationEvent(0.1, 1, 100, "a", 1, kind="aten.linear"),
        AllocationEvent(0.2, 2, 500, "b", 2, Category.WORKSPACE, kind="aten.conv2d"),
        AllocationEvent(0.3, 1, -100),
        AllocationEvent(0.4, 3, 10),
    )
    first, second = allocations.largest_allocations(call, 2)
    assert first == Allocation(
        bytes=500, scope="b", operator="aten.conv2d", category="workspace", made=0.2, freed=None
    )
    assert (second.bytes, second.scope, second.operator) == (100, "a", "aten.linear")
    assert (second.made, second.freed) == (0.1, 0.3)
    report = next(p for p in allocations.allocation_measurements([call]) if isinstance(p, TraceReport))
    assert [each.bytes for each in report.allocations] == [500, 100, 10]

"""Two snapshots of memory, place by place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.errors import RunFailed
from modeldyno.base.result.static_data import MemoryItem
from modeldyno.base.result.trace_data import MemoryTimeline, TraceReport
from modeldyno.engine.trace.memory_diff import HeldChange, MemoryChange, memory_change
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

EMPTY = MemoryTimeline(times=b"", levels={})


def snapshot(*held: tuple[str, str, int], held_in: str = "") -> Result:
    """Make a Result that holds so much at its peak."""
    parts = tuple(MemoryItem(scope=scope, role=role, bytes=size) for scope, role, size in held)
    return a_small_result(activity=TraceReport(course=EMPTY, held=parts, held_in=held_in))


def test_each_place_has_its_bytes_before_and_after() -> None:
    """The largest difference comes first, whichever its sign; what is alike comes last."""
    old = snapshot(("fc", "weights", 40), ("fc", "activations", 8), ("act", "workspace", 30), held_in="act")
    new = snapshot(("fc", "weights", 40), ("fc", "activations", 18), ("head", "activations", 4), held_in="fc")
    change = memory_change(old, new)

    assert change == MemoryChange(
        held=(
            HeldChange(scope="act", role="workspace", before=30, after=0),
            HeldChange(scope="fc", role="activations", before=8, after=18),
            HeldChange(scope="head", role="activations", before=0, after=4),
            HeldChange(scope="fc", role="weights", before=40, after=40),
        ),
        before_in="act",
        after_in="fc",
    )
    assert [each.difference for each in change.held] == [-30, 10, 4, 0]
    assert (change.before, change.after, change.difference) == (78, 62, -16)


def test_a_place_that_is_named_twice_is_one() -> None:
    """What one module holds in one role is summed up on either side."""
    change = memory_change(snapshot(("a", "inputs", 1), ("a", "inputs", 2)), snapshot(("a", "inputs", 3)))

    assert change.held == (HeldChange(scope="a", role="inputs", before=3, after=3),)


_HELD = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(("weights", "activations")), st.integers(0, 2**40))
)


@given(_HELD, _HELD)
def test_the_differences_of_the_places_are_that_of_the_peaks(
    old: list[tuple[str, str, int]], new: list[tuple[str, str, int]]
) -> None:
    """Nothing is told twice or left out, whatever the two have in common."""
    change = memory_change(snapshot(*old), snapshot(*new))

    assert change.before == sum(size for _, _, size in old)
    assert change.after == sum(size for _, _, size in new)
    assert sum(each.difference for each in change.held) == change.difference == change.after - change.before
    assert len({(each.scope, each.role) for each in change.held}) == len(change.held)


@pytest.mark.parametrize("activity", [None, TraceReport()])
def test_a_result_without_a_snapshot_is_refused(activity: TraceReport | None) -> None:
    """The one that lacks it is named, with what to do; a snapshot in which nothing lies is one."""
    bare, empty = a_small_result(activity=activity, id="feedfacef00d"), snapshot()

    for pair in ((bare, empty), (empty, bare)):
        with pytest.raises(RunFailed, match="feedfacef00d of digits has no memory snapshot"):
            memory_change(*pair)
    assert memory_change(empty, empty).difference == 0

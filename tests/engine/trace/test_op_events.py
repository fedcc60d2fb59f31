"""What happened in calls, summed up."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from modeldyno.base.result.trace_data import EventKind, ExecutedOp
from modeldyno.engine.trace.op_events import (
    VARIOUS,
    Occurrence,
    WatchedCalls,
    operator_times,
    sum_occurrences,
)


def op(name: str, self_time: float, **more: object) -> Occurrence:
    """An operator that called nothing."""
    return Occurrence(name=name, self_time=self_time, total_time=self_time, **more)  # type: ignore[arg-type]


def test_rows_are_of_one_call() -> None:
    """Two calls of the same three operators give two rows, each with its mean over the calls."""
    call = (
        op("mm", 2.0, scope="a", shapes="2x3", allocated=24.0),
        op("mm", 1.0, scope="a", shapes="2x3"),
        op("add", 8.0, scope="a"),
    )
    second = tuple(replace(each, call=1) for each in call)
    rows = sum_occurrences(WatchedCalls(times=(1.0, 1.0), occurrences=call + second))

    assert [(r.name, r.calls, r.self_time, r.total_time, r.allocated) for r in rows] == [
        ("add", 1.0, 8.0, 8.0, 0.0),
        ("mm", 2.0, 3.0, 3.0, 24.0),
    ]
    assert rows[1].shapes == "2x3"


def test_a_call_that_is_held_up_does_not_ruin_a_time() -> None:
    """One of ten calls takes fifty times as long: the row has the time of the others, and of all who ran."""
    result = tuple(
        Occurrence(
            name=name,
            self_time=seconds * slow,
            total_time=seconds * slow,
            device_time=seconds * slow,
            call=call,
        )
        for call in range(10)
        for slow in (50.0 if call == 7 else 1.0,)
        for name, seconds in (("mm", 3.0), ("mm", 1.0), ("add", 2.0))
        if name == "mm" or call % 2
    )
    rows = {row.name: row for row in sum_occurrences(WatchedCalls(times=(1.0,) * 10, occurrences=result))}

    assert [rows["mm"].self_time, rows["mm"].total_time, rows["mm"].device_time] == [4.0, 4.0, 4.0]
    assert (rows["mm"].calls, rows["add"].calls) == (2.0, 0.5)
    assert rows["add"].self_time == 1.0  # of 2.0 in every second call


def test_what_differs_in_kind_module_or_shapes_is_apart() -> None:
    """One name has a row for each kind, module and set of shapes."""
    occurrences = (
        op("mm", 1.0),
        op("mm", 1.0, scope="a"),
        op("mm", 1.0, shapes="2x3"),
        op("mm", 1.0, kind=EventKind.RANGE),
    )
    assert len(sum_occurrences(WatchedCalls(times=(1.0,), occurrences=occurrences))) == 4


def test_time_of_one_that_calls_itself_is_told_once() -> None:
    """The total time of a group leaves out what lies within the group; own times add up as they are."""
    occurrences = (
        Occurrence(name="f", self_time=1.0, total_time=6.0),
        Occurrence(name="g", self_time=2.0, total_time=5.0, parent=0),
        Occurrence(name="f", self_time=3.0, total_time=3.0, parent=1),
    )
    rows = {row.name: row for row in sum_occurrences(WatchedCalls(times=(6.0,), occurrences=occurrences))}

    assert (rows["f"].self_time, rows["f"].total_time, rows["f"].calls) == (4.0, 6.0, 2.0)
    assert rows["g"].total_time == 5.0


def test_the_costliest_comes_first_wherever_it_takes_its_time() -> None:
    """Rows are in the order of their own time on the host or on a device, whichever is longer."""
    occurrences = (op("host", 2.0), op("device", 0.1, device_time=3.0), op("none", 0.0))
    assert [r.name for r in sum_occurrences(WatchedCalls(times=(1.0,), occurrences=occurrences))] == [
        "device",
        "host",
        "none",
    ]


def test_given_back_memory_is_not_told_as_taken() -> None:
    """An operator that gives back more than it takes has taken nothing."""
    (row,) = sum_occurrences(WatchedCalls(times=(1.0,), occurrences=(op("free", 1.0, allocated=-64.0),)))
    assert row.allocated == 0.0


def test_rows_beyond_the_most_are_joined_and_nothing_is_lost() -> None:
    """The costliest rows stay as they are; the others are joined by name, and all sums stay."""
    result = tuple(
        op(name, float(place), scope=f"m.{place}", device_time=1.0, allocated=8.0)
        for place in range(1, 11)
        for name in ("mm", "add")
    )
    watched = WatchedCalls(times=(1.0,), occurrences=result)
    every, few = sum_occurrences(watched), sum_occurrences(watched, most=4)

    assert few[:4] == every[:4]
    assert [(r.name, r.scope, r.shapes, r.calls) for r in few[4:]] == [
        ("add", "", VARIOUS, 8.0),
        ("mm", "", VARIOUS, 8.0),
    ]
    numbers = [f.name for f in fields(ExecutedOp) if f.type == "float"]
    assert "allocated" in numbers
    for name in numbers:
        assert sum(getattr(r, name) for r in few) == sum(getattr(r, name) for r in every)


def test_operators_are_summed_by_call_without_what_they_call() -> None:
    """An operator within another, or within a named range, counts once; ranges themselves do not count."""
    watched = WatchedCalls(
        times=(1.0, 1.0),
        occurrences=(
            Occurrence(name="block", kind=EventKind.RANGE, total_time=0.9),
            Occurrence(name="linear", total_time=0.5, parent=0),
            Occurrence(name="addmm", total_time=0.4, parent=1),
            Occurrence(name="relu", total_time=0.1, call=1),
        ),
    )
    assert operator_times(watched) == (0.5, 0.1)


def test_with_kernels_on_a_device_their_time_counts() -> None:
    """The host only launches them."""
    watched = WatchedCalls(
        times=(1.0,),
        occurrences=(
            Occurrence(name="mm", total_time=0.1, device_time=0.7),
            Occurrence(name="gemm", kind=EventKind.KERNEL, device_time=0.7),
            Occurrence(name="Memcpy HtoD", kind=EventKind.TRANSFER, device_time=0.2),
        ),
    )
    assert list(operator_times(watched)) == pytest.approx([0.9])

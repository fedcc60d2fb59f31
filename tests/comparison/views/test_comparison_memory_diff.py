"""How the difference of two snapshots of memory is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.errors import RunFailed
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.metrics.measurement import pack
from modeldyno.base.report.blocks import Notice, Severity, Table
from modeldyno.base.result.static_data import MemoryItem
from modeldyno.base.result.trace_data import MemoryTimeline, TraceReport
from modeldyno.comparison.change.build import CompareOptions, compare_results
from modeldyno.comparison.change.comparison import Comparison
from modeldyno.comparison.views.blocks import blocks, memory_diff_blocks
from modeldyno.reports import terminal
from modeldyno.testing.reporters import HOSTILE
from modeldyno.testing.sample_results import a_job, a_small_result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.base.report.blocks import Block
    from modeldyno.base.result.result import Result

MIB = 2**20


def course(*levels: float) -> MemoryTimeline:
    """Make activations over a second."""
    moments = [place / (len(levels) - 1) for place in range(len(levels))]
    return MemoryTimeline(
        times=pack(moments), levels={"weights": pack([9e9] * len(levels)), "activations": pack(levels)}
    )


def snapshot(
    *held: tuple[str, str, float], over: MemoryTimeline | None = None, held_in: str = "", **changes: Any
) -> Result:
    """Make a Result that holds so many MiB at its peak."""
    parts = tuple(MemoryItem(scope=scope, role=role, bytes=int(size * MIB)) for scope, role, size in held)
    activity = TraceReport(held=parts, course=over or course(0, 0), held_in=held_in)
    return a_small_result(activity=activity, **changes)


OLD = snapshot(
    ("head", "weights", 20), ("layer.0", "weights", 10), ("layer.0.fc", "activations", 4),
    ("layer.1.fc", "activations", 4), ("head", "workspace", 6), ("x", "inputs", 1),
    over=course(0, 8 * MIB, 16 * MIB, 0),
)  # fmt: skip
NEW = snapshot(
    ("head", "weights", 20), ("layer.0", "weights", 10), ("layer.0.fc", "activations", 9),
    ("layer.1.fc", "activations", 9), ("pool", "activations", 2), ("x", "inputs", 1),
    over=course(0, 0, 32 * MIB, 0),
)  # fmt: skip


def text(baseline: Result, candidate: Result, severity: Severity = Severity.VERDICT) -> list[str]:
    """Return what is said with such weight."""
    changed_blocks = memory_diff_blocks(baseline, candidate)
    return [
        block.text for block in changed_blocks if isinstance(block, Notice) and block.severity is severity
    ]


def rows(baseline: Result, candidate: Result) -> dict[str, tuple[str, ...]]:
    """Return the rows of the table of memory by their first cell."""
    return tabulated("Memory at the measured peak", memory_diff_blocks(baseline, candidate))


def tabulated(title: str, changed_blocks: Iterable[Block]) -> dict[str, tuple[str, ...]]:
    """Return the rows of the table of this title by their first cell."""
    (table,) = (block for block in changed_blocks if isinstance(block, Table) and block.title == title)
    return {row[0]: row[1:] for row in table.rows}


def test_places_are_told_by_how_much_they_changed() -> None:
    """The sum first, then the largest differences; modules alike are one row, and so is what is alike."""
    cells = rows(OLD, NEW)

    assert list(cells.items()) == [
        ("total", ("45.0 MiB", "51.0 MiB", "+6.00 MiB")),
        ("output of layer.0-1.fc", ("8.00 MiB", "18.0 MiB", "+10.0 MiB")),
        ("workspace of head", ("6.00 MiB", "—", "-6.00 MiB (gone)")),
        ("output of pool", ("—", "2.00 MiB", "+2.00 MiB (new)")),
        ("2 places, unchanged", ("31.0 MiB", "31.0 MiB", "none")),
    ]


def test_a_sentence_leads() -> None:
    """More, less or as much, and what has most of it."""
    assert text(OLD, NEW)[0] == (
        "digits holds 6.00 MiB more at its peak than before, 51.0 MiB against 45.0 MiB; most of that is "
        "output of layer.0-1.fc (+10.0 MiB)."
    )
    assert text(NEW, OLD)[0] == (
        "digits holds 6.00 MiB less at its peak than before, 45.0 MiB against 51.0 MiB; most of that is "
        "output of layer.0-1.fc (-10.0 MiB)."
    )
    assert text(OLD, OLD) == ["digits holds the same at its peak as before: 45.0 MiB."]
    moved = snapshot(("other", "workspace", 45))
    assert text(OLD, moved) == [
        "digits holds as much at its peak as before, 45.0 MiB, but with different contents."
    ]
    assert text(snapshot(), snapshot()) == ["digits holds the same at its peak as before: 0 B."]


def test_one_place_that_is_alike_has_its_name() -> None:
    """It is no more than a word longer than a number of places."""
    grown = snapshot(("a", "workspace", 2), ("x", "inputs", 1))

    assert list(rows(snapshot(("a", "workspace", 1), ("x", "inputs", 1)), grown)) == [
        "total", "workspace of a", "inputs, unchanged",
    ]  # fmt: skip


def test_many_places_are_cut_to_the_largest() -> None:
    """What is left out is summed up, so that the rows still add up to the whole."""
    names = [chr(97 + n) for n in range(20)]
    many = snapshot(*((name, "workspace", n + 1) for n, name in enumerate(names)))
    cells = rows(snapshot(), many)

    assert list(cells)[1] == "workspace of t"
    assert len(cells) == 1 + 12 + 1
    assert cells["8 more"] == ("—", "36.0 MiB", "+36.0 MiB (new)")


def test_courses_have_one_scale() -> None:
    """Before and after can be compared by eye: half as much is drawn half as high."""
    before, after = text(OLD, NEW, Severity.NOTE)

    assert before.startswith("over time, before: ")
    assert before.endswith("up to 16.0 MiB in 1.0 s")
    assert "█" not in before
    assert after.endswith("up to 32.0 MiB in 1.0 s")
    assert "█" in after
    assert NEW.activity is not None
    lost = replace(NEW, activity=replace(NEW.activity, course=None))
    assert [note[:18] for note in text(OLD, lost, Severity.NOTE)] == ["over time, before:"]
    assert text(snapshot(), snapshot(), Severity.NOTE) == []


def test_other_differences_are_tabulated_as_in_a_comparison() -> None:
    """The model, knobs, inputs and the machine may explain the change."""
    other = replace(
        NEW,
        job=replace(a_job("student"), config={"batch_size": 16, "device": "cpu", "io_binding": False}),
        inputs=(InputSpec(name="image", shape=(16, 64), dtype="float32"),),
    )
    table = next(block for block in memory_diff_blocks(OLD, other) if isinstance(block, Table))

    assert table.title == "Other differences"
    assert [column.title for column in table.columns] == ["kind", "what", "before", "after"]
    assert ("setting", "batch_size", "8", "16") in table.rows
    assert ("setting", "threads", "2", "—") in table.rows


def test_a_comparison_has_a_section_for_memory_that_changed() -> None:
    """Its columns are the two names; without a change or a snapshot there is no such section."""
    old = snapshot(("head", "workspace", 6), over=course(0, 8 * MIB), name="old")
    new = snapshot(("x", "inputs", 1), over=course(0, MIB), name="new")
    title = "Memory at the measured peak"
    changed_blocks = compared(old, new)
    notes = [block.text[:14] for block in changed_blocks if isinstance(block, Notice)]

    assert tabulated(title, changed_blocks)["workspace of head"] == ("6.00 MiB", "—", "-6.00 MiB (gone)")
    assert [note for note in notes if note.startswith("over time")] == ["over time, old", "over time, new"]
    for candidate in (OLD, a_small_result()):
        assert not any(
            isinstance(block, Table) and block.title == title for block in compared(OLD, candidate)
        )


def compared(baseline: Result, candidate: Result) -> tuple[Block, ...]:
    """Lay out the comparison of two stored Results."""
    contrast = compare_results(baseline, candidate, CompareOptions())
    return blocks(Comparison(id="c", created="", baseline=baseline, contrasts=(contrast,)))


def test_a_result_without_a_snapshot_cannot_be_compared() -> None:
    """The error names it."""
    with pytest.raises(RunFailed, match="has no memory snapshot"):
        memory_diff_blocks(OLD, a_small_result())


@pytest.mark.parametrize("hostile", HOSTILE)
def test_names_from_outside_fit_eighty_columns(hostile: str) -> None:
    """Whatever they are, and however long."""
    long = snapshot(
        (hostile + "x" * 200, "activations", 5), ("y" * 200, hostile, 4), name=hostile * 20,
        over=course(0, MIB),
    )  # fmt: skip
    text_shown = terminal.text(memory_diff_blocks(OLD, long))

    assert max(map(len, text_shown.splitlines())) <= 80
    assert "\x1b" not in text_shown

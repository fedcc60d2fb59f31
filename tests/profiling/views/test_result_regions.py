from __future__ import annotations

import re
from dataclasses import replace

import pytest

from modeldyno import Profiled
from modeldyno.base.report.blocks import Notice, Table
from modeldyno.profiling import views


class Clock:
    """Time that passes only when somebody says so, in nanoseconds."""

    now = 0

    def __call__(self) -> int:
        """Read it."""
        return self.now


def test_regions_are_laid_out_by_their_own_time() -> None:
    """A sentence names the costliest; tables give all calls, one call, and memory where it was watched."""
    clock = Clock()
    mark = Profiled(clock=clock)
    mark.enable()
    for _ in range(100):
        with mark("outer"):
            clock.now += 1_000_000
            with mark("inner", memory="process"):
                clock.now += 3_000_000
    blocks = views.blocks(mark.result(name="train.py"))
    tables = {block.title: block for block in blocks if isinstance(block, Table)}

    assert isinstance(blocks[0], Notice)
    assert blocks[0].text == "train.py spent 400 ms in 2 regions of code, 75.0% of it in inner itself."
    assert tables["Total time"].rows == (
        ("inner", "100", "300 ms", "300 ms", "75.0%"),
        ("outer", "100", "400 ms", "100 ms", "25.0%"),
    )
    assert tables["Time of one call"].rows[1] == (
        "outer", "4.00 ms", "4.00 ms", "4.00 ms", "4.00 ms", "~4.00 ms", "~4.00 ms", "4.00 ms",
    )  # fmt: skip
    assert [row[:2] for row in tables["Memory of one call"].rows] == [("inner", "process")]
    assert re.fullmatch(
        r"—|[\d.,]+ [KMG]?i?B", tables["Memory of one call"].rows[0][-1]
    )  # told on Linux alone


def test_one_region_needs_no_share() -> None:
    """The sentence does not say that all of it is in the only one."""
    mark = Profiled(clock=Clock())
    mark.enable()
    with mark("only"):
        pass

    assert views.headline(mark.result(name="x.py")) == "x.py spent 0 s in 1 region of code."


def test_a_slow_first_call_is_told_apart_from_the_others() -> None:
    """It has a column, and a note where it is what makes the mean; calls that are alike have none."""
    clock = Clock()
    mark = Profiled(clock=clock)
    mark.enable()
    for call in range(11):
        with mark("load"):
            clock.now += 1_000_000 if call else 101_000_000
        with mark("steady"):
            clock.now += 1_000_000
    result = mark.result(name="train.py")
    tables = {block.title: block for block in views.blocks(result) if isinstance(block, Table)}
    notes = [b.text for b in views.blocks(result) if isinstance(b, Notice) and "first call" in b.text]

    assert [row[:3] for row in tables["Time of one call"].rows] == [
        ("load", "101 ms", "10.1 ms"),
        ("steady", "1.00 ms", "1.00 ms"),
    ]
    assert result["first_call@load"] == pytest.approx(0.101)
    (note,) = notes
    assert note.startswith("the first call of load took 101 ms, the others 1.00 ms on average: ")


def test_a_document_without_first_calls_is_still_shown() -> None:
    """Those of earlier versions have none."""
    mark = Profiled(clock=Clock())
    mark.enable()
    with mark("only"):
        pass
    result = mark.result()
    older = replace(result, measurements=tuple(m for m in result.measurements if m.metric != "first_call"))
    (table,) = (b for b in views.blocks(older) if isinstance(b, Table) and b.title == "Time of one call")

    assert table.rows[0][:2] == ("only", "—")

"""Wall time by line, and what it says: on samples written by hand."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.result.trace_data import EventKind, ExecutedOp, RedundancyKind
from modeldyno.engine.trace.line_times import (
    OUTSIDE,
    LineTimes,
    growing_lines,
    in_region,
    line_rows,
    loader_findings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def sampled(
    calls: int = 1,
    *,
    background: bool = False,
    lines: Mapping[str, tuple[int, str]] = MappingProxyType({}),
    **samples: tuple[int, str],
) -> LineTimes:
    """Samples of 10 ms by line, with the line that waited for them."""
    times = LineTimes(calls=calls, in_background=background)
    for line, (count, waiting) in {**lines, **samples}.items():
        for _ in range(count):
            times.add(line, 0.01, waiting)
    return times


def test_rows_have_the_wall_time_of_a_call_and_end_with_what_is_outside_operators() -> None:
    """A line without samples has the time of its operators."""
    times = sampled(2, a=(20, ""), b=(10, ""), lines={"": (10, "")})
    step = ExecutedOp(
        name="a", kind=EventKind.LINE, scope="r > Net", calls=3, self_time=0.04, total_time=0.04
    )
    short = ExecutedOp(name="c", kind=EventKind.LINE, scope="r", calls=1, self_time=0.01, total_time=0.01)
    rows = list(line_rows("r", times, (step, short), 0.05))

    assert [(row.name, row.calls, row.self_time) for row in rows] == [
        ("a", 3, 0.04), ("c", 1, 0.01), ("b", 0, 0), (OUTSIDE, 0, 0),
    ]  # fmt: skip
    assert [row.total_time for row in rows] == pytest.approx([0.1, 0.01, 0.05, 0.1])
    assert list(line_rows("r", LineTimes(), (step,), 0.05)) == [step]
    assert in_region(step, "r")
    assert not in_region(step, "other")


def test_samples_of_several_calls_are_added() -> None:
    """Calls, times and waits."""
    times = sampled(a=(3, "for"))
    times.add_all(sampled(a=(2, "for"), b=(1, ""), background=True))
    assert (times.calls, times.samples) == (2, 6)
    assert times.seconds == pytest.approx(0.06)
    assert (times.waits["for"].samples, times.in_background) == (5, True)


def test_a_starved_loop_is_loader_bound() -> None:
    """With the share of the time, the line that waits, the one that takes the time, and what to do."""
    (finding,) = loader_findings("epoch", sampled(2, read=(80, "loop"), step=(20, "")))
    assert (finding.kind, finding.line, finding.scope) == (RedundancyKind.LOADER, "loop", "epoch")
    assert finding.time == pytest.approx(0.4)
    assert finding.reason.startswith(
        "80% of the wall time is waiting for the data of a loader, most of it in read;"
    )
    assert "num_workers=" in finding.reason
    (finding,) = loader_findings("epoch", sampled(background=True, loop=(80, "loop"), step=(20, "")))
    assert "a loader; give it more workers" in finding.reason


@pytest.mark.parametrize(("waiting", "working"), [(9, 0), (50, 40), (10, 90)])
def test_what_is_not_certainly_most_of_the_time_is_no_finding(waiting: int, working: int) -> None:
    """Too few samples, a lower bound below a half."""
    assert list(loader_findings("r", sampled(read=(waiting, "loop"), step=(working, "")))) == []


SOURCE = """
import numpy as np
while True:
    x = np.append(x, 1)
    y = np.concatenate([y, z])
    z = np.concatenate([a, b])
    w = x.append(w)
    v = np.zeros(v)
u = np.append(u, 1)
"""


def test_arrays_of_numpy_that_grow_in_a_loop_are_named_where_they_take_time() -> None:
    """By the code, if the samples have seen it; not outside a loop, nor of other arrays."""
    lines = {f"a.py:{number}": (20, "") for number in range(1, 10)}
    findings = list(growing_lines("r", sampled(lines=lines), "a.py", SOURCE))
    assert [(f.line, f.name) for f in findings] == [
        ("a.py:4", "numpy.append"), ("a.py:5", "numpy.concatenate"),
    ]  # fmt: skip
    assert findings[0].time == pytest.approx(0.2)
    assert "11% of the wall time" in findings[0].reason
    rare = sampled(lines={"a.py:4": (9, ""), "a.py:5": (10, ""), "other": (2000, "")})
    assert list(growing_lines("r", rare, "a.py", SOURCE)) == []
    assert list(growing_lines("r", rare, "a.py", "def (")) == []

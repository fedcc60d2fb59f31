"""How a report says where calls wait."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import observed_number
from modeldyno.base.report.blocks import Notice
from modeldyno.profiling import views
from modeldyno.profiling.views.result.waiting import waiting
from modeldyno.serving.load.explanation import Explanation, RunLevel
from modeldyno.serving.views import explanation
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result


def a_waiting_result() -> Result:
    lines = ("a.py:1", 0.001), ("store.py:12", 0.02), ("b.py:2", 0.0005), ("c.py:3", 0.0001)
    waits = tuple(observed_number("wait_time", seconds, scope=line) for line, seconds in lines)
    return replace(a_small_result(), measurements=waits)


def test_the_longest_lines_are_named_first() -> None:
    """Three of them, each with the time that a call spends in it; nothing of calls that compute."""
    (notice,) = waiting(a_waiting_result())
    assert notice.code == "waiting"
    assert notice.text.startswith(
        "of each call 20.0 ms in store.py:12, 1.00 ms in a.py:1, 500 us in b.py:2; it sleeps there"
    )
    assert list(waiting(a_small_result())) == []


def test_reports_and_explanations_have_it() -> None:
    """In brief, in full, and where an explanation called the model in process."""
    result = a_waiting_result()
    explained = Explanation(id="", created="", results={RunLevel.IN_PROCESS: result})
    for blocks in (
        views.blocks(result),
        views.blocks(result, views.ViewOptions(verbose=True)),
        views.page(result),
        explanation.page(explained),
    ):
        codes = [block.code for block in blocks if isinstance(block, Notice)]
        assert codes.count("waiting") == 1

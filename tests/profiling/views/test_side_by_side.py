from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import Interval
from modeldyno.profiling.views.side_by_side import side_by_side
from modeldyno.testing.sample_results import a_failed_result, a_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result


def test_figures_stand_beside_each_other() -> None:
    """A row for each figure of any of them; what one lacks is empty."""
    facts, figures = side_by_side([a_result(samples=[0.00128] * 50), a_failed_result(id="f" * 12)])

    rows = {row[0]: row[1:3] for row in figures.rows}
    assert rows["latency.p50"] == ("1.28 ms", "")
    assert rows["latency.p99"] == ("1.28 ms, not certified", "")
    assert rows["throughput"][0].startswith("6,200")
    assert {row[0]: row[1:] for row in facts.rows}["result"] == ("0123456789ab", "f" * 12)


def test_the_difference_of_two_stands_in_a_column_of_its_own() -> None:
    """Of what is known of both; of three there is none."""
    one, other = (a_result(samples=[seconds] * 50) for seconds in (0.001, 0.0015))
    _, figures = side_by_side([one, other])
    _, of_three = side_by_side([one, one, other])

    place = [column.title for column in figures.columns].index("difference")
    rows = {row[0]: row[place] for row in figures.rows}
    assert (rows["latency.p50"], rows["latency.p99"], rows["throughput"]) == ("+50.0%", "", "same")
    assert "difference" not in {column.title for column in of_three.columns}


def test_the_best_is_named_where_its_interval_is_clear_of_all_others() -> None:
    """The lowest latency, the highest throughput; nothing where two overlap, or one was not measured."""
    results = [a_result(samples=[seconds] * 50) for seconds in (0.003, 0.001, 0.002)]
    fast = replace_throughput(results[2], 9000.0)
    _, figures = side_by_side([results[0], results[1], fast])
    _, alike = side_by_side([results[0], results[0]])
    _, lacking = side_by_side([results[0], a_failed_result(id="f" * 12)])

    assert figures.columns[-1].title == "best"
    best = {row[0]: row[-1] for row in figures.rows}
    assert (best["latency.p50"], best["throughput"]) == ("digits (2)", "digits (3)")
    assert best["latency.p99"] == best["parameters"] == ""
    assert {column.title for column in (*alike.columns, *lacking.columns)}.isdisjoint({"best"})


def replace_throughput(result: Result, value: float) -> Result:
    """Return the result with another throughput, whose interval is narrow."""
    interval = Interval(low=0.99 * value, high=1.01 * value)
    changed = (
        replace(one, value=value, interval=interval) if one.metric == "throughput" else one
        for one in result.measurements
    )
    return replace(result, measurements=tuple(changed))


def test_settings_that_are_equal_are_left_out() -> None:
    """Those that differ are what explains the figures."""
    one = a_result()
    other = replace(one, job=replace(one.job, config={**one.job.config, "threads": 4}))

    facts, _ = side_by_side([one, other])

    named = [row[0] for row in facts.rows]
    assert "threads" in named
    assert "batch_size" not in named

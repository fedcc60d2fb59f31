from __future__ import annotations

from dataclasses import replace

from modeldyno.profiling.views.side_by_side import side_by_side
from modeldyno.testing.sample_results import a_failed_result, a_result


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

    rows = {row[0]: row[-1] for row in figures.rows}
    assert figures.columns[-1].title == "difference"
    assert (rows["latency.p50"], rows["latency.p99"], rows["throughput"]) == ("+50.0%", "", "same")
    assert of_three.columns[-1].title != "difference"


def test_settings_that_are_equal_are_left_out() -> None:
    """Those that differ are what explains the figures."""
    one = a_result()
    other = replace(one, job=replace(one.job, config={**one.job.config, "threads": 4}))

    facts, _ = side_by_side([one, other])

    named = [row[0] for row in facts.rows]
    assert "threads" in named
    assert "batch_size" not in named

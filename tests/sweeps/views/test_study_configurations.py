"""Named configurations in detail: everything that was measured under each load, and charts of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_trials import a_trial, add_trials, an_answer

from modeldyno.base.report.blocks import Notice, Table
from modeldyno.base.report.charts import Plot
from modeldyno.base.report.chosen_plot import ChosenPlot
from modeldyno.profiling.views import ViewOptions
from modeldyno.sweeps.views.blocks import blocks
from modeldyno.sweeps.views.page import page
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.sample_studies import a_served_study

if TYPE_CHECKING:
    from modeldyno.sweeps.study.study import Study

ONE = ViewOptions(configurations=("1",))


def served(*, certified: bool = True) -> Study:
    """Return a study of two configurations under three loads; p99 may have too few samples."""
    study = a_served_study("instances=1,2", "concurrency=1,2,4", default={"instances": 1}, name="text")
    loads = {1: (10.0, 0.01), 2: (30.0, 0.02), 4: (20.0, 0.03)}
    return add_trials(
        study,
        (
            a_trial(
                {"instances": instances, "concurrency": concurrency},
                an_answer("throughput", rate * instances),
                an_answer("latency.p99", latency if certified else None, size=None if certified else 9.0),
                an_answer("latency.p99.raw", latency),
            )
            for instances in (1, 2)
            for concurrency, (rate, latency) in loads.items()
        ),
    )


def test_a_configuration_has_a_row_for_each_load() -> None:
    """Of a server, what was not measured is unknown, other columns are left out; the best load is marked."""
    parts = list(blocks(served(), ONE))
    (table,) = (block for block in parts if isinstance(block, Table))

    assert [column.title for column in table.columns] == [
        "concurrency", "instances", "throughput", "p99", "memory", "device memory", "device use", "power", "",
    ]  # fmt: skip
    assert [(row[0], *row[2:4], row[-1]) for row in table.rows] == [
        ("1", "20/s", "10 ms", ""), ("2", "60/s", "20 ms", "best"), ("4", "40/s", "30 ms", ""),
    ]  # fmt: skip
    assert {row[1] for row in table.rows} == {"2"}
    assert {cell for row in table.rows for cell in row[4:8]} == {"unknown"}
    assert [block.text for block in parts if isinstance(block, Notice)] == ["text_1 is instances=2; rank 1"]


def test_a_percentile_of_too_few_samples_is_marked() -> None:
    """With what the mark means."""
    parts = list(blocks(served(certified=False), ONE))
    (table,) = (block for block in parts if isinstance(block, Table))

    assert [row[3] for row in table.rows] == ["~10 ms", "~20 ms", "~30 ms"]
    assert isinstance(parts[-1], Notice)
    assert parts[-1].text.startswith("~ marks a percentile of too few samples")


def test_a_percentile_that_only_the_result_has_is_its_quantile() -> None:
    """The mean in its place could be less than the median beside it."""
    samples = [1e-3] * 90 + [9e-3] * 10
    study = a_served_study("concurrency=1", default={}, name="text")
    trial = replace(a_trial({"concurrency": 1}, an_answer("throughput", 10.0)), result="0123456789ab")
    options = ViewOptions(
        configurations=("default",), load_result=lambda _: a_result(samples=samples, id="0123456789ab")
    )
    (table,) = (b for b in blocks(add_trials(study, (trial,)), options) if isinstance(b, Table))
    row = dict(zip((column.title for column in table.columns), table.rows[0], strict=True))

    assert row["p99"].endswith("9.00 ms")


def test_power_and_devices_of_a_load_are_shown_where_they_were_measured() -> None:
    """A load without them says unknown; no use is 0 %, which is a figure."""
    study = a_served_study("concurrency=1,2", default={}, name="text")
    measured = (an_answer("power.mean", 75.0), an_answer("gpu_utilization.mean", 0.0))
    trials = (
        a_trial({"concurrency": 1}, an_answer("throughput", 10.0), *measured),
        a_trial({"concurrency": 2}, an_answer("throughput", 20.0)),
    )
    options = ViewOptions(configurations=("default",))
    (table,) = (b for b in blocks(add_trials(study, trials), options) if isinstance(b, Table))
    by_title = {column.title: [row[n] for row in table.rows] for n, column in enumerate(table.columns)}

    assert by_title["power"] == ["75 W", "unknown"]
    assert by_title["device use"] == ["0%", "unknown"]
    assert by_title["instances"] == ["unknown", "unknown"]


def test_a_page_of_configurations_has_their_curves_alone() -> None:
    """One line for each, through its loads; what was not measured has no chart."""
    parts = list(page(served(), ViewOptions(configurations=("1", "default"))))
    plots = [block for block in parts if isinstance(block, Plot)]

    assert [plot.title for plot in plots] == ["Throughput against p99 latency", "p99 latency by load"]
    assert [line.name for line in plots[0].series] == ["text_1", "text_default"]
    assert plots[1].series[0].x == (1.0, 2.0, 4.0)


def test_a_chosen_plot_may_leave_out_what_does_not_grow() -> None:
    """Points in the order of x, without those that are not above the one before."""
    chosen = ChosenPlot(x="concurrency", y="throughput", title="Mine", monotonic=True)
    options = ViewOptions(configurations=("1",), plots=(chosen,))
    (plot,) = (block for block in page(served(), options) if isinstance(block, Plot))

    assert plot.title == "Mine"
    assert plot.series[0].x == (1.0, 2.0)
    assert plot.series[0].y == pytest.approx((20.0, 60.0))

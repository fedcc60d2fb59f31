"""A configuration has one value of a metric, wherever a study shows it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_trials import a_trial, add_trials, an_answer

from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.blocks import Table
from modeldyno.base.report.charts import Plot
from modeldyno.base.views.view_options import PLAIN
from modeldyno.sweeps.study.pooled_estimate import shown_value
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.study.study import TrialPurpose
from modeldyno.sweeps.study.study_progress import describe_progress
from modeldyno.sweeps.views.blocks import headline
from modeldyno.sweeps.views.charts import charts
from modeldyno.sweeps.views.configurations import load_table
from modeldyno.sweeps.views.page import all_configurations
from modeldyno.sweeps.views.tables import best_table, numbers
from modeldyno.testing.sample_studies import a_served_study, a_study, make_goal

if TYPE_CHECKING:
    from modeldyno.sweeps.study.study import Study


def noisy_study() -> Study:
    """Two starts of the default differ tenfold, and only one of them certifies its tail."""
    trials = [
        a_trial({"batch_size": 2}, an_answer("throughput", 900.0), stage=TrialPurpose.SEARCH),
        *(
            a_trial(
                {"batch_size": 1},
                an_answer("throughput", rate, error=error),
                an_answer("latency.p50", median),
                an_answer("latency.p90", tail, size=9.0),
                stage=TrialPurpose.VERIFY,
            )
            for rate, error, median, tail in ((1550.0, 0.01, 0.00042, 0.00051), (220.0, 0.9, 0.004, None))
        ),
    ]
    goal = make_goal(maximize="throughput")
    return add_trials(a_study("batch_size=1,2", default={"batch_size": 1}, goal=goal), trials)


def test_every_table_and_chart_has_the_same_value() -> None:
    """Those of the best, of every configuration, of one in detail, and the points of the charts."""
    study = noisy_study()
    ranked = ranking(study)
    row = ranked.default
    assert row is not None
    value = shown_value(study, study.candidates[(("batch_size", 1),)], Query.parse("throughput"))
    tables = [
        best_table(study, ranked, 5),
        *all_configurations(study, ranked),
        *load_table(study, row, PLAIN),
    ]
    rates = {
        match
        for table in tables
        if isinstance(table, Table)
        for line in table.rows
        if "1" in line
        for match in re.findall(r"([\d,]+)/s", " ".join(line))
    }
    drawn = [
        y
        for plot in charts(study, ranked)
        if isinstance(plot, Plot) and plot.title == "throughput against batch_size"
        for x, y in zip(plot.series[0].x, plot.series[0].y, strict=True)
        if x == 0
    ]

    assert value is not None
    assert drawn == [value]
    assert {float(rate.replace(",", "")) for rate in rates} <= {
        float(f"{value:.2g}"),
        float(f"{value:.3g}"),
        900.0,
    }


def test_percentiles_of_a_configuration_rise() -> None:
    """A median of two runs is not shown beside a tail of one of them."""
    study = noisy_study()
    candidate = study.candidates[(("batch_size", 1),)]

    assert shown_value(study, candidate, Query.parse("latency.p50")) == pytest.approx(
        (0.00042 * 0.004) ** 0.5
    )
    assert shown_value(study, candidate, Query.parse("latency.p90")) is None


def test_a_load_that_is_a_product_of_knobs_is_shown_as_its_number() -> None:
    """In the headline, the table of the best, the numbers of all trials, and the progress."""
    study = a_served_study("instances=2,3", "concurrency=2*instances*max_batch", settings={"max_batch": 8})
    trials = [
        a_trial({"instances": n, "concurrency": "2*instances*max_batch"}, an_answer("throughput", 100.0 * n))
        for n in (2, 3)
    ]
    study = add_trials(study, trials)
    table = best_table(study, ranking(study), 2)
    columns = [column.title for column in numbers(study).columns]

    assert "concurrency=48 gives" in headline(study)
    assert "concurrency=48" in describe_progress(study)
    assert "2*instances" not in str(table)
    assert [row[columns.index("concurrency")] for row in numbers(study).rows] == ["32", "48"]

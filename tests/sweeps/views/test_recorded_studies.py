"""Recorded studies in every view: a configuration has one value of a metric, and its percentiles rise."""

from __future__ import annotations

import lzma
import math
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.metrics.metric import METRICS, Query
from modeldyno.base.report.blocks import Table
from modeldyno.base.report.charts import Plot
from modeldyno.base.stats.units import parse_quantity
from modeldyno.base.views.view_options import PLAIN, ViewOptions
from modeldyno.reports import html, markdown, terminal
from modeldyno.sweeps import codec
from modeldyno.sweeps.study.pooled_estimate import shown_value
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.views.blocks import blocks, brief, headline
from modeldyno.sweeps.views.charts import candidates_by_load, charts
from modeldyno.sweeps.views.configurations import configuration_page, load_table
from modeldyno.sweeps.views.page import page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.report.blocks import Block
    from modeldyno.sweeps.study.study import Candidate, Study

RECORDED = sorted((Path(__file__).parents[2] / "golden" / "studies").glob("*.json.xz"))
PERCENTILES = ("p50", "p90", "p95", "p99")


@pytest.fixture(params=RECORDED, ids=lambda path: path.name.partition(".")[0])
def study(request: pytest.FixtureRequest) -> Study:
    """Give each of them."""
    return codec.decode(lzma.decompress(request.param.read_bytes()))


def queries(table: Table) -> dict[int, Query]:
    """Give the columns of a table that are of one metric each."""
    titles = [column.title for column in table.columns]
    names = {name: f"latency.{name}" for name in PERCENTILES} | {"p99 latency": "latency.p99"}
    known = {"throughput", "latency.p50", "latency.p99", *names}
    return {at: Query.parse(names.get(title, title)) for at, title in enumerate(titles) if title in known}


def number(cell: str, query: Query) -> float | None:
    """Read a figure of a table; None of what is unknown, or only bounded."""
    figure = cell.partition(" ±")[0].removeprefix("about ").lstrip("~")
    if not figure[:1].isdigit():
        return None
    return parse_quantity(figure.replace(",", ""), METRICS[query.metric].unit)


def tables(view: Iterator[Block]) -> list[Table]:
    """Give the tables of a view."""
    return [block for block in view if isinstance(block, Table)]


def of_load(candidates: list[Candidate], row: tuple[str, ...]) -> Candidate:
    """Give the candidate of a row under a load."""
    return next(each for each in candidates if str(each.point["concurrency"]) == row[0])


def check(study: Study, table: Table, row: tuple[str, ...], candidate: Candidate) -> int:
    """Compare the figures of a row with those of the candidate; return how many there are."""
    count = 0
    for at, query in queries(table).items():
        if (shown := number(row[at], query)) is not None:
            value = shown_value(study, candidate, query)
            assert value is not None, (table.title, row)
            assert shown == pytest.approx(value, rel=0.06), (table.title, row, str(query))
            count += 1
    return count


def test_each_table_has_the_value_of_the_configuration(study: Study) -> None:
    """That of the best, of every configuration, under each load, and of one in detail."""
    ranked, checked = ranking(study), 0
    best = {str(row.rank): study.candidates[tuple(sorted(row.point.items()))] for row in ranked.rows}
    for table in [*tables(blocks(study)), *tables(page(study))]:
        if table.columns[0].title == "" and queries(table):
            checked += sum(check(study, table, row, best[row[0]]) for row in table.rows if row[0] in best)
    for row in ranked.rows:
        candidates = candidates_by_load(study, row)
        name = "default" if row.default else str(row.rank)
        detail = configuration_page(study, [row], ViewOptions(configurations=(name,)))
        for table in [*load_table(study, row, PLAIN), *tables(detail)]:
            if table.columns[0].title == "concurrency":
                checked += sum(check(study, table, each, of_load(candidates, each)) for each in table.rows)

    assert checked > 30


def test_percentiles_rise_in_every_table(study: Study) -> None:
    """The median is no more than what nine of ten requests take, whatever each was pooled of."""
    views = [*tables(blocks(study)), *tables(page(study))]
    views += [table for row in ranking(study).rows for table in load_table(study, row, PLAIN)]
    for table in views:
        columns = {query.statistic: at for at, query in queries(table).items() if query.metric == "latency"}
        for row in table.rows:
            times = [
                number(row[columns[name]], Query.parse(f"latency.{name}"))
                for name in PERCENTILES
                if name in columns
            ]
            known = [time for time in times if time is not None]
            assert known == sorted(known), (table.title, row)


def test_charts_draw_the_values_of_the_tables(study: Study) -> None:
    """Each point of a curve is a candidate, with its throughput."""
    ranked = ranking(study)
    values = {
        value
        for candidate in study.candidates.values()
        if (value := shown_value(study, candidate, Query.parse("throughput"))) is not None
    }
    drawn = [
        y
        for plot in charts(study, ranked)
        if isinstance(plot, Plot) and plot.title.lower().startswith("throughput against")
        for series in plot.series
        for y in series.y
        if not math.isnan(y)
    ]

    assert drawn
    assert set(drawn) <= values


def test_lists_and_files_have_the_value_of_the_best(study: Study) -> None:
    """The line of a list, the first sentence, Markdown, a page and a terminal."""
    ranked = ranking(study)
    assert ranked.best is not None
    objective = study.goal.objectives[0].query
    best = study.candidates[tuple(sorted(ranked.best.point.items()))]
    value = shown_value(study, best, objective)
    written = brief(study).removeprefix(f"{objective} ").partition(" (")[0].partition(" at ")[0]
    report = list(page(study))

    assert value is not None
    assert number(written, objective) == pytest.approx(value, rel=0.06)
    assert f"gives {objective} {written}" in headline(study)
    for text in (
        terminal.text(blocks(study)),
        markdown.lay_out(report, title="A study"),
        html.lay_out(report, title="A study"),
    ):
        assert written in unescape(text).replace("\u00a0", " ")

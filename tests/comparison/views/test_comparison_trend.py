from __future__ import annotations

from dataclasses import replace
from math import isnan

from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.axes import axes_of
from modeldyno.base.report.blocks import Heading, Notice, Severity, Table
from modeldyno.base.report.charts import Plot
from modeldyno.comparison.change.trend import Reading, Trend, trend
from modeldyno.comparison.views.trend import blocks as laid_out
from modeldyno.comparison.views.trend import headline, numbers, page, picture, sparkline
from modeldyno.testing.sample_series import a_trend

LATENCY = Query.parse("latency.p50")


def history(*values: float, torch_from: int | None = None, model_from: int | None = None) -> Trend:
    readings = [
        Reading(
            result=f"{place:012x}",
            created=f"2026-01-{1 + place:02}T00:00:00+00:00",
            value=value * (1 + (0.004, -0.004, 0.001)[place % 3]),
            digest="new" if model_from is not None and place >= model_from else "old",
            hardware={"cores": 2},
            software={"torch": "2.2" if torch_from is not None and place >= torch_from else "2.1"},
        )
        for place, value in enumerate(values)
    ]
    return trend("net", LATENCY, readings, setup=("backend torch",), left_out=3)


def texts(a_trend: Trend) -> list[str]:
    return [block.text for block in laid_out(a_trend) if isinstance(block, Notice)]


def test_a_step_with_another_version_is_not_held_against_the_model() -> None:
    """It is told with both versions, as a note."""
    a_trend = history(*[1.0] * 8, *[1.2] * 8, torch_from=8, model_from=8)
    (notice,) = [b for b in laid_out(a_trend) if isinstance(b, Notice) and "not counted" in b.text]
    assert notice.severity is Severity.NOTE
    assert "torch 2.1 → 2.2) together with the model" in notice.text
    assert "after a step of +20" in headline(a_trend)


def test_a_step_to_disturbed_results_is_not_held_against_the_model() -> None:
    """It says on which side of it others used the cores."""
    for before, after, when in ((1.0, 1.2, "from there on"), (1.2, 1.0, "before")):
        steady = history(*[before] * 8, *[after] * 8)
        readings = [
            replace(reading, disturbed=(place >= 8) is (after > before))
            for place, reading in enumerate(steady.readings)
        ]
        a_trend = trend("net", LATENCY, readings)
        (notice,) = [b for b in laid_out(a_trend) if isinstance(b, Notice) and "not counted" in b.text]
        assert notice.severity is Severity.NOTE
        assert f"other processes used its cores {when}" in notice.text
        assert not a_trend.regressions


def test_a_step_that_nothing_explains_says_so() -> None:
    """To the worse it is a broken one, to the better a held one."""
    worse = [b for b in laid_out(history(*[1.0] * 8, *[1.2] * 8)) if isinstance(b, Notice)]
    assert any("no known change of the model" in b.text and b.severity is Severity.BROKEN for b in worse)
    better = [b for b in laid_out(history(*[1.2] * 8, *[1.0] * 8)) if isinstance(b, Notice)]
    assert any(b.severity is Severity.HELD for b in better)


def test_a_step_that_was_undone_is_a_note() -> None:
    """It stands no more."""
    a_trend = history(*[1.0] * 8, *[1.2] * 8, *[1.0] * 8)
    assert any("reverted since" in text for text in texts(a_trend))


def test_a_change_of_the_environment_without_a_step_is_told() -> None:
    """As one that did nothing."""
    assert any("no step in the metric" in text for text in texts(history(*[1.0] * 9, torch_from=4)))


def test_levels_are_a_table() -> None:
    """With how many results each has, and the change; one level needs none."""
    (table,) = [b for b in laid_out(history(*[1.0] * 8, *[1.2] * 7)) if isinstance(b, Table)]
    assert [row[2] for row in table.rows] == ["8", "7"]
    assert table.rows[1][4].startswith("+2")
    assert not [b for b in laid_out(history(*[1.0] * 8)) if isinstance(b, Table)]


def test_what_it_rests_on_is_said() -> None:
    """How many results, their scatter, what would show, what was left out."""
    text = texts(history(*[1.0] * 8))[-1]
    assert "8 results of backend torch" in text
    assert "a step of 3.0% is detectable" in text
    assert "3 stored results left out: another setup" in text
    assert "left out" not in texts(replace(history(*[1.0] * 8), left_out=0))[-1]


def test_a_sparkline_fits_its_width() -> None:
    """Of more numbers than characters the median of each part stands for it; equal ones are low."""
    assert sparkline([1.0, 2.0, 3.0], 10) == "▁▅█"
    assert sparkline([1.0] * 100 + [2.0] * 100, 4) == "▁▁██"
    assert sparkline([5.0], 4) == "▁"


def test_a_picture_has_the_levels_and_the_environment() -> None:
    """A line of levels, points of results, a rule where the environment changed."""
    plot = picture(history(*[1.0] * 8, *[1.2] * 8, torch_from=8))
    results, levels = plot.series
    assert len(results.x) == 16
    assert levels.x == (0.5, 8.5, 8.5, 16.5)
    assert levels.y[1] < levels.y[2]
    assert not results.joined
    (rule,) = plot.rules
    assert (rule.at, rule.vertical) == (8.5, True)
    assert "torch 2.1" in rule.name


def test_a_picture_has_the_steps_and_the_intervals() -> None:
    """Where the level changed and the environment did not, a rule has the size of the step."""
    a_trend = history(*[1.0] * 8, *[1.2] * 8)
    sure = replace(a_trend.readings[0], interval=Interval(low=0.9, high=1.1))
    drawn = picture(replace(a_trend, readings=(sure, *a_trend.readings[1:])))
    (rule,) = drawn.rules
    assert (rule.at, rule.name) == (8.5, f"{a_trend.steps[0].change:+.1%}")
    assert (drawn.series[0].low[0], drawn.series[0].high[0]) == (0.9, 1.1)
    assert isnan(drawn.series[0].low[1])


def test_a_page_has_the_picture_between_what_is_said_and_the_results() -> None:
    """First the sentence, then the picture and the levels, then every result, the newest first."""
    a_trend = history(*[1.0] * 8, *[1.2] * 8)
    blocks = list(page(a_trend))
    assert isinstance(blocks[0], Notice)
    assert blocks[0].text == headline(a_trend)
    assert picture(a_trend) == next(block for block in blocks if isinstance(block, Plot))
    assert not any(isinstance(block, Notice) and block.code == "course" for block in blocks)
    assert [block.title for block in blocks if isinstance(block, Heading)] == ["The history", "The results"]
    assert isinstance(blocks[-1], Table)
    assert [row[1] for row in blocks[-1].rows] == [r.result[:6] for r in reversed(a_trend.readings)]


def test_the_numbers_are_unrounded() -> None:
    """A row for each result; what has no interval leaves its ends empty."""
    a_trend = history(*[1.0] * 8)
    first = a_trend.readings[0]
    assert numbers(a_trend).rows[0] == (first.created, first.result, repr(first.value), "", "", "old")


def test_the_axis_of_a_history_has_its_dates() -> None:
    """Each result stands at its place, and ticks say when it was measured."""
    chart = picture(a_trend())
    axis, _ = axes_of(chart)

    assert axis is not None
    assert axis.ticks[0] == (1.0, "2026-01-01")
    assert len(axis.ticks) <= 8
    assert all(at.is_integer() for at, _ in axis.ticks)

from __future__ import annotations

from math import inf, nan

import pytest
from tests.support.sample_reports import hostile_blocks

from modeldyno.base.report.charts import (
    AxisScale,
    Band,
    Bins,
    Effect,
    Forest,
    Parallel,
    Picture,
    Plot,
    ReferenceLine,
    Series,
    Stack,
    Tree,
    TreeNode,
    Waterfall,
    WaterfallStep,
)
from modeldyno.base.views.chart_text import chart_numbers, describe_chart, format_on_axis

TIME = AxisScale(label="latency", unit="s")
LINE = Series(
    name="line", x=(1.0, 2.0), y=(0.001, 0.003), labels=("a", "b"), low=(0.0009, nan), high=(0.0011, nan)
)
PLOT = Plot(
    title="p",
    x=AxisScale(label="load"),
    y=TIME,
    series=(LINE,),
    rules=(ReferenceLine(name="bound", at=0.05), ReferenceLine(name="knee", at=2.0, vertical=True)),
    bands=(Band(name="warm-up", low=-1.0, high=0.0),),
)
STACK = Stack(
    title="s",
    scale=TIME,
    bars=("one", "two"),
    parts=(Series(name="queue", x=(1.0,), y=(0.003,)), Series(name="model", x=(0.0, 1.0), y=(0.001, 0.002))),
)
TREE = Tree(
    title="t",
    scale=TIME,
    root=TreeNode(
        name="m", value=2.0, children=(TreeNode(name="a", value=1.5), TreeNode(name="b", value=0.5))
    ),
)
FOREST = Forest(
    title="f",
    effects=(
        Effect(name="latency", value=0.1, low=0.05, high=inf, smallest=0.03, outcome="worse"),
        Effect(name="load_time", value=-0.5, low=-inf, high=0.0, smallest=0.03, outcome="undecided"),
        Effect(name="first_call", value=-0.9998, low=-0.9999, high=-0.9995, smallest=0.25, outcome="better"),
        Effect(name="throughput", value=12.0, low=-inf, high=inf, smallest=0.03, outcome="undecided"),
    ),
)


@pytest.mark.parametrize(
    ("picture", "sentence"),
    [
        (
            PLOT,
            (
                "Plot of latency against load. line: 2 points, load 1 to 2, latency 1.00 ms to 3.00 ms; "
                "line bound at 50.0 ms; line knee at 2; shaded: warm-up."
            ),
        ),
        (
            STACK,
            (
                "2 bars of latency, 1.00 ms to 5.00 ms, each divided into queue, model; the largest part is "
                "queue, with 50.0% of all."
            ),
        ),
        (TREE, "latency of 2.00 s in total, divided among 2 parts; the largest: a (75.0%), b (25.0%)."),
        (
            FOREST,
            (
                "Differences with their 95 % intervals: latency +10.0%, worse; load_time -50.0%, undecided; "
                "first_call 5,000x less, better; throughput 13x more, undecided."
            ),
        ),
        (
            Parallel(
                title="l", scales=(TIME, TIME), lines=(Series(name="a", x=(0.0,), y=(1.0,), marked=True),)
            ),
            "1 line across latency, latency; highlighted: a.",
        ),
    ],
)
def test_a_picture_is_said_in_a_sentence(picture: Picture, sentence: str) -> None:
    """The sentence names the axes, where the weight lies, and what is marked."""
    assert describe_chart(picture) == sentence


def test_the_numbers_of_a_plot_are_a_table() -> None:
    """Each point is a row, with its name and its interval where that is known."""
    table = chart_numbers(PLOT)

    assert table is not None
    assert table.rows == (
        ("line", "a", "1", "1.00 ms (900 us to 1.10 ms)"),
        ("line", "b", "2", "3.00 ms"),
    )


def test_the_numbers_of_other_pictures() -> None:
    """Bars that lack a part say so; ends that nothing bounds are no numbers; a histogram has its bins."""
    bins = Bins(title="b", scale=TIME, edges=(0.001, 0.002, 0.003), counts=(3.0, 4.0), counted="calls")
    tables = [chart_numbers(picture) for picture in (STACK, FOREST, bins)]

    assert [table.rows for table in tables if table] == [
        (("one", "—", "1.00 ms"), ("two", "3.00 ms", "2.00 ms")),
        (
            ("latency", "+10.0%", "at least +5.0%", "+3.0%", "worse"),
            ("load_time", "-50.0%", "at most 0%", "+3.0%", "undecided"),
            ("first_call", "5,000x less", "10,000x to 2,000x less", "+25.0%", "better"),
            ("throughput", "13x more", "unknown", "+3.0%", "undecided"),
        ),
        (("1 ms", "2 ms", "3"), ("2 ms", "3 ms", "4")),
    ]


def test_too_many_numbers_are_no_table() -> None:
    """Nobody reads a thousand rows beside a picture; a tree has a table of its own elsewhere."""
    many = Series(name="many", x=tuple(map(float, range(1000))), y=tuple(map(float, range(1000))))

    assert chart_numbers(Plot(title="p", x=TIME, y=TIME, series=(many,))) is None
    assert chart_numbers(TREE) is None


def test_a_place_has_a_name() -> None:
    """Categories are named, what is none of them too; a unit that nobody knows stands as it is."""
    categories = AxisScale(label="k", categories=("all", "basic"))

    assert [format_on_axis(value, categories) for value in (0.0, 1.0, 2.0)] == ["all", "basic", "another"]
    assert format_on_axis(2.5, AxisScale(label="x", unit="FLOP/B")) == "2.5 FLOP/B"


def test_many_series_and_effects_are_counted() -> None:
    """Only the first few are named in a sentence."""
    series = tuple(Series(name=str(n), x=(1.0,), y=(1.0,)) for n in range(11))
    effects = tuple(
        Effect(name=str(n), value=0.0, low=0.0, high=0.0, smallest=0.0, outcome="same") for n in range(10)
    )

    assert "and 3 series more" in describe_chart(Plot(title="p", x=TIME, y=TIME, series=series))
    assert describe_chart(Forest(title="f", effects=effects)).endswith("; and 2 more.")


def test_every_kind_is_told() -> None:
    """There is a sentence for each kind of picture."""
    pictures = [block for block in hostile_blocks("name") if isinstance(block, Picture)]

    assert len({type(picture) for picture in pictures}) == 7
    assert all(describe_chart(picture).endswith(".") for picture in pictures)


def test_a_waterfall_is_told_step_by_step() -> None:
    """What is not known is said so, and what has no spread is computed; a table has where each step ends."""
    steps = (
        WaterfallStep(name="bound", size=0.003, low=0.003, high=0.003),
        WaterfallStep(name="kernels", size=0.001, low=0.0008, high=0.0012),
        WaterfallStep(name="queue", size=None),
        WaterfallStep(name="whole", size=0.004, is_sum=True),
    )
    picture = Waterfall(title="w", scale=TIME, steps=steps)
    table = chart_numbers(picture)

    assert describe_chart(picture).endswith("bound 3.00 ms; kernels 1.0 ms; queue unknown; whole 4.00 ms.")
    assert table is not None
    assert [row[1:] for row in table.rows] == [
        ("3.00 ms", "computed", "3.00 ms"),
        ("1.0 ms", "0.8 to 1.2 ms", "4.00 ms"),
        ("unknown", "", "4.00 ms"),
        ("4.00 ms", "", "4.00 ms"),
    ]

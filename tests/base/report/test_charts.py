from __future__ import annotations

from dataclasses import replace

from modeldyno.base.report.charts import (
    AxisScale,
    Bins,
    Plot,
    ReferenceLine,
    Series,
    TreeNode,
    Waterfall,
    WaterfallStep,
)


def test_a_picture_is_printable() -> None:
    """The words of a picture are clean, alone and in rows of them; its numbers are what they were."""
    series = Series(name="a\nb", x=(0.0, 1.0), y=(3.0, 4.0), labels=("one\x07", "\x1b[2Jtwo"))
    scale = AxisScale(label="x\ty", categories=("\u202ea", "b\x00"))
    made = Plot(title="\x1b[1mt", x=scale, y=AxisScale(label="y"), series=(series,))

    assert (made.title, series.name, series.labels) == ("t", "a b", ("one", "two"))
    assert (scale.label, scale.categories) == ("x y", ("a", "b"))
    assert made.series[0].y == (3.0, 4.0)


def test_a_histogram_is_printable() -> None:
    """Marks and titles of a histogram are clean."""
    mark = ReferenceLine(name="p50\x07", at=0.5, vertical=True)
    made = Bins(
        title="a\nb",
        scale=AxisScale(label="x", unit="s"),
        edges=(0.0, 1.0),
        counts=(3.0,),
        counted="c\x00",
        marks=(mark,),
    )

    assert (made.title, made.counted, made.marks[0].name, made.counts) == ("a b", "c", "p50", (3.0,))


def test_parts_of_a_tree_are_printable() -> None:
    """Each node of a tree has a clean name."""
    root = TreeNode(name="a\nb", value=2.0, children=(TreeNode(name="\x1b[1mc", value=1.0, detail="d\x07"),))

    assert (root.name, root.children[0].name, root.children[0].detail) == ("a b", "c", "d")


def test_a_step_begins_where_the_one_before_ends() -> None:
    """A sum begins at zero, a step of unknown size adds nothing, and one may go down."""
    steps = (
        WaterfallStep(name="a", size=3.0),
        WaterfallStep(name="b", size=None),
        WaterfallStep(name="c", size=-1.0),
        WaterfallStep(name="all", size=2.0, is_sum=True),
        WaterfallStep(name="d", size=1.0),
    )
    made = Waterfall(title="t", scale=AxisScale(label="x"), steps=steps)

    assert made.spans == ((0.0, 3.0), (3.0, 3.0), (3.0, 2.0), (0.0, 2.0), (2.0, 3.0))


def test_a_series_goes_through_points() -> None:
    """Each point has a value for each field that is named; without points they are empty."""
    series = Series.through("s", iter([(1.0, 2.0, "a"), (3.0, 4.0, "b")]), ("x", "y", "labels"), joined=False)

    assert series == Series(name="s", x=(1.0, 3.0), y=(2.0, 4.0), labels=("a", "b"), joined=False)
    assert Series.through("s", ()) == Series(name="s", x=(), y=())


def test_a_value_lies_in_the_bar_that_holds_it() -> None:
    """An edge belongs to the bin above it; above the last one is a bar of its own, if anything is there."""
    bins = Bins(title="t", scale=AxisScale(label="x"), edges=(1.0, 2.0, 3.0), counts=(4.0, 5.0), counted="c")
    tailed = replace(bins, beyond=2.0, reach=9.0)

    assert [bins.bin_of(value) for value in (0.5, 1.0, 2.0, 2.9, 3.0, 9.0)] == [None, 0, 1, 1, None, None]
    assert [tailed.bin_of(value) for value in (2.9, 3.0, 9.0, 9.1)] == [1, 2, 2, None]
    assert (bins.bars, tailed.bars) == ((4.0, 5.0), (4.0, 5.0, 2.0))

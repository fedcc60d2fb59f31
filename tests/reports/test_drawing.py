"""What a picture shows, read from its SVG: text is text there."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import inf, nan
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from tests.support.sample_reports import hostile_blocks, payloads

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra
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
from modeldyno.base.stats.sanitize import clean, shorten
from modeldyno.reports import drawing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytest.importorskip("matplotlib")
SECONDS = AxisScale(label="latency", unit="s")
LOADS = AxisScale(label="concurrency", logarithmic_from=1)
LINE = Series(
    name="p50", x=(1.0, 2.0, 4.0), y=(0.01, 0.02, 0.04), low=(0.009, 0.01, nan), high=(0.011, 0.03, inf)
)
HARMLESS = {
    "svg",
    "title",
    "metadata",
    "defs",
    "style",
    "g",
    "path",
    "text",
    "tspan",
    "use",
    "clipPath",
    "rect",
}
"""Elements that run nothing and load nothing, beside those of the description."""


def drawn(picture: Picture, subtitle: str = "") -> ET.Element:
    return ET.fromstring(drawing.draw(picture, "svg", subtitle))


def texts(root: ET.Element) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text")]


def check_harmless(root: ET.Element) -> None:
    """Check that nothing in a picture runs, loads or links."""
    for element in root.iter():
        space, _, name = element.tag[1:].partition("}")
        assert name in HARMLESS or "svg" not in space
        for key, value in element.attrib.items():
            assert not key.lower().startswith("on")
            if key.endswith("href"):
                assert value.startswith("#")
            assert "url(" not in value or "url(#" in value


def test_titles_axes_units_and_the_note_are_written() -> None:
    plot = Plot(title="Latency by load", x=LOADS, y=SECONDS, series=(LINE,), note="with 95 % intervals")
    labels = texts(drawn(plot, "digits answers in 10 ms."))

    assert {"Latency by load", "digits answers in 10 ms.", "concurrency", "latency (ms)"} <= set(labels)
    assert "with 95 % intervals" in labels
    assert {"1", "2", "4", "0", "10", "20", "30"} <= set(labels)


def test_intervals_are_lines_where_both_ends_are_known() -> None:
    """An end that is not finite is not drawn as if it were."""
    bare = replace(LINE, low=(), high=())
    with_intervals, without = (
        sum(
            "stroke-opacity: 0.7" in (element.get("style") or "")
            for element in drawn(plot).findall(".//{*}path")
        )
        for plot in (Plot(title="a", x=LOADS, y=SECONDS, series=(line,)) for line in (LINE, bare))
    )

    assert with_intervals - without == 2


def test_several_series_are_named() -> None:
    """One alone is named by the title; of very many, the rest is counted."""
    many = tuple(replace(LINE, name=f"series {n}") for n in range(20))
    plot = Plot(title="a", x=LOADS, y=SECONDS, series=many[:2])

    assert {"series 0", "series 1"} <= set(texts(drawn(plot)))
    assert "p50" not in texts(drawn(replace(plot, series=(LINE,))))
    assert "… and 7 more" in texts(drawn(replace(plot, series=many)))


def test_a_plot_shows_bounds_bands_steps_clouds_and_labels() -> None:
    numbers = AxisScale(label="call")
    plot = Plot(
        title="a",
        x=numbers,
        y=replace(SECONDS, logarithmic_from=1),
        series=(
            Series(name="steps", x=(0.0, 5.0, 5.0, 90.0), y=(1.0, 1.0, 1500.0, 1500.0), marked=True),
            Series(name="cloud", x=tuple(map(float, range(90))), y=(1.0,) * 90, joined=False),
            Series(name="long", x=tuple(map(float, range(90))), y=(3.0,) * 90),
            Series(name="named", x=(1.0,), y=(700.0,), labels=("best, of all",), named=1, joined=False),
        ),
        rules=(
            ReferenceLine(name="bound", at=2.0),
            ReferenceLine(name="above all", at=1e9),
            ReferenceLine(name="knee", at=80.0, vertical=True),
        ),
        bands=(Band(name="warm-up", low=-5.0, high=0.0),),
    )
    labels = set(texts(drawn(plot)))

    assert {"bound", "knee", "warm-up", "best", "latency (s)", "above all ↑"} <= labels


def test_a_line_beyond_the_edge_is_an_arrow_towards_it() -> None:
    """On each side of the chart; several are below each other."""
    rules = (
        ReferenceLine(name="high", at=9.0),
        ReferenceLine(name="higher", at=99.0),
        ReferenceLine(name="low", at=-9.0),
        ReferenceLine(name="late", at=900.0, vertical=True),
        ReferenceLine(name="early", at=-900.0, vertical=True),
    )
    plot = Plot(title="a", x=AxisScale(label="n"), y=SECONDS, series=(LINE,), rules=rules)

    assert {"high ↑", "higher ↑", "low ↓", "late →", "← early"} <= set(texts(drawn(plot)))


def test_names_of_points_do_not_cover_each_other() -> None:
    """Three points at one place have their names at three places, each with a line to its point."""
    points = Series(name="layers", x=(2.0,) * 3, y=(1.0,) * 3, labels=("a", "b", "c"), named=3, joined=False)
    root = drawn(Plot(title="t", x=AxisScale(label="n"), y=SECONDS, series=(points,)))
    places = {
        "".join(text.itertext()): text.get("transform") or (text.get("x"), text.get("y"))
        for text in root.iter()
        if text.tag.endswith("}text")
    }

    assert len({places[name] for name in "abc"}) == 3


def test_a_point_that_breaks_a_bound_is_hollow() -> None:
    """It is filled with the ground of the chart."""
    plot = Plot(title="a", x=LOADS, y=SECONDS, series=(LINE,))
    hollow = replace(plot, series=(replace(LINE, hollow=(2,)),))

    assert drawing.draw(plot, "svg").count(b"fill: #ffffff") < drawing.draw(hollow, "svg").count(
        b"fill: #ffffff"
    )


def test_categories_and_stacked_areas() -> None:
    precisions = AxisScale(label="precision", categories=("fp32", "fp16"))
    bars = Series(name="each", x=(0.0, 1.0), y=(5.0, 3.0), joined=False)
    areas = tuple(Series(name=name, x=(0.0, 1.0, 2.0), y=(1.0, nan, 2.0)) for name in ("weights", "rest"))

    assert {"fp32", "fp16", "precision"} <= set(
        texts(drawn(Plot(title="a", x=precisions, y=SECONDS, series=(bars,))))
    )
    stacked = Plot(title="a", x=AxisScale(label="time", unit="s"), y=SECONDS, series=areas, stacked=True)
    assert {"weights", "rest", "latency (s)"} <= set(texts(drawn(stacked)))
    assert texts(drawn(replace(stacked, series=())))


def test_a_histogram_has_its_edges_and_marks() -> None:
    edges = (0.001, 0.002, 0.003, 0.01)
    marks = (ReferenceLine(name="p50", at=0.0015), ReferenceLine(name="far", at=1.0))
    bins = Bins(
        title="Latency", scale=SECONDS, edges=edges, counts=(5.0, 2.0, nan), counted="calls", marks=marks
    )

    assert {"1 ms", "2 ms", "10 ms", "calls", "latency"} <= set(texts(drawn(bins)))
    assert "p50" in texts(drawn(bins))
    assert "far" not in texts(drawn(bins))


def test_what_lies_beyond_the_last_edge_has_a_bar_apart() -> None:
    """It is labelled as such, and holds the marks that lie there."""
    bins = Bins(
        title="Latency", scale=SECONDS, edges=(0.001, 0.002, 0.003), counts=(5.0, 2.0), counted="calls",
        marks=(ReferenceLine(name="p99", at=0.5),), beyond=3.0, reach=1.0,
    )  # fmt: skip

    assert {"> 3 ms", "p99"} <= set(texts(drawn(bins)))


def test_bars_trees_changes_and_coordinates() -> None:
    part = Series(name="queue", x=(0.0,), y=(0.001,))
    stack = Stack(
        title="a", scale=SECONDS, bars=("load 1", "load 2"), parts=(part, replace(part, name="model"))
    )
    tiny = TreeNode(name="tiny", value=1e-9)
    tree = Tree(
        title="a",
        scale=SECONDS,
        root=TreeNode(name="net", value=1.0, children=(TreeNode(name="encoder", value=0.5), tiny)),
    )
    effects = (
        Effect(name="latency", value=0.1, low=0.05, high=0.2, smallest=0.03, outcome="worse"),
        Effect(name="energy", value=9.0, low=-inf, high=inf, smallest=0.03, outcome="undecided"),
        Effect(name="memory", value=nan, low=-0.1, high=0.0, smallest=0.03, outcome="same"),
    )
    precisions = AxisScale(label="precision", categories=("fp32", "fp16"))
    line = Series(name="best of all", x=(0.0, 1.0, 2.0), y=(1.0, 8.0, 0.5), marked=True)
    lines = (line, *(Series(name=f"{n}", x=(0.0, 1.0, 2.0), y=(0.0, 2.0**n, nan)) for n in range(12)))
    parallel = Parallel(title="a", scales=(precisions, LOADS, SECONDS, AxisScale(label="none")), lines=lines)

    assert {"load 1", "queue", "model", "latency (ms)"} <= set(texts(drawn(stack)))
    assert {"net", "encoder"} <= set(texts(drawn(tree)))
    assert "tiny" not in texts(drawn(tree))
    assert {"latency", "worse", "undecided", "0%", "×10"} <= set(
        texts(drawn(Forest(title="a", effects=effects)))
    )
    assert {"precision", "highlighted: best of all"} <= set(texts(drawn(parallel)))
    assert {"fp32", "fp16", "1"} <= set(texts(drawn(parallel)))


def test_a_waterfall_has_a_bar_and_a_label_for_each_step() -> None:
    """A step of unknown size is labelled so; one without any size is drawn, too."""
    steps = (
        WaterfallStep(name="bound", size=0.003, low=0.003, high=0.003),
        WaterfallStep(name="queue", size=None),
        WaterfallStep(name="server", size=-0.001, low=-0.002, high=0.001),
        WaterfallStep(name="whole", size=0.002, is_sum=True),
    )
    labels = texts(drawn(Waterfall(title="w", scale=SECONDS, steps=steps)))
    assert {"bound", "3.00 ms", "queue", "unknown", "server", "-1.0 ms", "whole", "2.00 ms"} <= set(labels)
    assert "unknown" in texts(drawn(Waterfall(title="w", scale=SECONDS, steps=steps[1:2])))


def test_numbers_without_end_and_without_range_are_drawn() -> None:
    """As an empty chart in the worst case."""
    for ys in ((inf, nan, -inf), (0.0, 0.0, 0.0), (1e300, -1e300, 5e-324), (-1.0, -2.0, -3.0)):
        for ratio in (1, inf):
            scale = AxisScale(label="y", logarithmic_from=ratio)
            plot = Plot(title="a", x=LOADS, y=scale, series=(replace(LINE, y=ys, low=(), high=()),))
            assert "y" in texts(drawn(plot))


def test_the_same_chart_gives_the_same_bytes() -> None:
    plot = Plot(title="a", x=LOADS, y=SECONDS, series=(LINE, replace(LINE, name="p99")))

    assert drawing.draw(plot, "svg") == drawing.draw(plot, "svg")
    assert drawing.draw(plot, "png").startswith(b"\x89PNG")


def test_the_ground_is_white() -> None:
    """A picture is read on dark pages too: it brings its own background."""
    first = drawn(Plot(title="a", x=LOADS, y=SECONDS, series=(LINE,))).findall(".//{*}path")[0]

    assert "fill: #ffffff" in str(first.get("style"))


def test_no_state_of_matplotlib_is_left_changed() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    drawing.draw_first([], "nothing", "svg")
    assert dict(mpl.rcParams) == before


def attacked_charts(attacks: Sequence[str]) -> Iterator[Picture]:
    """Yield charts that have every attacking text as the name of something."""
    waiting = iter(attacks)
    while names := tuple(islice(waiting, 40)):
        values = tuple(float(n) for n in range(len(names)))
        yield Stack(
            title=names[0],
            scale=SECONDS,
            bars=names,
            parts=tuple(Series(name=name, x=values, y=values) for name in names[:3]),
            note=names[1],
        )


@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.slow)])
def test_attacking_names_stay_text(every: int) -> None:
    """Each of 32, or of 500, is read back as it is, or cut, from a file that nothing in it can act on."""
    attacks = payloads()[::every]
    drawn_texts: set[str] = set()
    for chart in attacked_charts(attacks):
        root = drawn(chart)
        check_harmless(root)
        drawn_texts |= set(texts(root))
    assert {shorten(clean(name), 34) for name in attacks} <= drawn_texts


@pytest.mark.parametrize(
    "text", ["<svg onload=x>]]>--><script>1</script>", "$x^{2$ \\alpha _ %s {0}", "模型 كشف 🧪"]
)
def test_attacking_names_stay_text_in_every_kind_of_chart(text: str) -> None:
    """Formulas are not set, markup is not read, and letters that the font lacks come out as text."""
    for block in hostile_blocks(text):
        if isinstance(block, Picture):
            root = drawn(block, text)
            check_harmless(root)
            assert text in texts(root)


def test_a_name_without_end_is_cut() -> None:
    for block in hostile_blocks("x" * 10_000):
        if isinstance(block, Picture):
            assert max(map(len, texts(drawn(block, "y" * 10_000)))) <= 120


def test_without_the_package_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "missing", tuple)

    with pytest.raises(MissingExtra, match="pip install matplotlib"):
        drawing.draw_first([], "nothing", "svg")

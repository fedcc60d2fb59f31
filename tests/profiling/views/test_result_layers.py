"""How watched layers are shown: the tree, the sentence, and the roofline."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.report.blocks import Notice, Table
from modeldyno.base.result.static_data import Module, StaticReport
from modeldyno.base.result.trace_data import Layer, TraceReport
from modeldyno.profiling import views
from modeldyno.profiling.views import ViewOptions
from modeldyno.profiling.views.result.layer_tree import build_layer_tree, layer_seconds
from modeldyno.profiling.views.result.layers import layers
from modeldyno.reports import html, markdown, terminal
from modeldyno.testing.sample_results import a_job, a_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

MS = 1e-3
# Path to class, own time in ms and MACs: three alike layers of two parts in a list, and a head.
NET: dict[str, tuple[str, float, float]] = {
    "": ("Net", 1.0, 0.0),
    "layer": ("", 0.0, 0.0),
    **{
        path: row
        for n in range(3)
        for path, row in {
            f"layer.{n}": ("Block", 0.5, 0.0),
            f"layer.{n}.wide": ("Linear", 8.0, 16e6),
            f"layer.{n}.norm": ("Norm", 1.0, 1e3),
        }.items()
    },
    "head": ("Linear", 0.5, 1e6),
}
LAYERS = tuple(Layer(path=path, kind=kind, calls=1.0 if kind else 0.0) for path, (kind, _, _) in NET.items())


def within(path: str) -> float:
    """Return the time of a layer with its children, in ms."""
    return sum(own for other, (_, own, _) in NET.items() if other == path or other.startswith(f"{path}."))


def of(path: str, factors: tuple[float, ...]) -> list[Measurement]:
    """Make the measurements of a layer: a sample for each factor."""
    kind, own, flops = NET[path]
    del kind
    values = {"self_time": own} | ({"latency": within(path)} if path else {})
    items = [
        Measurement(
            metric=metric, scope=path, value=Distribution.of([factor * value * MS for factor in factors])
        )
        for metric, value in values.items()
    ]
    counts = {"flops": 2 * flops, "macs": flops, "bytes_read": 8e3, "bytes_written": 8e3, "weight_bytes": 4e3}
    counts["output_bytes"] = 400.0
    return items + [Measurement(metric=m, scope=path, value=v) for m, v in counts.items() if path and flops]


def watched(factors: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0), **changes: Any) -> Result:
    """Make a Result of a network whose layers were watched."""
    measured = [m for path in NET for m in of(path, factors)]
    measured += [
        observed_number("pass_overhead", 1.12, scope="layers"),
        observed_number("unattributed", 0.03, scope="layers"),
    ]
    peaks = [
        Measurement(metric="peak_flops", scope="here", value=8e9),
        Measurement(metric="peak_bandwidth", scope="here", value=1e9),
        Measurement(metric="roofline_latency", scope="here", value=0.01225),
        Measurement(metric="macs", value=49e6),
        Measurement(metric="flops", value=98e6),
    ]
    made: dict[str, Any] = {"measurements": (*measured, *peaks), "activity": TraceReport(layers=LAYERS)}
    return a_result(**(made | changes))


def lay_out_layers(
    result: Result, options: ViewOptions = views.PLAIN
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return the rows of the table by their first cell, and the sentences."""
    blocks = list(layers(result, options))
    rows = {row[0]: row[1:] for block in blocks if isinstance(block, Table) for row in block.rows}
    return rows, [block.text for block in blocks if isinstance(block, Notice)]


def test_alike_layers_are_one_row_with_their_sum() -> None:
    """Every row has time, share, own time, rate and place; children and own time add up."""
    rows, _ = lay_out_layers(watched())

    assert list(rows) == [
        "Net", "· layer.0-2 (3 x Block)", "· · wide (3 x Linear)", "· · norm (3 x Norm)", "· head (Linear)",
    ]  # fmt: skip
    assert rows["Net"][:3] == ("30.0 ms", "100%", "1.00 ms")
    assert rows["· layer.0-2 (3 x Block)"][:3] == ("28.5 ms", "95.0%", "1.50 ms")
    assert rows["· · wide (3 x Linear)"] == (
        "24.0 ms", "80.0%", "24.0 ms", "48.0 M", "1.17 KiB", "4.00 G", "50% of compute",
    )  # fmt: skip
    assert rows["· · norm (3 x Norm)"][6] == "<1% of peak"


def test_the_whole_stands_under_the_bound_of_the_analysis() -> None:
    """Its bound is that of the whole network, not the sum of those of its layers."""
    rows, _ = lay_out_layers(watched())

    assert rows["Net"][3:] == ("49.0 M", "—", "3.27 G", "41% of compute")


def test_columns_that_are_unknown_are_left_out() -> None:
    """Without the static analysis nobody knows the MACs; what a layer returned was seen."""
    complete = watched()
    items = tuple(m for m in complete.measurements if m.metric in {"latency", "self_time", "output_bytes"})
    (table,) = (b for b in layers(replace(complete, measurements=items), views.PLAIN) if isinstance(b, Table))

    assert [column.title for column in table.columns] == ["layer", "time", "share", "own", "output"]


def test_eighty_columns_have_the_costs_of_each_layer() -> None:
    """Its own time and then its rate give way; no row is broken; a wider terminal has all of them."""
    blocks = list(layers(watched(), views.PLAIN))
    narrow, wide = (terminal.text(blocks, width=width).splitlines() for width in (80, 120))

    assert ["layer", "time", "share", "MACs", "output", "roofline"] in [line.split() for line in narrow]
    assert sum("(3 x" in line for line in narrow) == 3
    assert ["layer", "time", "share", "own", "MACs", "output", "FLOP/s", "roofline"] in [
        line.split() for line in wide
    ]


def test_more_than_the_roof_is_explained() -> None:
    """Data that came from a cache came faster than from memory; without such a row nothing is said."""
    document = watched()
    slow = tuple(
        replace(m, value=1e5 if m.metric == "peak_bandwidth" else m.value)
        for m in document.measurements
        if (m.metric, m.scope) != ("roofline_latency", "here")
    )
    rows, texts = lay_out_layers(replace(document, measurements=slow))

    cell = rows["· head (Linear)"][6]
    assert cell.endswith("% of memory")
    assert float(cell.removesuffix("% of memory")) > 100
    (sentence,) = (text for text in texts if text.startswith("over 100 % of the roof"))
    assert "came from a cache" in sentence
    assert not [text for text in lay_out_layers(document)[1] if text.startswith("over 100 %")]


def test_a_layer_that_is_a_mere_number_is_named_with_its_class() -> None:
    """The third part of a sequence is called by its number and what it is."""
    times = {"": 0.5, "0": 1.0, "2": 2.0}
    items = [
        Measurement(metric=metric, scope=path, value=Distribution.of([time * MS] * 4))
        for path, time in times.items()
        for metric in ("latency", "self_time")
        if path or metric == "self_time"
    ]
    made = tuple(Layer(path=path, kind="Linear" if path else "Sequential") for path in times)
    _, texts = lay_out_layers(a_result(measurements=tuple(items), activity=TraceReport(layers=made)))

    assert texts[0].startswith("the layer 2 (Linear) takes ")


def test_the_sentence_names_what_takes_most() -> None:
    """It goes down to where there is a choice, past what is around everything."""
    _, texts = lay_out_layers(watched())

    assert texts[0] == "layer.0-2.wide takes 80.0% of the time: 24.0 ms of 30.0 ms"


def test_the_layers_with_most_time_to_win_are_named() -> None:
    """Most first: what they take beyond their bound."""
    _, texts = lay_out_layers(watched())

    assert texts[1] == (
        "most time to gain, by the roofline of this machine: layer.0-2.wide: 12.0 ms (compute-bound, 50% "
        "of the roofline); layer.0-2.norm: 2.99 ms (<1% of the machine's peak); head: 250 us "
        "(compute-bound, 50% of the roofline)"
    )
    assert texts[2] == (
        "measuring the layers slowed the call by 12%, which is subtracted; "
        "3.0% of the time is outside any layer"
    )


def test_a_share_that_a_doubt_tells_is_not_told_twice() -> None:
    """With the doubt `unattributed`, the sentence on the cost of measuring ends before the share."""
    doubt = Doubt(code="unattributed", seen="47% of the time of a call is spent in no module", advice="look")
    _, texts = lay_out_layers(watched(doubts=(doubt,)))

    assert texts[2] == "measuring the layers slowed the call by 12%, which is subtracted"


def test_a_call_with_a_hiccup_changes_nothing() -> None:
    """The middle half of the calls is shown: fastest and slowest are left out of every layer alike."""
    rows, _ = lay_out_layers(watched((1.0, 0.1, 40.0, 1.0)))

    assert rows["· head (Linear)"][0] == "500 us"
    assert rows["Net"][0] == "30.0 ms"


def test_without_an_analysis_there_is_time_alone() -> None:
    """No rate and no roof where nothing was counted."""
    document = watched()
    times = tuple(m for m in document.measurements if m.metric in {"latency", "self_time"})
    rows, texts = lay_out_layers(replace(document, measurements=times))

    assert rows["· · wide (3 x Linear)"] == ("24.0 ms", "80.0%", "24.0 ms")
    assert len(texts) == 1


def test_what_ran_on_a_device_is_not_held_to_the_processor() -> None:
    """The peaks of this machine are those of its processor."""
    document = watched()
    place = replace(document.environment, conditions={"device": "cuda:0"})
    rows, _ = lay_out_layers(replace(document, environment=place))

    assert len(rows["Net"]) == 5  # neither rate nor roofline


def test_layers_that_are_light_or_deep_are_left_out_and_counted() -> None:
    """Who asks for a depth gets all of it."""
    rows, _ = lay_out_layers(watched(), ViewOptions(depth=1))
    assert list(rows) == ["Net", "· layer.0-2 (3 x Block)", "· head (Linear)"]
    _, texts = lay_out_layers(watched(), ViewOptions(depth=1))
    assert "left out: 2 layers, deeper; `show --get latency.p50@PATH` shows any of them" in texts

    tiny = {"latency": 1e-9, "self_time": 1e-9}
    light = replace(
        watched(),
        measurements=tuple(
            replace(m, value=Distribution.of([tiny[m.metric]] * 4))
            if m.scope == "head" and m.metric in tiny
            else m
            for m in watched().measurements
        ),
    )
    rows, texts = lay_out_layers(light)
    assert "· head (Linear)" not in rows
    assert any(text.startswith("left out: 1 layer, lighter than 0.5% or deeper") for text in texts)


def test_layers_that_were_asked_for_by_name_are_joined_across_their_numbers() -> None:
    """Only some modules were watched, none of what is around them: alike ones are one row all the same."""
    document = watched()
    wide = tuple(layer for layer in LAYERS if not layer.path or layer.path.endswith("wide"))
    kept = {layer.path for layer in wide}
    measured = tuple(m for m in document.measurements if m.scope in kept or m.scope == "here")
    trust = tuple(m for m in document.measurements if m.scope == "layers")
    job = replace(document.job, observation=ProbeOptions(layers=("wide",)))
    watched_some = replace(
        document, job=job, activity=TraceReport(layers=wide), measurements=(*measured, *trust)
    )
    rows, texts = lay_out_layers(watched_some)

    assert list(rows) == ["Net", "· layer.0-2.wide (3 x Linear)"]
    assert texts[0].startswith("layer.0-2.wide takes 96.0% of the time")
    assert texts[-1].endswith("3.0% of the time is outside the watched layers")


def test_the_class_of_what_holds_layers_comes_from_the_analysis() -> None:
    """A runtime that knows no modules is told their classes by the model's file."""
    document = watched()
    kinds = {path: kind for path, (kind, _, _) in NET.items()} | {"layer": "List"}
    outline = StaticReport(modules=tuple(Module(path=path, kind=kind) for path, kind in kinds.items()))
    two = tuple(layer for layer in LAYERS if layer.path not in {"layer.1", "layer.2"})
    two = tuple(layer for layer in two if not layer.path.startswith(("layer.1.", "layer.2.")))
    two += (Layer(path="layer.odd", kind="Odd"),)
    rows, _ = lay_out_layers(replace(document, outline=outline, activity=TraceReport(layers=two)))

    assert "· layer (List)" in rows


def test_nothing_watched_is_nothing_shown() -> None:
    """A Result without layers, or without their times, has no table of them."""
    assert list(layers(a_result(), views.PLAIN)) == []
    assert list(layers(watched(measurements=()), views.PLAIN)) == []
    lonely = TraceReport(layers=(Layer(path="a", kind="Linear"),))
    assert list(layers(watched(activity=lonely), views.PLAIN)) == []


def test_the_whole_itself_may_take_most() -> None:
    """Work in no layer is named as the model's own."""
    only = TraceReport(layers=(Layer(path="", kind="Net"), Layer(path="head", kind="Linear")))
    bare = TraceReport(layers=(Layer(path="", kind="Net"),))
    assert list(layers(watched(activity=bare), views.PLAIN)) == []
    _, texts = lay_out_layers(watched(activity=only))

    assert texts[0].startswith("the code of the model outside its submodules takes")


def test_every_format_shows_them() -> None:
    """Terminal, page and Markdown have the table; numbers of layers fill no other."""
    document = watched(job=a_job())
    for text in (terminal.render(document), html.render(document), markdown.render(document)):
        assert "layer.0-2" in str(text)
        assert "self_time" not in str(text)


def test_times_below_the_clock_of_the_profile_are_not_resolved() -> None:
    """Of 1 us where the profile counts in 4 us: neither a figure, nor a share of a peak; it says so."""
    result = watched()
    coarse = tuple(
        replace(m, value=replace(m.value, clock_resolution=4e-3 if "norm" in m.scope else 1e-9))
        if isinstance(m.value, Distribution)
        else m
        for m in result.measurements
    )
    laid = list(layers(replace(result, measurements=coarse), ViewOptions(depth=9)))
    (table,) = (block for block in laid if isinstance(block, Table))
    norms = [" ".join(row) for row in table.rows if "norm" in row[0]]

    assert norms
    assert all("<" in row and "%" not in row.partition("%")[2] for row in norms)
    assert any("not resolved" in block.text for block in laid if isinstance(block, Notice))


def test_a_network_gives_the_layers_the_times_of_their_table() -> None:
    """Both show the mean over the same half of the calls, from which the slow ones are left out."""
    document = watched((1.0, 1.0, 1.1, 60.0))
    tree, times = build_layer_tree(document), layer_seconds(document)

    assert tree is not None
    assert times[""] == pytest.approx(tree.time)
    below = {node.path: node.time for node in tree.children if node.count == 1}
    assert below
    assert {path: times[path] for path in below} == pytest.approx(below)

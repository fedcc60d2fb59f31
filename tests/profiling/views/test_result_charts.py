"""What the charts of a Result show, and what they shade or leave out."""

from __future__ import annotations

from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.report.charts import Plot, Stack
from modeldyno.base.result.static_data import MemoryItem, Operator, StaticReport
from modeldyno.base.result.trace_data import LoadSecond, TraceReport
from modeldyno.models.static.graph import Role
from modeldyno.profiling.views.result.charts import cost_charts, draw_request_stages, load_by_second
from modeldyno.testing.sample_results import a_result, an_inspection


def test_what_of_a_load_is_not_measured_is_shaded() -> None:
    """The warm-up and the end; the rate does not fall in the second during which the load ends."""
    seconds = tuple(
        LoadSecond(at=float(at), answered=100 if at < 4 else 7, failed=0, p50=0.01, p95=0.02, p99=0.03)
        for at in range(5)
    )
    latency = Measurement(metric="latency", value=Distribution.of([0.01] * 30, warmup_time=0.6))
    times, rates = load_by_second(a_result(measurements=(latency,), activity=TraceReport(seconds=seconds)))

    for chart in (times, rates):
        assert [(band.name, band.low, band.high) for band in chart.bands] == [
            ("warm-up", 0.0, 0.6), ("end", 4.0, 5.0),
        ]  # fmt: skip
    assert rates.series[0].y == (100.0,) * 4
    assert "is not drawn" in rates.note


def test_a_load_without_a_warm_up_has_an_end_alone() -> None:
    """Also where no latency is valid."""
    seconds = tuple(LoadSecond(at=float(at), answered=0, failed=3) for at in range(3))
    (rates,) = load_by_second(a_result(measurements=(), activity=TraceReport(seconds=seconds)))

    assert isinstance(rates, Plot)
    assert [band.name for band in rates.bands] == ["end"]
    assert [line.name for line in rates.series] == ["answered", "failed"]


def test_a_stage_has_one_colour_in_every_chart() -> None:
    """Whichever stages stand before it there; what is no stage has that of its place."""
    one, other = (
        chart
        for parts in ({"queue": 1.0, "compute: model": 2.0}, {"compute: model": 2.0, "mine": 1.0})
        for chart in draw_request_stages([("load", parts)])
    )

    assert isinstance(one, Stack)
    tints = [{part.name: part.tint for part in chart.parts} for chart in (one, other)]
    assert tints[0]["compute: model"] == tints[1]["compute: model"] is not None
    assert tints[0]["queue"] != tints[0]["compute: model"]
    assert tints[1]["mine"] is None


def test_modules_are_as_wide_as_what_they_cost() -> None:
    """Equal layers are one part, and what is too thin for its name is none."""
    modules, peak = cost_charts(an_inspection())

    assert modules.title == "Modules, each as wide as its MACs"
    (encoder,) = (part for part in modules.root.children if part.name.startswith("encoder"))
    assert encoder.detail.startswith("6 x ")
    assert modules.root.value >= sum(part.value for part in modules.root.children)
    outline = an_inspection().outline
    assert outline is not None
    assert peak.root.value == sum(held.bytes for held in outline.peak)
    assert peak.root.children[0].name == "weights"


def test_of_a_model_without_modules_the_operators_are_drawn() -> None:
    """If at least two of them multiply."""
    two = tuple(
        Operator(kind=kind, calls=2, macs=macs) for kind, macs in (("Conv", 3), ("Gemm", 1), ("Relu", 0))
    )
    result = an_inspection(outline=StaticReport(operators=two))

    (drawn,) = cost_charts(result)
    assert [(part.name, part.value) for part in drawn.root.children] == [("Conv", 3), ("Gemm", 1)]
    assert list(cost_charts(an_inspection(outline=StaticReport(operators=two[1:])))) == []
    assert list(cost_charts(a_result())) == []


def test_gradients_at_the_peak_are_named() -> None:
    """And a role without modules has no parts."""
    held = (
        MemoryItem(scope="", role=Role.GRADIENT, bytes=8),
        MemoryItem(scope="a.0", role=Role.ACTIVATION, bytes=1),
        MemoryItem(scope="a.1", role=Role.ACTIVATION, bytes=1),
    )
    (drawn,) = cost_charts(an_inspection(outline=StaticReport(peak=held)))

    assert [(role.name, role.value) for role in drawn.root.children] == [
        ("gradients of parameters", 8),
        ("activations", 2),
    ]
    assert [(part.name, part.value) for part in drawn.root.children[1].children] == [("a.*", 2)]

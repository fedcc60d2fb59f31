"""What the charts of a Result show, and what they shade or leave out."""

from __future__ import annotations

from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.report.charts import Plot, Stack
from modeldyno.base.result.trace_data import LoadSecond, TraceReport
from modeldyno.profiling.views.result.charts import draw_request_stages, load_by_second
from modeldyno.testing.sample_results import a_result


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

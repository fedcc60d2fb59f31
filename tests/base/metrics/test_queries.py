from __future__ import annotations

import pytest

from modeldyno.base.errors import UnknownName
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.metrics.metric import Query
from modeldyno.base.metrics.queries import format_main_figures, list_numbers


def test_a_percentile_that_is_no_claim_is_listed_as_raw() -> None:
    """Three samples certify nothing but what is no percentile."""
    latency = Measurement(metric="latency", value=Distribution.of([1.0, 2.0, 3.0]), scope="conv")
    numbers = {str(query): value for query, value in list_numbers([latency])}

    assert numbers["latency.p50.raw@conv"] == 2.0
    assert numbers["latency.mean@conv"] == 2.0
    assert "latency.p50@conv" not in numbers


def test_a_statistic_that_another_tool_told_is_listed_under_its_name() -> None:
    """It is a claim where at least as many requests were answered as the percentile takes."""
    figures = (observed_number("latency", 0.5, scope="p99"), observed_number("latency", 0.4, scope="mean"))
    few = list_numbers((*figures, observed_number("requests", 10, scope="ok")))
    many = list_numbers((*figures, observed_number("requests", 1000, scope="ok")))

    assert [str(query) for query, _ in few][:2] == ["latency.p99.raw", "latency.mean"]
    assert [str(query) for query, _ in many][:2] == ["latency.p99", "latency.mean"]


def test_the_main_figures_come_first() -> None:
    """Those that everybody asks for in their order, whatever was measured before; else the first few."""
    macs, rate = observed_number("macs", 2e6), observed_number("throughput", 100.0)

    assert format_main_figures([observed_number("steal", 0.0), macs, rate]) == (
        "throughput 100/s",
        "macs 2.00 M",
    )
    assert format_main_figures([observed_number("steal", 0.5)]) == ("steal 0.500 cores",)
    assert format_main_figures([observed_number("calls", 3, scope="load")]) == ("calls@load 3",)
    assert format_main_figures([]) == ()


def test_a_query_of_no_statistic_cannot_be_made() -> None:
    """Not even by its fields, as a document that was changed has them."""
    with pytest.raises(UnknownName, match="statistic 'p50x'"):
        Query(metric="latency", statistic="p50x")

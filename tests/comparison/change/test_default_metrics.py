from __future__ import annotations

from dataclasses import replace

from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.result.result import Result
from modeldyno.comparison.change.default_metrics import shared_queries
from modeldyno.engine.trace.regions import PROBE, SCRIPT


def profile_of_regions(calls: int = 10, *, regions: tuple[str, ...] = ("load", "step")) -> Result:
    """A run of a script, in which each region has a time, calls and memory."""
    job = Job(model=ModelRef(scheme=SCRIPT, locator="train.py"), backend="python", probes=(PROBE,))
    measurements = (
        measurement
        for name in regions
        for measurement in (
            Measurement(metric="latency", value=Distribution.of([1.0, 2.0]), scope=name),
            observed_number("first_call", 1.0, scope=name),
            observed_number("calls", calls, scope=name),
            observed_number("total_time", 3.0, scope=name),
            observed_number("total_self_time", 3.0, scope=name),
            observed_number("allocated", 100, scope=f"{name} [python]"),
            observed_number("freed", 100, scope=f"{name} [python]"),
            observed_number("allocated_peak", 100, scope=f"{name} [python]"),
            observed_number("allocated", 4096, scope=f"{name} [process]"),
        )
    )
    return Result(id="0", created="2026-01-01T00:00:00", job=job, measurements=tuple(measurements))


def shared(baseline: Result, candidate: Result) -> list[str]:
    return [str(query) for query in shared_queries(baseline, candidate)]


def test_regions_are_compared_in_time_and_memory() -> None:
    """Of each that both have; the size of the process says nothing about one region."""
    both = shared(profile_of_regions(), profile_of_regions(regions=("step", "save")))

    assert both == ["latency.p50@step", "allocated@step [python]", "allocated_peak@step [python]"]


def test_calls_are_compared_where_they_differ() -> None:
    """A loop that runs more often is what its author wants to know of."""
    assert "calls@load" in shared(profile_of_regions(10), profile_of_regions(11))
    assert "calls@load" not in shared(profile_of_regions(10), profile_of_regions(10))


def test_operators_of_a_region_are_compared_where_their_number_differs() -> None:
    """They are counted in one call; the same number says nothing."""

    def recorded(count: int) -> Result:
        result = profile_of_regions()
        counted = Measurement(metric="operator_calls", value=count, scope="load")
        return replace(result, measurements=(*result.measurements, counted))

    assert "operator_calls@load" in shared(recorded(10), recorded(11))
    assert "operator_calls@load" not in shared(recorded(10), recorded(10))


def test_a_region_that_was_measured_otherwise_is_not_compared() -> None:
    """A number and a distribution have no common statistic."""
    baseline = profile_of_regions(regions=("load",))
    number = observed_number("latency", 1.0, scope="load")
    candidate = Result(id="1", created=baseline.created, job=baseline.job, measurements=(number,))

    assert shared(baseline, candidate) == []

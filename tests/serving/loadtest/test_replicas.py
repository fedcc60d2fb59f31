"""Replicas for a demand, from one stored load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.measurement import (
    CLIENT_LIMITED,
    SATURATED,
    Distribution,
    Measurement,
    observed_number,
)
from modeldyno.serving.loadtest.replicas import CostOptions
from modeldyno.testing.sample_results import a_job, a_small_result

if TYPE_CHECKING:
    from modeldyno.serving.loadtest.replicas import CostAnswer


def planned(bound: str, void: str = "") -> CostAnswer:
    """Compute the replicas for 1,000/s from a load of 200/s with 5 ms per request."""
    latency = Distribution.of([0.005] * 1000, void=void)
    measured = (Measurement(metric="latency", value=latency), observed_number("request_rate", 200.0))
    job = replace(a_job(), load=Load(concurrency=1, duration=5.0))
    result = a_small_result(job=job, measurements=measured)
    return CostOptions(demand=1000.0).of_result(result, [Constraint.parse(bound)])


def test_a_load_that_holds_its_bounds_answers() -> None:
    """Five replicas of 200/s."""
    result = planned("latency.p50 <= 6ms")

    assert result.why == ""
    assert result.provision is not None
    assert result.provision.replicas == 5


@pytest.mark.parametrize(
    ("bound", "void", "sentence"),
    [
        (
            "latency.p50 <= 4ms",
            "",
            "latency.p50 <= 4 ms: broken (5.00 ms, 95 % interval 5.00 to 5.00 ms); measure a smaller load.",
        ),
        (
            "latency.p50 <= 6ms",
            CLIENT_LIMITED,
            "latency.p50 <= 6 ms: undecided (the load was client-limited); measure it longer.",
        ),
        (
            "latency.p50 <= 4ms",
            SATURATED,
            "latency.p50 <= 4 ms: broken (the load was saturated, at least 5.00 ms); measure a smaller load.",
        ),
        ("latency.p99.9 <= 6ms", "", "latency.p99.9 <= 6 ms: undecided (not certified"),
        ("energy <= 1J", "", "undecided (this run has no energy"),
    ],
)
def test_a_load_that_does_not_says_which_bound_and_why(bound: str, void: str, sentence: str) -> None:
    """The message says what to do: a smaller load if the bound is broken, a longer one if undecided."""
    result = planned(bound, void)

    assert result.provision is None
    assert result.why.startswith("The number of replicas is unknown, because ")
    assert sentence in result.why

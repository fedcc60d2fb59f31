"""What the history of a model says about its noise."""

from __future__ import annotations

from math import exp, sqrt

import pytest

from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.metric import Query
from modeldyno.comparison.change.change_test import judge_change
from modeldyno.comparison.change.trend import Reading, Scatter, scatter, trend
from modeldyno.testing.sample_results import a_small_result

P50 = Query.parse("latency.p50")


def history(*values: float) -> list[Reading]:
    """Make a result a day."""
    return [
        Reading(
            result=f"{n:012x}",
            created=f"2026-01-{n + 1:02d}T00:00:00+00:00",
            value=v,
            hardware={},
            software={},
        )
        for n, v in enumerate(values)
    ]


def days(first: int, last: int) -> tuple[object, object]:
    """Make two results of these days."""
    both = (a_small_result(created=f"2026-01-{day:02d}T12:00:00+00:00") for day in (first, last))
    return tuple(both)  # type: ignore[return-value]


def test_it_is_the_standard_deviation_around_levels() -> None:
    """A step of the history is no noise, and costs a degree of freedom."""
    noise = [0.01, -0.01, 0.01, -0.01, 0.01, -0.01]
    flat = trend("net", P50, history(*map(exp, noise)))
    stepped = trend("net", P50, history(*map(exp, noise), *(2 * exp(each) for each in noise)))

    of_flat = scatter([flat], *days(1, 3))  # type: ignore[arg-type]
    assert of_flat is not None
    assert of_flat.degrees == 5
    assert 0.01 <= of_flat.relative <= 0.025
    assert of_flat.of_a_difference == pytest.approx(sqrt(2) * of_flat.relative)
    of_stepped = scatter([stepped], *days(1, 3))  # type: ignore[arg-type]
    assert of_stepped is not None
    assert of_stepped.degrees == 10
    assert of_stepped.relative < 0.025


def test_a_history_covers_what_it_is_as_long_as() -> None:
    """Of six days it tells nothing about ten; and of four results nothing at all."""
    scatters = [scatter([trend("net", P50, history(*[1.0] * 6))], *days(1, last)) for last in (6, 11)]  # type: ignore[arg-type]

    assert [each is not None and each.covers for each in scatters] == [True, False]
    assert scatter([trend("net", P50, history(*[1.0] * 4))], *days(1, 2)) is None  # type: ignore[arg-type]


def test_it_takes_the_place_of_what_is_assumed_and_widens_what_is_too_narrow() -> None:
    """Of one process it is all that is known; processes that differ by less do not narrow it."""

    def latency(*medians: float) -> Measurement:
        runs = [[m * (1 + 1e-5 * (n % 7)) for n in range(200)] for m in medians]
        return Measurement(metric="latency", value=Distribution.of(*runs))

    quiet, loud = (Scatter(relative=size, degrees=20, covers=True) for size in (0.001, 0.05))
    one = latency(1.0), latency(1.1)
    many = latency(1.0, 1.001, 0.999), latency(1.1, 1.101, 1.099)

    def width(pair: tuple[Measurement, Measurement], noise: Scatter | None) -> float:
        change = judge_change(P50, *pair, scatter=noise)
        assert change.interval is not None
        return change.interval.high - change.interval.low

    assert width(one, quiet) < 0.01 < width(one, None)
    assert "the variation of stored results of it (0.001)" in judge_change(P50, *one, scatter=quiet).why
    assert width(many, quiet) == pytest.approx(width(many, None), rel=2)
    assert width(many, loud) > 0.2 > width(many, None)

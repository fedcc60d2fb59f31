"""The rate of calls; long calls that were timed one by one are not made again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.probes import throughput

if TYPE_CHECKING:
    from collections.abc import Callable

PLAN = Plan(min_runs=10, min_time=0.0, max_time=0.2, min_warmup=0)
CALLS = np.random.default_rng(0).normal(0.02, 0.0005, 200)
"""Calls of 20 ms, whose mean is known within 0.4 %."""


@pytest.fixture
def made() -> list[int]:
    """Calls that were made."""
    return []


@pytest.fixture
def subject(made: list[int]) -> ProbeContext:
    """A model of which 20 ms calls are known, in batches of 4."""
    known = Measurement(metric="latency", value=Distribution.of(CALLS))
    return ProbeContext(model=None, calls=(lambda: made.append(1),), samples=4, known=(known,))  # type: ignore[arg-type]


def rates(subject: ProbeContext) -> dict[str, Any]:
    """Measure, and return the rates with their intervals."""
    return {m.metric: m for m in throughput.measure(subject, PLAN) if isinstance(m, Measurement)}


def test_long_calls_of_the_latency_give_the_rate(subject: ProbeContext, made: list[int]) -> None:
    """By their mean and its interval, without another call."""
    by_metric = rates(subject)

    assert made == []
    assert by_metric["throughput"].value == pytest.approx(4 / CALLS.mean())
    assert by_metric["batch_rate"].value == pytest.approx(1 / CALLS.mean())
    interval = by_metric["batch_rate"].interval
    assert 1.0 < interval.high / by_metric["batch_rate"].value < 1.01
    assert 0.99 < interval.low / by_metric["batch_rate"].value < 1.0


@pytest.mark.parametrize(
    "change",
    [
        lambda times: times * 0.4,  # a block would have several calls
        lambda times: times[:9],  # too few
        lambda times: np.concatenate([times, [4.0]]),  # the mean is not known well enough
    ],
    ids=["short", "few", "imprecise"],
)
def test_other_calls_do_not(
    subject: ProbeContext, made: list[int], change: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Then blocks of calls are timed."""
    known = Measurement(metric="latency", value=Distribution.of(change(CALLS)))
    rates(replace(subject, known=(known,)))

    assert made


def test_without_a_latency_blocks_are_timed(subject: ProbeContext, made: list[int]) -> None:
    """Also where the latency is void, or of a part of the model."""
    for known in (
        (),
        (Measurement(metric="latency", value=Distribution.of(CALLS, void="saturated")),),
        (Measurement(metric="latency", value=Distribution.of(CALLS), scope="encoder"),),
    ):
        made.clear()
        rates(replace(subject, known=known))
        assert made

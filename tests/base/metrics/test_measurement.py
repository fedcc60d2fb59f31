from __future__ import annotations

import math
from array import array

import pytest

from modeldyno.base.metrics.constraints import Answer
from modeldyno.base.metrics.measurement import (
    Distribution,
    Interval,
    Measurement,
    observed_number,
    pack,
    pool_measurements,
)
from modeldyno.base.metrics.metric import Query

THOUSAND = [1.0 + i / 1000 for i in (j * 617 % 1000 for j in range(1000))]
"""Each of 1.000, 1.001 ... 1.999 once, in an order without memory."""


def test_samples_are_kept_bit_for_bit() -> None:
    """What goes in comes out, for each process."""
    distribution = Distribution.of([0.1, 0.2], array("d", [0.3]))

    assert [run.tolist() for run in distribution.arrays()] == [[0.1, 0.2], [0.3]]
    assert distribution.samples().tolist() == [0.1, 0.2, 0.3]
    assert len(distribution) == 3


def test_packing_is_eight_bytes_a_sample() -> None:
    """Little-endian float64."""
    import numpy as np

    assert pack(np.ones(2)) == 2 * pack([1.0])
    assert pack([1.0]) == b"\x00\x00\x00\x00\x00\x00\xf0\x3f"


def test_statistics_are_derived() -> None:
    """Each name gives its statistic over the pool."""
    distribution = Distribution.of([1.0, 2.0], [3.0, 4.0])

    assert tuple(map(distribution.statistic, ("mean", "min", "max", "n", "p50"))) == (2.5, 1.0, 4.0, 4.0, 2.0)
    assert math.isclose(distribution.statistic("std"), 1.2909944487358056)
    assert math.isclose(distribution.statistic("cv"), 1.2909944487358056 / 2.5)
    assert distribution.statistic("n_eff") <= 4


def test_one_sample_has_no_spread() -> None:
    """A single sample is no reason for NaN, nor for the claim that there is none."""
    assert tuple(map(Distribution.of([2.0]).certified, ("std", "cv", "mean"))) == (None, None, 2.0)
    assert Distribution.of([2.0], [2.5]).certified("std") == pytest.approx(0.3536, rel=1e-3)
    answer = Answer.to(
        Query.parse("latency.std"), [Measurement(metric="latency", value=Distribution.of([2.0]))]
    )
    assert (answer.value, answer.why) == (None, "a single sample has no std")
    assert tuple(map(Distribution.of([2.0]).statistic, ("std", "cv"))) == (0.0, 0.0)
    assert Distribution.of([0.0, 0.0]).statistic("cv") == 0.0


def test_a_percentile_below_its_floor_is_not_certified() -> None:
    """With a thousand samples p99 is a claim and p99.9 is none; the plain quantile stays there."""
    distribution = Distribution.of(THOUSAND)

    assert distribution.certified("p99") == pytest.approx(1.989)
    assert distribution.certified("p99.9") is None
    assert distribution.statistic("p99.9") == pytest.approx(1.998)
    assert distribution.missing("p99.9") == 5636
    assert distribution.missing("mean") == 0


def test_an_uncertified_percentile_lies_between_those_around_it() -> None:
    """What bounds a lower percentile from below, or a higher one from above, bounds it, too."""
    shaken = [i for i in range(1000) if i % 20 == 7 or i < 50]  # half of the slowest tenth in one spell
    few = Distribution.of([v + 10 * (i in shaken) + 10 * (i < 50) for i, v in enumerate(THOUSAND)])
    p90, p95, p99 = map(few.interval, ("p90", "p95", "p99"))

    assert few.certified("p95") is None
    assert p90
    assert p95
    assert p99
    assert 1 < p90.low == p95.low <= p99.low
    assert p90.high <= p95.high <= p99.high


def test_only_the_mean_and_percentiles_have_intervals() -> None:
    """An interval encloses its statistic; an extreme has none."""
    distribution = Distribution.of(THOUSAND)
    interval = distribution.interval("p50")

    assert interval is not None
    assert interval.low < distribution.statistic("p50") < interval.high
    assert 0 < interval.half_width() < 0.1
    assert distribution.interval("mean") is not None
    assert distribution.interval("max") is None


def test_the_certificate_is_complete() -> None:
    """Everything that MEASURING.md asks for is there."""
    distribution = Distribution.of(
        THOUSAND, warmup_dropped=7, rejected=1, clock_resolution=1e-9, timer_cost=3e-8
    )
    certificate = distribution.certificate()

    assert (
        certificate.n,
        certificate.processes,
        certificate.warmup_dropped,
        certificate.rejected,
    ) == (1000, 1, 7, 1)
    assert certificate.n_eff <= 1000
    assert certificate.percentiles["p99.9"] is None
    assert {"mean", "p50", "p90", "p95", "p99", "p99.9"} == set(certificate.intervals)
    assert math.isinf(certificate.intervals["p99.9"].high)
    assert (certificate.min, certificate.max, certificate.stop) == (1.0, 1.999, "converged")


def test_pooling_keeps_processes_apart_and_the_weaker_stop() -> None:
    """The pool has the runs of both, and says if either was cut short."""
    whole = Distribution.of([1.0], warmup_dropped=2, warmup_time=0.5, timer_cost=1e-8)
    cut = Distribution.of([2.0], stop="time limit", unmet=("more",), warmup_dropped=3, clock_resolution=1e-9)

    for pooled in (whole.pooled(cut), cut.pooled(whole)):
        assert len(pooled.runs) == 2
        assert (
            pooled.stop,
            pooled.unmet,
            pooled.warmup_dropped,
            pooled.warmup_time,
            pooled.clock_resolution,
            pooled.timer_cost,
        ) == ("time limit", ("more",), 5, 0.5, 1e-9, 1e-8)


def test_observed_numbers_are_averaged_with_the_range_of_processes() -> None:
    """Two load times give their mean and the interval between them."""
    merged = pool_measurements([[observed_number("load_time", 1.0)], [observed_number("load_time", 3.0)]])

    assert (2.0, Interval(low=1.0, high=3.0), (1.0, 3.0)) == (
        merged[0].value,
        merged[0].interval,
        merged[0].runs,
    )


def test_counts_are_not_averaged() -> None:
    """A count is the same in every process, and stays a whole number."""
    count = Measurement(metric="parameters", value=10)

    assert (count,) == pool_measurements([[count], [count]])


def test_distributions_are_pooled_by_metric_and_scope() -> None:
    """Each metric and scope is its own pool, in the order of the first process."""
    first = [Measurement(metric="latency", value=Distribution.of([1.0])), observed_number("steal", 0.0)]
    second = [observed_number("steal", 0.2), Measurement(metric="latency", value=Distribution.of([2.0]))]
    merged = pool_measurements([first, second])

    assert [m.metric for m in merged] == ["latency", "steal"]
    assert isinstance(merged[0].value, Distribution)
    assert len(merged[0].value.runs) == 2
    assert pytest.approx(merged[1].value) == 0.1


def test_a_measurement_knows_its_row() -> None:
    """Unit and direction come from the table of metrics."""
    assert observed_number("load_time", 1.0).row.unit == "s"

"""The table that reports of compression have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.profiling import views
from modeldyno.profiling.views.result.compression_table import ratio
from modeldyno.testing.sample_results import an_inspection

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

FEWER = ("fewer", "more")


def smaller(factor: float, name: str = "student") -> Result:
    """Make an inspection of a model whose every number is smaller."""
    measurements = tuple(
        replace(m, value=m.value / factor, interval=None)
        for m in an_inspection().measurements
        if not isinstance(m.value, Distribution)
    )
    return an_inspection(name=name, measurements=measurements)


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (420, 100, "4.2x fewer"),
        (100, 130, "1.3x more"),
        (100, 100, "equal"),
        (0, 0, "equal"),
        (7, 0, "none"),
        (0, 7, "more, the first has none"),
        (1000, 999, "0.1% fewer"),
        (100, 104, "4% more"),
        (1e9, 1, "1,000,000,000x fewer"),
        (123, 10, "12x fewer"),
    ],
)
def test_ratios_are_words(first: float, second: float, text: str) -> None:
    """More or fewer is said, never a number below one; small differences are percents."""
    assert ratio(first, second, FEWER) == text


def test_two_models_have_an_enhancement() -> None:
    """Sizes are decimal, multiply-accumulates are called so, and what is better is said."""
    numbers_table = views.summary([an_inspection(name="teacher"), smaller(2)])

    assert [column.title for column in numbers_table.columns] == [
        "Evaluation metric", "teacher", "student", "Enhancement",
    ]  # fmt: skip
    assert numbers_table.rows == (
        ("Model size", "90.9 MB", "45.4 MB", "2.00x smaller"),
        ("Computational complexity", "1.41 GMACs", "706 MMACs", "2.00x fewer"),
        ("Total parameters", "22.7 M", "11.4 M", "2.00x fewer"),
        ("Memory footprint", "92.8 MB", "46.4 MB", "2.00x smaller"),
        ("Execution time", "—", "—", "—"),
    )


def test_one_model_has_none() -> None:
    """There is nothing to be better than; small sizes are bytes."""
    tiny = an_inspection(measurements=(Measurement(metric="weight_bytes", value=512),))
    numbers_table = views.summary([tiny])

    assert [column.title for column in numbers_table.columns] == ["Evaluation metric", "mini"]
    assert numbers_table.rows[0] == ("Model size", "512 B")


def test_a_latency_is_an_execution_time() -> None:
    """Where both were timed the medians are compared."""
    timed = [
        an_inspection(measurements=(Measurement(metric="latency", value=Distribution.of([t] * 9)),))
        for t in (0.004, 0.001)
    ]

    assert views.summary(timed).rows[-1] == ("Execution time", "4.00 ms", "1.00 ms", "4.00x faster")

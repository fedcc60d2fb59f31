from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeldyno.base.metrics.measurement_plan import Plan


@pytest.mark.parametrize("name", ["max_time", "min_runs", "timeout", "memory_limit"])
def test_text_is_no_number(name: str) -> None:
    """A quantity with a unit belongs to the command line; a Plan holds base units."""
    wrong: dict[str, Any] = {name: "2s"}

    with pytest.raises(ValueError, match=f"`{name}` is '2s', but must be a number in base units"):
        Plan(**wrong)


def test_a_plan_takes_the_lengths_of_another_and_no_more() -> None:
    """Its processes, its seed and its requested percentiles are its own."""
    other = Plan(max_time=9.0, min_time=3.0, precision=0.1, processes=5, seed=4)
    assert Plan(percentiles=("p99",)).as_long_as(other) == replace(
        other, processes=1, seed=0, percentiles=("p99",)
    )


def test_a_plan_fits_into_seconds() -> None:
    """It is only made shorter, and its shortest time is half of its longest."""
    plan = Plan(max_time=5.0, min_time=1.0)
    assert plan.within(5.0) is plan
    assert plan.within(1.0) == replace(plan, max_time=1.0, min_time=0.5)
    assert plan.within(4.0) == replace(plan, max_time=4.0)

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import Measurement, observed_number
from modeldyno.base.report.blocks import Table
from modeldyno.engine.trace.carbon import Emission, with_carbon
from modeldyno.profiling import views
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

GRID = Emission(intensity=360 / 3.6e6, power=65.0)
RATE = Measurement(metric="throughput", value=1000.0)


def row_of(result: Result) -> tuple[str, ...]:
    tables = [block for block in views.blocks(with_carbon(result, GRID)) if isinstance(block, Table)]
    return next(row for table in tables for row in table.rows if row[0] == "carbon")


def test_carbon_of_an_assumed_power_is_labelled_in_its_row() -> None:
    """A reader of the table alone must not take it for a reading."""
    result = replace(a_small_result(), measurements=(RATE,))

    assert row_of(result)[1:] == ("6.50 mg", "", "of 1,000 inferences, power assumed")


def test_carbon_of_a_power_that_was_read_needs_no_label() -> None:
    """It is a measurement like the others; but of how many inferences is said."""
    power = observed_number("power", 200.0, scope="cuda:0")

    assert row_of(replace(a_small_result(), measurements=(RATE, power)))[3] == "of 1,000 inferences"

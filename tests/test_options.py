"""The table of options is what the values, the Python API, the command line and a sweep file have."""

from __future__ import annotations

from dataclasses import MISSING, fields
from inspect import unwrap
from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.base.job.cancellation import Cancellation
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.think_time import ThinkTime
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.options import (
    BYTES,
    COUNT,
    LOAD,
    PAUSE,
    PLAN,
    SECONDS,
    SEQUENCE,
    SHARE,
    SHARE_AND_TIME,
    Option,
)
from modeldyno.base.stats import units
from modeldyno.base.stats.units import UNITS, parse_quantity
from modeldyno.cli import cli
from modeldyno.cli.actions import load as load_action
from modeldyno.profiling.api.error_wording import keywords_of
from modeldyno.profiling.api.profile import split_plan
from modeldyno.serving.api import load as api_load
from modeldyno.serving.api.load import SendOptions
from modeldyno.sweeps import schema, value_parsers

if TYPE_CHECKING:
    from collections.abc import Callable

ARRIVALS = {"arrivals", "concurrency", "rate", "burst", "burstiness", "trace", "speed", "window"}
"""Fields of a load that say when requests are due: each command asks for them in its own way."""
DERIVED = {"within", "also_within", "may_extend", "bounds"}
"""Fields that follow from others: from the bounds, or from whether a time was given."""
FUNCTIONS = (modeldyno.load, modeldyno.load_curve, modeldyno.find_load)
OTHER = {
    SECONDS: ("7s", 7.0),
    COUNT: ("7", 7),
    SEQUENCE: ("7..9", (7, 9)),
    PAUSE: ("7s..9s", ThinkTime(low=7.0, high=9.0)),
    SHARE_AND_TIME: ("7%:7s", Cancellation(share=0.07, after=7.0)),
}
"""Kind of a load's options to a text that is no default, and its value."""


def in_base_units(row: Option) -> Any:
    """Return the default of an option as Python has it."""
    is_text = isinstance(row.default, str) and row.kind in UNITS
    return parse_quantity(str(row.default), row.kind) if is_text else row.default


@pytest.mark.parametrize(("kind", "rows"), [(Load, LOAD), (Plan, PLAN)], ids=["load", "plan"])
def test_each_field_has_an_option_with_its_default(kind: type, rows: tuple[Option, ...]) -> None:
    """A new field without a row fails here, and so does a default that differs."""
    defaults = {
        field.name: None if field.default in (MISSING, ()) else field.default
        for field in fields(kind)
        if field.name not in DERIVED | (ARRIVALS if kind is Load else set())
    }

    assert {row.field: in_base_units(row) for row in rows} == defaults


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_has_each_option_of_a_load(function: Callable[..., Any]) -> None:
    """Its group of options has the names and the defaults of the table."""
    defaults = {field.name: field.default for field in fields(SendOptions)}

    assert {row.name: defaults[row.name] for row in LOAD} == {row.name: in_base_units(row) for row in LOAD}
    assert {row.name for row in LOAD} <= keywords_of(unwrap(function)).keys()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_puts_each_option_into_the_load(
    function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No parameter is dropped on the way."""
    loads: list[Load] = []

    def stop(*, load: Load, **_others: Any) -> None:
        loads.append(load)
        raise modeldyno.ModelDynoError("stop")

    monkeypatch.setattr(api_load, "Request", stop)
    with pytest.raises(modeldyno.ModelDynoError, match="stop"):
        function("http://127.0.0.1:1#m", **{row.name: OTHER[row.kind][1] for row in LOAD})

    assert {row.field: getattr(loads[0], row.field) for row in LOAD} == {
        row.field: OTHER[row.kind][1] for row in LOAD
    }


def test_the_command_puts_each_option_into_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """No flag is dropped on the way."""
    loads: list[Load | None] = []

    def stop(request: Any, **_others: Any) -> None:
        loads.append(request.job.load)
        raise modeldyno.ModelDynoError("stop")

    monkeypatch.setattr(load_action, "run_request", stop)
    arguments = [word for row in LOAD for word in (row.flag, OTHER[row.kind][0])]
    with pytest.raises(modeldyno.ModelDynoError, match="stop"):
        cli.main(["load", "http://127.0.0.1:1#m", "--no-store", *arguments], standalone_mode=False)

    assert {row.field: getattr(loads[0], row.field) for row in LOAD} == {
        row.field: OTHER[row.kind][1] for row in LOAD
    }


def test_each_field_of_the_plan_is_a_keyword_of_profile() -> None:
    """It goes into the plan and is no knob; `precision` as text is the knob of that name."""
    plan = Plan(
        min_runs=2, min_time=0.1, max_time=3.0, max_runs=9, min_warmup=1, target="p95", precision=0.1,
        percentiles=("p99",), processes=3, seed=4, timeout=5.0, memory_limit=2**30, pin=(1,),
    )  # fmt: skip
    keywords = {row.field: getattr(plan, row.field) for row in PLAN}

    assert split_plan(None, keywords) == (plan, {})
    assert split_plan(None, {"precision": "fp16"})[1] == {"precision": "fp16"}


def test_a_sweep_file_reads_the_keys_of_its_schema() -> None:
    """`rate` and `arrivals` are read together, by `build`."""
    assert schema.PLAN.keys() == value_parsers.PLANNED.keys()
    assert schema.LOAD.keys() == value_parsers.LOADED.keys() | {"rate", "arrivals"}


def test_the_kinds_of_quantities_are_base_units() -> None:
    """A kind is handed to the parser as its unit."""
    assert (SECONDS, BYTES, SHARE) == (units.SECONDS, units.BYTES, units.FRACTION)


@pytest.mark.parametrize("row", [row for row in LOAD if row.default is not None], ids=lambda row: row.field)
def test_the_default_that_is_shown_is_read_as_itself(row: Option) -> None:
    """As a sweep file reads it."""
    assert value_parsers.LOADED[row.field](row.default) == in_base_units(row)


def test_median_is_a_target_in_a_file_as_on_the_command_line() -> None:
    """Both read a statistic alike."""
    assert value_parsers.PLANNED["target"]("median") == "p50"

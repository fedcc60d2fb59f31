"""What the options of what to measure and how precisely mean."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from modeldyno.base.errors import RequestError
from modeldyno.base.job.cancellation import parse_cancellation as parse_cancellation  # noqa: PLC0414 - as above
from modeldyno.base.job.load_spec import parse_sequence as parse_sequence  # noqa: PLC0414 - as above
from modeldyno.base.job.think_time import parse_think_time as parse_think_time  # noqa: PLC0414 - as above
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import canonical_statistic as canonical_statistic  # noqa: PLC0414 - by name
from modeldyno.profiling import request
from modeldyno.profiling.request import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLAN_DEFAULTS = {field.name: field.default for field in fields(Plan)}


def parse_cores(text: str | None) -> tuple[int, ...]:
    """Parse the cores of ``--pin``."""
    return request.parse_cores(text or "")


def parse_percentiles(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Parse each ``--percentile``: p99, several separated by commas, or a bare number."""
    names = (f"p{name}" if name[:1].isdigit() else name for name in split_names(texts))
    return tuple(dict.fromkeys(names))


def plan_from_options(options: Mapping[str, Any]) -> Plan:
    """Build a Plan from the options.

    Raises:
        RequestError: the plan is invalid.
    """
    check_order(options, "min_runs", "max_runs")
    try:
        return Plan(**{name: options[name] for name in _PLAN_DEFAULTS if options.get(name) is not None})
    except ValueError as error:
        raise RequestError(f"{error}.") from None


def request_from_options(options: Mapping[str, Any], **values: Any) -> Request:
    """Build a Request of the options that are fields of it, and of values that follow from others."""
    same = {name: options[name] for name in _SAME_AS_FIELD if name in options}
    return Request(**{"settings": request.parse_settings(options["settings"]), **same, **values})


_SAME_AS_FIELD = ("model", "backend", "inputs", "require", "percentiles", "name", "trust", "beside")
"""Options that are fields of a Request as they are."""


def evaluation_from_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an ProbeOptions that say what is evaluated, and on which samples."""
    return {
        "evaluate": tuple(filter(None, split_names((options["evaluate"] or "",)))),
        "data": options["data"] and str(Path(options["data"]).absolute()),
    }


def functions_from_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an ProbeOptions that name the functions around a model."""
    return {
        "preprocess": request.parse_function(options["pre"], "pre"),
        "postprocess": request.parse_function(options["post"], "post"),
    }


def check_order(options: Mapping[str, Any], fewest: str, most: str) -> None:
    """Check that a minimum that was given does not exceed its maximum; a default may.

    Raises:
        RequestError: it does.
    """
    ctx = click.get_current_context(silent=True)
    was_given = ctx is not None and ctx.get_parameter_source(fewest) is not ParameterSource.DEFAULT
    if was_given and options[fewest] > options[most]:
        low, high = (f"--{name.replace('_', '-')} {options[name]}" for name in (fewest, most))
        raise RequestError(f"{low} is more than {high}; lower the first or raise the second.")


def split_list(text: str | None) -> tuple[str, ...]:
    """Split text at its commas; nothing of None."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def split_names(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Split names that are separated by commas, and drop duplicates."""
    return tuple(dict.fromkeys(name.strip() for text in texts for name in text.split(",")))

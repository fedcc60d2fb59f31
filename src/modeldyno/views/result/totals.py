"""Table of the total cost of a model, with the meaning of each number."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from modeldyno.core.metrics.measurement import Measurement
from modeldyno.core.metrics.metric import METRICS
from modeldyno.core.report.blocks import Table, clean, make_columns, shorten
from modeldyno.core.result.result import scopes
from modeldyno.core.spec.static_options import Mode
from modeldyno.core.static.graph import Phase
from modeldyno.core.stats.units import BYTES, format_quantity
from modeldyno.views.text import (
    NAME_LIMIT,
    analysed_at,
    count,
    format_measurement,
    join_nonempty,
    number,
    span,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.result.result import Result


def is_inspection(result: Result) -> bool:
    """Whether this Result is an inspection: the model was analysed and not run."""
    analysed = result.outline is not None or result.job.probes == ("static",)
    return analysed and all(m.row.computed for m in result.measurements)


def totals(result: Result) -> Iterator[Table]:
    """Yield the table of totals, unless it is empty."""
    by_metric = {m.metric: m for m in result.measurements if not m.scope and m.row.computed}
    rows = tuple(
        (metric, _value(by_metric[metric]), describe_total(result, by_metric[metric]))
        for metric in METRICS
        if metric in by_metric and metric not in _TOLD_WITH_PARAMETERS and _matters(by_metric[metric])
    )
    if rows:
        sizes = analysed_at(result)
        yield Table(
            title=f"Totals, at {sizes}" if sizes else "Totals",
            columns=make_columns("metric", "value>", "meaning"),
            rows=rows,
        )


def _value(measurement: Measurement) -> str:
    return (
        f"{number(measurement)[0]:,.0f}"
        if measurement.metric == "largest_batch"
        else format_measurement(drop_open_range(measurement))
    )


def _matters(measurement: Measurement) -> bool:
    return bool(measurement.value) or measurement.metric in _SHOWN_AT_ZERO


_TOLD_WITH_PARAMETERS = {"trainable_parameters", "buffers"}
_SHOWN_AT_ZERO = frozenset({"parameters", "macs", "flops", "activation_peak", "coverage", "largest_batch"})


def drop_open_range(measurement: Measurement) -> Measurement:
    """Drop the interval of a computed number, which is the uncounted range, not a confidence interval."""
    return Measurement(metric=measurement.metric, value=measurement.value, scope=measurement.scope)


def describe_total(result: Result, measurement: Measurement) -> str:
    """Return the meaning of a total, for this model."""
    special = {
        "parameters": _parameters,
        "weight_bytes": _dtypes,
        "macs": _open_bounds,
        "flops": _open_bounds,
        "optimizer_bytes": lambda result, _measurement: (
            f"of the state of {clean(result.job.inspection.optimizer)}"
        ),
        "memory_peak": _memory,
        "largest_batch": _batch,
    }.get(measurement.metric)
    return (special(result, measurement) if special else "") or measurement.row.label


def _parameters(result: Result, measurement: Measurement) -> str:
    trainable, buffers = result.find("trainable_parameters"), result.find("buffers")
    buffers_text = (
        f"{format_measurement(buffers)} more elements in buffers"
        if buffers is not None and buffers.value
        else ""
    )
    if trainable is None or not measurement.value:
        return buffers_text
    free = number(trainable)[0]
    training = (
        "all trainable"
        if free == number(measurement)[0]
        else f"{format_measurement(trainable)} trainable"
        if free
        else ""
    )
    return join_nonempty(training or "none trainable", buffers_text)


def _dtypes(result: Result, measurement: Measurement) -> str:
    """List the dtypes, the largest first; a single one only by name."""
    modules = scopes(result)
    parts = [
        m
        for m in result.measurements
        if m.metric == measurement.metric and m.scope and m.scope not in modules
    ]
    parts.sort(key=lambda m: -number(m)[0])
    names = [shorten(clean(m.scope), NAME_LIMIT) for m in parts]
    if len(parts) == 1:
        return names[0]
    return ", ".join(f"{name} {format_measurement(m)}" for name, m in zip(names, parts, strict=True))


def _open_bounds(result: Result, measurement: Measurement) -> str:
    bounds = measurement.interval
    if bounds is None or bounds.low == bounds.high:
        return _phases(result) if measurement.metric == "macs" else ""
    without = sum(1 for op in result.outline.operators if not op.counted) if result.outline else 0
    why = f": {count(without, 'operator')} uncounted" if without else ""
    between = "" if bounds.high == inf else "between "
    return f"{between}{span(bounds.low, bounds.high)}{why}".replace(" to ", " and ", 1)


def _phases(result: Result) -> str:
    """List the MACs of the phases of a training step."""
    phases = ((phase, result.find("macs", f"phase {phase}")) for phase in Phase)
    return ", ".join(
        f"{phase} {format_measurement(macs)}" for phase, macs in phases if macs is not None and macs.value
    )


def _memory(result: Result, _measurement: Measurement) -> str:
    inspection = result.job.inspection
    state = "" if inspection.optimizer == "none" else ", optimiser state"
    training = f", gradients{state}" if inspection.mode is Mode.TRAIN else ""
    return f"predicted for this CPU, with weights, inputs{training}"


def _batch(result: Result, measurement: Measurement) -> str:
    memory = result.job.inspection.memory
    limit = f" {format_quantity(memory, BYTES, None)}" if memory else ""
    return f"whose peak fits{limit}" if measurement.value else f"not even one sample fits{limit}"

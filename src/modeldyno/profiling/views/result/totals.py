"""Table of the total cost of a model, with the meaning of each number."""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING

from modeldyno.base.job.devices import DEVICES
from modeldyno.base.job.static_options import Mode
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.metrics.metric import METRICS
from modeldyno.base.report.blocks import Block, Table, clean, make_table, note
from modeldyno.base.result.result import scopes
from modeldyno.base.stats.units import BYTES, SECONDS, format_quantity
from modeldyno.base.views.text import (
    amount,
    analysed_at,
    batch_first,
    count,
    format_measurement,
    join_nonempty,
    number,
    shorten_name,
    shorten_text,
    span,
)
from modeldyno.models.static.graph import Phase
from modeldyno.models.static.roofline import Bound, limiting_resource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.result.result import Result
    from modeldyno.base.result.static_data import SizePoint, StaticReport


def is_inspection(result: Result) -> bool:
    """Whether this Result is an inspection: the model was analysed and not run."""
    analysed = result.outline is not None or result.job.probes == ("static",)
    return analysed and all(m.row.computed for m in result.measurements)


def totals(result: Result, *, brief: bool = False) -> Iterator[Table]:
    """Yield the table of totals, unless it is empty; in brief without those that few ask for."""
    omitted = _TOLD_WITH_PARAMETERS | (_SELDOM_ASKED_FOR if brief else set())
    by_metric = {m.metric: m for m in result.measurements if not m.scope and m.row.computed}
    rows = tuple(
        (metric, _value(by_metric[metric]), describe_total(result, by_metric[metric]))
        for metric in METRICS
        if metric in by_metric and metric not in omitted and _matters(by_metric[metric])
    )
    if rows:
        sizes = analysed_at(result)
        yield make_table(f"Totals, at {sizes}" if sizes else "Totals", ("metric", "value>", "meaning"), rows)


def _value(measurement: Measurement) -> str:
    return (
        f"{number(measurement)[0]:,.0f}"
        if measurement.metric == "largest_batch"
        else format_measurement(drop_open_range(measurement))
    )


def _matters(measurement: Measurement) -> bool:
    return bool(measurement.value) or measurement.metric in _SHOWN_AT_ZERO


_TOLD_WITH_PARAMETERS = {"trainable_parameters", "buffers"}
_SELDOM_ASKED_FOR = {
    "file_bytes", "elementwise", "bytes_read", "bytes_written", "arithmetic_intensity", "input_bytes",
    "output_bytes",
}  # fmt: skip
_SHOWN_AT_ZERO = frozenset({"parameters", "macs", "flops", "activation_peak", "coverage", "largest_batch"})


def drop_open_range(measurement: Measurement) -> Measurement:
    """Drop the interval of a computed number, which is the uncounted range, not a confidence interval."""
    return Measurement(metric=measurement.metric, value=measurement.value, scope=measurement.scope)


def describe_total(result: Result, measurement: Measurement) -> str:
    """Return the meaning of a total, for this model."""
    special = {
        "parameters": _parameters,
        "weight_bytes": parts_of_sum,
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


def parts_of_sum(result: Result, measurement: Measurement) -> str:
    """List the parts of a sum, such as its dtypes, the largest first; a single part only by name."""
    modules = scopes(result)
    parts = [m for m in result.measurements if m.metric == measurement.metric and m.scope]
    parts = [m for m in parts if m.scope not in modules]
    if len(parts) == 1:
        return shorten_name(parts[0].scope)
    parts.sort(key=lambda m: -number(m)[0])
    return ", ".join(f"{shorten_name(m.scope)} {format_measurement(m)}" for m in parts)


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


# --- at other sizes, and on other devices ---------------------------------------------------------


_WANTED = ("macs", "flops", "activation_peak", "memory_peak")
_TITLES = {
    "macs": "MACs", "flops": "FLOPs", "activation_peak": "activations", "memory_peak": "memory",
    "roofline_latency": "bound",
}  # fmt: skip
_LATENCIES = ("roofline_latency", "eager_latency", "decode_latency")
_ROOFS = {Bound.COMPUTE: "compute", Bound.MEMORY: "memory"}
_COLUMNS = 7
"""Most columns that fit 80 characters."""
_POINTS = 40


def grid(result: Result, *, brief: bool = False) -> Iterator[Block]:
    """Lay out the totals at the requested sizes, and their formulas unless it shall be brief."""
    outline = result.outline
    if outline is None or not outline.points:
        return
    names = batch_first(dict.fromkeys(name for point in outline.points for name in point.sizes))
    metrics = _metrics(outline)[: max(2, _COLUMNS - len(names))]
    titles = [*(shorten_name(name) for name in names), *map(_title, metrics)]
    yield make_table(
        "At other sizes",
        (f"{title}>" for title in titles),
        (
            (
                *(f"{point.sizes[name]:,}" if name in point.sizes else "—" for name in names),
                *(_point_value(result, point, metric) for metric in metrics),
            )
            for point in outline.points[:_POINTS]
        ),
    )
    if not brief:
        yield from _formulas(outline)
    if len(outline.points) > _POINTS:
        more = len(outline.points) - _POINTS
        yield note(f"{more:,} more sizes are in the JSON output: --json PATH")


def _metrics(outline: StaticReport) -> list[str]:
    """Return the metrics to show: totals first, then the bounds of each device."""
    names = dict.fromkeys(name for point in outline.points for name in point.values)
    estimates = [name for name in names if name.partition("@")[0] == "roofline_latency"]
    return [*(name for name in _WANTED if name in names), *estimates]


def _title(metric: str) -> str:
    name, _, device = metric.partition("@")
    return " ".join(filter(None, (shorten_text(device, 12), _TITLES.get(name, name))))


def _point_value(result: Result, point: SizePoint, metric: str) -> str:
    """Format a number of a point; a lower bound or a total with uncounted operators with ``≥``."""
    if metric not in point.values:
        return "—"
    name = metric.partition("@")[0]
    text = format_quantity(point.values[metric], METRICS[name].unit, 3)
    measurement = result.find(name)
    uncounted = measurement is not None and measurement.interval is not None
    return f"≥ {text}" if uncounted or name.endswith("_latency") else text


def _formulas(outline: StaticReport) -> Iterator[Block]:
    rows = tuple(
        (shorten_name(metric), shorten_text(text)) for metric, text in outline.formulas.items() if text
    )
    if rows:
        yield make_table("Formulas", ("", ""), rows)
        if outline.domain:
            text = f"the formulas hold for {shorten_text(outline.domain)}"
            yield note(text)
    elif outline.traced:
        text = "no polynomial fits all of these sizes, so each was traced separately"
        yield note(text)


def device_bounds(result: Result) -> Iterator[Block]:
    """Tabulate lower bounds on the latency on each device, estimated from published peaks."""
    names = dict.fromkeys(m.scope for m in result.measurements if m.metric == "roofline_latency" and m.scope)
    if names:
        yield make_table(
            "Estimated lower bounds from the peaks of devices; nothing was run on them",
            ("device", "one call>", "op by op>", "one token>?", "bound by", "peaks"),
            (_device(result, name) for name in names),
        )
    yield from map(note, filter(None, (_what_does_not_fit(result, name) for name in names)))
    if any(_is_tf32(result, name) for name in names):
        yield note("float32 has the peak of TF32 here, in which cuDNN's convolutions run by default")


def _what_does_not_fit(result: Result, name: str) -> str:
    """Say what the memory of a device is short of, and what helps; empty if it suffices or is not known."""
    memory = DEVICES[name].memory if name in DEVICES else 0
    peak, weights = result.number("memory_peak") or 0.0, result.number("weight_bytes") or 0.0
    if not memory or peak <= memory:
        return ""
    takes, has = format_quantity(peak, BYTES, 3), format_quantity(float(memory), BYTES, 3)
    if weights < memory:
        advice = "take a smaller batch, or fewer bits for a number"
    else:
        advice = f"weights in fewer bits, or sharding over {ceil(peak / memory)} of them"
    return f"the {takes} that it needs at the peak do not fit into the {has} of {name}: {advice}"


def _is_tf32(result: Result, name: str) -> bool:
    """Whether the peak of a device is that of TF32 and differs from that of float32."""
    peaks = DEVICES[name].flops if name in DEVICES else {}
    narrow = peaks.get("tf32")
    return narrow is not None and narrow == result.number("peak_flops", name) != peaks.get("float32")


def _device(result: Result, name: str) -> tuple[str, ...]:
    flops, bandwidth = (result.number(metric, name) for metric in ("peak_flops", "peak_bandwidth"))
    nouns = ((flops, "FLOP/s"), (bandwidth, "B/s"))
    peaks = ", ".join(amount(value, noun) if value else f"unknown {noun}" for value, noun in nouns)
    macs = result.number("causal_macs") or result.number("macs") or 0.0
    bounds = [result.number(metric, name) for metric in _LATENCIES]
    limit = "—"
    if seconds := bounds[0]:
        limit = _ROOFS[limiting_resource(2 * macs / flops if flops else 0.0, seconds)]
    texts = ("—" if bound is None else f"≥ {format_quantity(bound, SECONDS, 3)}" for bound in bounds)
    return shorten_text(name, 20), *texts, limit, peaks

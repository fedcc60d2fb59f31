"""The verdict of a Result in one sentence."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from modeldyno.base.job.static_options import Mode
from modeldyno.base.metrics.measurement import why_void
from modeldyno.base.metrics.metric import ANSWERS, METRICS
from modeldyno.base.metrics.queries import format_main_figures
from modeldyno.base.report.blocks import Severity, clean
from modeldyno.base.result.result import KINDS
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.base.views.text import (
    amount,
    analysed_at,
    count,
    figure,
    format_measurement,
    format_statistic,
    measured_at,
    median_text,
    number,
    shorten_message,
    shorten_name,
)
from modeldyno.profiling.views.result.call_stages import end_to_end_clause
from modeldyno.profiling.views.result.layers import layer_time_clause, slowest_layer_sentence
from modeldyno.profiling.views.result.memory import largest_batch_clause, training_step_clause
from modeldyno.profiling.views.result.operators import operator_time_clause, redundant_ops_clause
from modeldyno.profiling.views.result.regions import (
    is_region_profile,
    is_watched_block,
    region_time_clause,
    watch_clause,
)
from modeldyno.profiling.views.result.served import server_clause as under_load
from modeldyno.profiling.views.result.tokens import generation_clause

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.metrics.measurement import Distribution, Measurement
    from modeldyno.base.result.result import Failure, Result


def headline(result: Result, judgements: Sequence[Judgement] = ()) -> str:
    """Return the verdict in one sentence, followed by the bounds that are broken or undecided."""
    message = shorten_message(result.failure.message, 160).rstrip(".") if result.failure else ""
    return verdict(result, judgements, f": {message}" if message else "")


def verdict(result: Result, judgements: Sequence[Judgement], message: str) -> str:
    """Return the verdict, with `message` after the failure if there is one."""
    name = shorten_name(result.name) or "The model"
    parts = ", but ".join(filter(None, (_speed(result), _failed(result.failures, message))))
    return " ".join((f"{name} {parts or _size(result)}.", *_highlights(result), *_unmet_bounds(judgements)))


def _highlights(result: Result) -> Iterator[str]:
    """Yield what a reader can act on: redundant operations and the slowest layer."""
    yield from (
        f"{text[0].upper()}{text[1:]}."
        for text in (redundant_ops_clause(result), slowest_layer_sentence(result))
        if text
    )


def _speed(result: Result) -> str:
    if is_region_profile(result):
        return region_time_clause(result)
    if is_watched_block(result):
        return watch_clause(result)
    if served := under_load(result):
        return served
    latency = result.distribution("latency")
    if latency is None:
        return (
            generation_clause(result)
            or largest_batch_clause(result)
            or training_step_clause(result)
            or operator_time_clause(result)
            or layer_time_clause(result)
            or end_to_end_clause(result)
            or _rate_alone(result)
        )
    if latency.void:
        return f"has no valid time: {why_void(latency.void)}"
    at, rate = measured_at(result), figure(result, "throughput").replace("/s", " samples/s")
    where = f"{f' at {at}' if at else ''} on {shorten_name(result.job.backend)}"
    parts = (
        f"on average {rate}{_slow_calls(result, latency)}" if rate else "",
        end_to_end_clause(result),
        _evaluation(result),
    )
    return "; ".join((f"answers in {_median(latency)}{where}", *filter(None, parts)))


def _rate_alone(result: Result) -> str:
    """Return the rate of calls that were not timed one by one; empty if it is not known."""
    measured = result.find("throughput")
    if measured is None or result.job.load is not None:
        return ""
    if measured.void:
        return f"has no valid rate: {why_void(measured.void)}"
    rate = figure(result, "throughput").replace("/s", " samples/s")
    return f"answers {rate} on {shorten_name(result.job.backend)}" if rate else ""


def _slow_calls(result: Result, latency: Distribution) -> str:
    """Say why the rate is not what the median suggests; empty where it is."""
    rate, median = result.number("batch_rate"), latency.statistic("p50")
    if not rate or not median:
        return ""
    call = f", {format_quantity(1 / rate, SECONDS, 2)} a call"
    if any(doubt.code == "inconsistent" for doubt in result.doubts) and not (
        1 / _FAR < 1 / rate / median < _FAR
    ):
        return f"{call}, which was measured after the median and contradicts it"
    return f"{call}, as slow calls count in full" if 1 / rate >= _FAR * median else ""


_FAR = 1.25
"""Times of the median from which on the mean of a call is told beside it."""


def _evaluation(result: Result) -> str:
    """Return what it scores on labelled samples: ``accuracy 99.2%, f1 99.1% on 360 labelled samples``."""
    scores = [m for m in result.measurements if m.row.family == ANSWERS]
    text = ", ".join(f"{m.metric.replace('_', ' ')} {format_measurement(m)}" for m in scores)
    samples = result.find("evaluated_samples")
    return f"{text} on {count(round(number(samples)[0]), 'labelled sample')}" if scores and samples else text


def _median(times: Distribution) -> str:
    value, interval = median_text(times), format_statistic(times, "p50")[1]
    if times.missing("p50"):
        effective = int(times.effective_size("p50"))
        few = f", equivalent to {count(effective, 'independent call')}" if effective < len(times) else ""
        return f"{value} (median of {'' if few else 'only '}{count(len(times), 'call')}{few})"
    return f"{value} (median, 95 % interval {interval})" if interval else f"{value} (median)"


def _failed(failures: Sequence[Failure], message: str) -> str:
    if not failures:
        return ""
    first = failures[0]
    more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
    return f"failed in {shorten_name(first.where)} ({KINDS[first.kind]}{more}){message}"


def _size(result: Result) -> str:
    parameters, weights, file = (
        figure(result, metric) for metric in ("parameters", "weight_bytes", "file_bytes")
    )
    if parameters:
        size = f" ({weights})" if weights else ""
        parts = (f"has {parameters} parameters{size}", _work(result))
        return "; ".join(filter(None, (" and ".join(filter(None, parts)), _memory(result))))
    if work := _work(result):
        return "; ".join(filter(None, (work, _memory(result))))
    if file:
        return f"takes {file} on disk"
    further = {row.name for row in METRICS.further(m.metric for m in result.measurements)}
    figures = format_main_figures([m for m in result.measurements if m.metric in further])
    return f"has {', '.join(figures)}" if figures else "was not measured"


def _work(result: Result) -> str:
    """Describe the MACs and FLOPs of one call."""
    macs, flops = result.find("macs"), result.find("flops")
    if macs is None:
        return ""
    inspection, sizes = result.job.inspection, analysed_at(result)
    step = " in a training step" if inspection.mode is Mode.TRAIN else ""
    flops_text = f" ({_counted(flops, 'FLOPs')})" if flops else ""
    return f"costs {_counted(macs, 'MACs')}{flops_text}{step}{f' at {sizes}' if sizes else ''}"


def _counted(measurement: Measurement, noun: str) -> str:
    """Format a count of operations, as a range if operators without a formula leave it open."""
    bounds = measurement.interval
    if bounds is None or bounds.low == bounds.high:
        return amount(number(measurement)[0], noun)
    if bounds.high == inf:
        return f"at least {amount(bounds.low, noun)}"
    low, high = amount(bounds.low, noun), amount(bounds.high, noun)
    unit = high.partition(" ")[2]
    return (
        f"{low.removesuffix(f' {unit}')} to {high}" if unit == low.partition(" ")[2] else f"{low} to {high}"
    )


def _memory(result: Result) -> str:
    peak, activations = figure(result, "memory_peak"), figure(result, "activation_peak")
    if not peak:
        return f"its activations need {activations} at the peak" if activations else ""
    part = f", {activations} of it activations" if activations else ""
    return f"it needs {peak} at the peak{part}"


def _unmet_bounds(judgements: Sequence[Judgement]) -> Iterator[str]:
    for verdict in (Severity.BROKEN, Severity.UNDECIDED):
        names = [clean(str(j.constraint)) for j in judgements if j.verdict == verdict.value]
        if names:
            yield f"{verdict.capitalize()}: {'; '.join(names)}."

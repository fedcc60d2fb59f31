"""A server under load: the verdict clause and the latency breakdown of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.load.latency_breakdown import STAGES
from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.metrics.metric import METRICS, ReportSection
from modeldyno.core.report.blocks import Block, Table, clean, make_columns, note, shorten
from modeldyno.core.stats.units import CORES, RATE, SECONDS, format_quantity
from modeldyno.views.text import NAME_LIMIT, count, estimate, format_measurement, join_nonempty, number, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.result.result import Result
    from modeldyno.core.spec.load_spec import Load

STAGE_NAMES = {
    row.name: row.label for row in METRICS.values() if row.section is ReportSection.SERVER and row.label
}
_LARGEST = 4
"""Most batch sizes that are named."""

assert set(STAGES) < set(STAGE_NAMES)


def server_clause(result: Result) -> str:
    """Return a clause on rate and latency of the server; empty if nothing was served."""
    rate, latency = result.find("request_rate"), result.find("latency")
    if rate is None and result.job.load is not None:  # another tool may count samples alone
        rate = result.find("throughput")
    if rate is None:
        return ""
    backend = shorten(clean(result.job.backend), NAME_LIMIT)
    at = f"at {result.job.load}" if result.job.load else "under load"
    value, interval = number(rate)
    counted = "requests" if rate.metric == "request_rate" else "samples"
    speed = estimate(value, interval, RATE)[0].replace("/s", f" {counted}/s")
    does = f"answers {speed} {at} on {backend}"
    if tokens := result.find("token_rate"):
        does = (
            f"generates {format_measurement(tokens).replace('/s', ' tokens/s')} ({speed}) {at} on {backend}"
        )
    if latency is None or not isinstance(latency.value, Distribution):
        return does
    if latency.value.void:
        return f"{does}, but was {latency.value.void}, so its latency is not meaningful"
    return f"{does}: {_token_clause(result) or f'latency {_median_and_tail(latency.value)}'}"


def is_streamed(result: Result) -> bool:
    """Whether the answers were streamed."""
    return result.find("request_rate") is not None and result.find("time_to_first_token") is not None


def _token_clause(result: Result) -> str:
    """Return a clause on the latency of tokens; empty if answers were not streamed."""
    first, per_token = result.find("time_to_first_token"), result.find("time_per_output_token")
    if first is None or not isinstance(first.value, Distribution):
        return ""
    follow = (
        f", then one every {_median_text(per_token.value)}"
        if per_token and isinstance(per_token.value, Distribution)
        else ""
    )
    return f"first token after {_median_and_tail(first.value)}{follow.replace('every about', 'about every')}"


def _median_and_tail(times: Distribution) -> str:
    tail = times.certified("p99")
    slow = "" if tail is None else f", {estimate(tail, times.interval('p99'), SECONDS)[0]} (p99)"
    return f"{_median_text(times)} (median){slow}"


def _median_text(times: Distribution) -> str:
    few = "about " if times.missing("p50") else ""
    return f"{few}{estimate(times.statistic('p50'), times.interval('p50'), SECONDS)[0]}"


def stages(result: Result) -> Iterator[tuple[str, float]]:
    """Yield the known stages of a mean request with their seconds."""
    for metric, name in STAGE_NAMES.items():
        measurement = result.find(metric)
        if measurement is not None:
            yield name, number(measurement)[0]


def breakdown(result: Result) -> Iterator[Block]:
    """Tabulate the mean time of a request by the stages that the server reports, and the rest.

    The server counts the requests that it answered in the steady window, and `service_time` is of those that
    were due in it; so the total is the sum of the parts, if they have the rest.
    """
    service = result.find("service_time")
    parts = [
        (metric, measurement) for metric in STAGE_NAMES if (measurement := result.find(metric)) is not None
    ]
    if service is None or not isinstance(service.value, Distribution) or not parts:
        return
    total = sum(number(measurement)[0] for _, measurement in parts)
    if result.find("network_time") is None:
        total = service.value.statistic("mean")
    has_intervals = any(stage.interval is not None for _, stage in parts)
    rows = []
    for metric, stage in parts:
        value, interval = estimate(*number(stage), SECONDS)
        ends = (interval,) if has_intervals else ()
        rows.append((STAGE_NAMES[metric], value, *ends, share(number(stage)[0], total), metric))
    yield Table(
        title="Where a request spends its time, on average, as the server reports it",
        columns=make_columns(
            "stage", "time>", *(("95 % interval",) if has_intervals else ()), "share>", "metric"
        ),
        rows=(
            *rows,
            ("total", format_quantity(total, SECONDS, 3), *(("",) if has_intervals else ()), "100%", ""),
        ),
    )
    if batches := _batches(result):
        yield note(batches, code="batches")


def composing_models(result: Result) -> Iterator[Block]:
    """Tabulate the stages of each model of an ensemble, or that another calls, per request to that model."""
    names = list(dict.fromkeys(m.scope for m in result.measurements if m.metric in STAGES and m.scope))
    beside = {str(other.name) for other in result.job.beside}
    names = [name for name in names if name not in beside]
    columns = {metric: [_of_model(result, metric, name) for name in names] for metric in _OF_A_MODEL}
    filled = {metric: cells for metric, cells in columns.items() if any(cells)}
    if not names or not filled:
        return
    yield Table(
        title="The mean time of a request in each model, as the server reports it",
        columns=make_columns("model", *(f"{_OF_A_MODEL[metric]}>" for metric in filled)),
        rows=tuple(
            (shorten(clean(name), NAME_LIMIT), *(cells[place] or "—" for cells in filled.values()))
            for place, name in enumerate(names)
        ),
    )


_OF_A_MODEL = {
    **{metric: STAGE_NAMES[metric].removeprefix("compute: ") for metric in STAGES},
    "formed_batch": "batch",
    "instances": "instances",
}
"""Metrics of one of several models, with their titles."""


def _of_model(result: Result, metric: str, name: str) -> str:
    measurement = result.find(metric, name)
    return "" if measurement is None else format_measurement(measurement)


def describe_load(result: Result, load: Load) -> str:
    """Describe the load and the CPU time of the client."""
    kind = "closed loop" if load.closed else "open loop"
    busy = [number(m)[0] for m in result.measurements if m.metric == "client_cpu"]
    flight, client_time = result.find("in_flight"), result.find("client_time")
    return join_nonempty(
        f"{load} ({kind})",
        f"{format_measurement(flight)} in flight on average" if flight else "",
        f"{count(len(busy), 'driver')} used {format_quantity(sum(busy), CORES, 2)}" if busy else "",
        f"{format_measurement(client_time)} per request" if client_time else "",
    )


def redundant_metrics(result: Result) -> frozenset[str]:
    """Return the metrics that add nothing: equal to another row, or without errors."""
    rates = [rate.value for name in ("throughput", "request_rate") if (rate := result.find(name))]
    errors = result.find("error_rate")
    return frozenset((
        *(("request_rate",) if len(rates) == 2 and rates[0] == rates[1] else ()),  # noqa: PLR2004 - both
        *(("requests",) if errors is not None and not errors.value else ()),
        *(("inter_chunk_latency",) if is_streamed(result) and result.find("inter_token_latency") else ()),
    ))  # fmt: skip


def _batches(result: Result) -> str:
    """Describe the batches that the server formed."""
    mean = result.find("formed_batch")
    if mean is None:
        return ""
    sizes = [m for m in result.measurements if m.metric == "executions"]
    sizes.sort(key=lambda m: -number(m)[0])
    named = ", ".join(
        f"{m.scope.removeprefix('batch ')} ({count(int(number(m)[0]), 'call')})" for m in sizes[:_LARGEST]
    )
    return f"the server ran batches of {format_measurement(mean)} on average{f': {named}' if named else ''}"

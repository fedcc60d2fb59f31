"""A server under load: the verdict clause and the latency breakdown of a request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.job.job import IMPORTED
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.metrics.metric import METRICS, ReportSection
from modeldyno.base.report.blocks import Block, Table, make_table, note
from modeldyno.base.result import multi_model
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.stats.units import CORES, RATE, SECONDS, format_quantity
from modeldyno.base.views.text import (
    count,
    estimate,
    figure,
    format_measurement,
    format_statistic,
    join_nonempty,
    median_text,
    number,
    share,
    shorten_name,
)
from modeldyno.profiling.latency_breakdown import STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.load_spec import Load
    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.base.result.result import Result

STAGE_NAMES = {
    row.name: row.label for row in METRICS.values() if row.section is ReportSection.SERVER and row.label
}
_LARGEST = 4
"""Most batch sizes that are named."""

assert set(STAGES) < set(STAGE_NAMES)


def server_clause(result: Result) -> str:
    """Return a clause on rate and latency of the server; empty if nothing was served."""
    rate, latency = result.find("request_rate"), result.distribution("latency")
    if rate is None and result.job.load is not None:  # another tool may count samples alone
        rate = result.find("throughput")
    if rate is None and not is_loaded(result):
        return ""
    backend = shorten_name(result.job.backend)
    at = f"at {result.job.load}" if result.job.load else "under load"
    speed = "requests"
    if rate is not None:
        value, interval = number(rate)
        counted = "requests" if rate.metric == "request_rate" else "samples"
        speed = estimate(value, interval, RATE)[0].replace("/s", f" {counted}/s")
    withheld = result.withheld("request_rate")
    does = f"answers {speed} {at} on {backend}{f' (rate withheld: {withheld})' if withheld else ''}"
    if tokens := result.find("token_rate"):
        does = (
            f"generates {format_measurement(tokens).replace('/s', ' tokens/s')} ({speed}) {at} on {backend}"
        )
    if latency is None:
        return does
    if latency.void:
        return f"{does}, but was {latency.void}, so its latency is not meaningful"
    return f"{does}: {_token_clause(result) or f'latency {_median_and_tail(latency)}'}"


def is_loaded(result: Result) -> bool:
    """Whether a server was under load; its rate may be withheld."""
    return result.find("request_rate") is not None or result.find("in_flight") is not None


def is_streamed(result: Result) -> bool:
    """Whether the answers were streamed."""
    return is_loaded(result) and result.find("time_to_first_token") is not None


def _token_clause(result: Result) -> str:
    """Return a clause on the latency of tokens; empty if answers were not streamed."""
    first, per_token = (
        result.distribution(metric) for metric in ("time_to_first_token", "time_per_output_token")
    )
    if first is None:
        return ""
    follow = "" if per_token is None else f", then one every {median_text(per_token)}"
    if per_token is not None and not per_token.statistic("p50"):
        follow = ", all others with it"
    return f"first token after {_median_and_tail(first)}{follow.replace('every about', 'about every')}"


def _median_and_tail(times: Distribution) -> str:
    certified = times.certified("p99") is not None
    slow = f", {format_statistic(times, 'p99')[0]} (p99)" if certified else ""
    return f"{median_text(times)} (median){slow}"


def stages(result: Result) -> Iterator[tuple[str, float]]:
    """Yield the known stages of a mean request with their seconds."""
    for metric, name in STAGE_NAMES.items():
        seconds = result.number(metric)
        if seconds is not None:
            yield name, seconds


def breakdown(result: Result) -> Iterator[Block]:
    """Tabulate the mean time of a request by the stages that the server reports, and the rest.

    The server counts the requests that it answered in the steady window, and `service_time` is of those that
    were due in it; so the total is the sum of the parts, if they have the rest.
    """
    service = result.distribution("service_time")
    parts = [stage for metric in STAGE_NAMES if (stage := result.find(metric)) is not None]
    if service is None or not parts:
        return
    total = sum(number(stage)[0] for stage in parts)
    if result.find("network_time") is None:
        total = service.statistic("mean")
    rows = [
        (
            STAGE_NAMES[stage.metric],
            *estimate(*number(stage), SECONDS),
            share(number(stage)[0], total),
            stage.metric,
        )
        for stage in parts
    ]
    yield make_table(
        "Where a request spends its time, on average, as the server reports it",
        ("stage", "time>", "95 % interval?", "share>", "metric"),
        (*rows, ("total", format_quantity(total, SECONDS, 3), "", "100%", "")),
    )
    if batches := _batches(result):
        yield note(batches, code="batches")
    if generation := _generation(result):
        yield note(generation, code="generation")


def _generation(result: Result) -> str:
    """Describe what a server of a language model reports about its phases, queue, cache and speculation."""
    phases = [
        f"{time} of {word}"
        for metric, word in (("prefill_time", "prefill"), ("decode_time", "decode"))
        if (time := figure(result, metric))
    ]
    busy = [
        f"{gauge.statistic('mean'):,.3g} (at most {gauge.statistic('max'):,.3g}) {word}"
        for metric, word in (("running_requests", "running"), ("waiting_requests", "waiting"))
        if (gauge := result.distribution(metric)) is not None
    ]
    cache, accepted = result.distribution("kv_cache_usage"), figure(result, "accepted_token_share")
    preempted = round(result.number("preempted_requests") or 0)
    parts = (
        f"a request takes {' and '.join(phases)}" if phases else "",
        f"on average {' and '.join(busy)}" if busy else "",
        f"the cache {cache.statistic('max'):.0%} full at most" if cache is not None else "",
        f"{count(preempted, 'request')} preempted" if preempted else "",
        f"{accepted} of the speculated tokens accepted" if accepted else "",
    )
    facts = "; ".join(filter(None, parts))
    return f"by the server's metrics {facts}" if facts else ""


_GROUPS = {"turn": "By turn of a session", "server": "By server"}
"""What requests are grouped by, before the = of a scope, to the title of its table."""


_GROUP_COLUMNS = (
    "answers>", "failed>?", "first token p50>?", "latency p50>", "p99>", "prompt tokens>?", "cached>?",
)  # fmt: skip


def by_group(result: Result) -> Iterator[Block]:
    """Tabulate the turns of chats, whose later ones have longer prompts, and the servers of a model."""
    for group, title in _GROUPS.items():
        scopes = {m.scope: None for m in result.measurements if m.scope.startswith(f"{group}=")}
        if scopes:
            yield make_table(
                f"{title}; about: not certified",
                (group, *_GROUP_COLUMNS),
                (_group_row(result, scope) for scope in scopes),
            )


def _group_row(result: Result, scope: str) -> tuple[str, ...]:
    latency = _times(result, "latency", scope)
    return (
        scope.partition("=")[2],
        f"{len(latency):,}" if isinstance(latency, Distribution) else "",
        figure(result, "error_rate", scope) if result.number("error_rate", scope) else "",
        _quantile(_times(result, "time_to_first_token", scope), "p50"),
        _quantile(latency, "p50"),
        _quantile(latency, "p99"),
        figure(result, "prompt_tokens", scope),
        figure(result, "cached_prompt_share", scope),
    )


def _times(result: Result, metric: str, scope: str) -> object:
    measurement = result.find(metric, scope)
    return None if measurement is None else measurement.value


def composing_models(result: Result) -> Iterator[Block]:
    """Tabulate the stages of each model of an ensemble, or that another calls, per request to that model."""
    names = list(dict.fromkeys(m.scope for m in result.measurements if m.metric in STAGES and m.scope))
    beside = {str(other.name) for other in result.job.beside}
    names = [name for name in names if name not in beside]
    rows = [[figure(result, metric, name, "—") for metric in _OF_A_MODEL] for name in names]
    if any(set(cells) != {"—"} for cells in rows):
        yield make_table(
            "The mean time of a request in each model, as the server reports it",
            ("model", *(f"{title}>?" for title in _OF_A_MODEL.values())),
            ((shorten_name(name), *cells) for name, cells in zip(names, rows, strict=True)),
        )


_OF_A_MODEL = {
    **{metric: STAGE_NAMES[metric].removeprefix("compute: ") for metric in STAGES},
    "formed_batch": "batch",
    "instances": "instances",
}
"""Metrics of one of several models, with their titles."""


def describe_load(result: Result, load: Load) -> str:
    """Describe the load and the CPU time of the client."""
    kind = "closed loop" if load.closed else "open loop"
    busy = [number(m)[0] for m in result.measurements if m.metric == "client_cpu"]
    flight, client_time = figure(result, "in_flight"), figure(result, "client_time")
    given_up = figure(result, "requests", RequestOutcome.ABANDONED.word)
    return join_nonempty(
        f"{load} ({kind})",
        f"{flight} in flight on average" if flight else "",
        f"{count(len(busy), 'driver')} used {format_quantity(sum(busy), CORES, 2)}" if busy else "",
        f"{client_time} per request" if client_time else "",
        f"{given_up} requests given up by the client" if given_up else "",
    )


def describe_client(result: Result) -> str:
    """Say what the client itself adds to the times of streamed answers; empty if that is not known."""
    named = {"client_first_token_error": "a first token", "client_gap_error": "a gap"}
    parts = [
        f"{_mean_and_tail(error)} to {time}"
        for metric, time in named.items()
        if (error := result.distribution(metric)) is not None
    ]
    return f"adds {', '.join(parts)}" if parts else ""


def _mean_and_tail(error: Distribution) -> str:
    mean, tail = (format_quantity(error.statistic(name), SECONDS, 2) for name in ("mean", "p99"))
    return f"{mean} (p99 {tail})"


def redundant_metrics(result: Result) -> frozenset[str]:
    """Return the metrics that add nothing: (nearly) equal to another row, or without errors."""
    rates = [rate.value for name in ("throughput", "request_rate") if (rate := result.find(name))]
    errors, load = result.find("error_rate"), result.job.load
    closed = load is not None and load.closed and result.job.backend != IMPORTED
    return frozenset((
        *(("first_token_service_time",) if closed else ()),
        *(("request_rate",) if len(rates) == 2 and rates[0] == rates[1] else ()),
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


# --- several models of a server -------------------------------------------------------------------


_COLUMNS = ("throughput", "latency p50", "latency p99", "queue", "compute")


def without_cohosted(result: Result) -> Result:
    """Return a Result without the measurements of co-hosted models."""
    names = [str(other.name) for other in result.job.beside]
    return replace(
        result, measurements=tuple(multi_model.measurements_of_first_model(names, result.measurements))
    )


def cohosted_table(result: Result) -> Iterator[Table]:
    """Tabulate the models of one server; nothing for a single model or without measurements."""
    if not result.job.beside or not any(
        measurement.metric == "latency" for measurement in result.measurements
    ):
        return
    names = [str(other.name) for other in result.job.beside]
    parts = [
        (
            result.name,
            result.job.load,
            tuple(multi_model.measurements_of_first_model(names, result.measurements)),
        )
    ]
    parts += [
        (name, other.load, tuple(multi_model.measurements_of_model(name, result.measurements)))
        for name, other in zip(names, result.job.beside, strict=True)
    ]
    yield make_table(
        "The models of the server, under load at the same time",
        ("model", "load", *(f"{title}>" for title in _COLUMNS)),
        (
            (shorten_name(name), str(load or ""), *_figures(measurements))
            for name, load, measurements in parts
        ),
    )


def _figures(measurements: tuple[Measurement, ...]) -> Iterator[str]:
    by_metric = {measurement.metric: measurement for measurement in measurements if not measurement.scope}
    texts = {metric: format_measurement(measurement) for metric, measurement in by_metric.items()}
    yield texts.get("throughput", "")
    latency = by_metric.get("latency")
    for name in ("p50", "p99"):
        yield _quantile(latency.value, name) if latency else ""
    yield from (texts.get(metric, "") for metric in ("queue_time", "compute_time"))


def _quantile(times: object, name: str) -> str:
    """Format a percentile with the digits that its interval justifies; an uncertified one as ``about``."""
    if not isinstance(times, Distribution):
        return ""
    if times.void:
        return times.void
    if times.missing(name):
        return f"about {format_quantity(times.statistic(name), SECONDS, 2)}"
    return format_statistic(times, name)[0]

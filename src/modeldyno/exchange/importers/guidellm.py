"""GuideLLM's report, ``benchmarks.json``: one benchmark per strategy, with its requests.

Times are wall-clock seconds as doubles, exact to about a quarter of a microsecond. Of an answer's pieces it
keeps only the first and the last. As of release 0.8.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.serving.load.foreign_load import (
    MILLI,
    ForeignLoad,
    ForeignRequest,
    definition_doubt,
    outcome_of_error,
    reported_value,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.serving.load.foreign_load import ForeignFile

TOOL = "guidellm"
_SPREADS = {
    "request_latency": ("service_time", 1.0),
    "time_to_first_token_ms": ("time_to_first_token", MILLI),
    "inter_token_latency_ms": ("time_per_output_token", MILLI),
}
_STATISTICS = {"mean": "mean", "median": "p50", "std_dev": "std", "min": "min", "max": "max"}
_PERCENTILES = {"p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "p999": "p99.9"}
_RATES = {"requests_per_second": "request_rate", "output_tokens_per_second": "token_rate"}
_SECOND = 1e9
_ARRIVALS = {"constant": Arrivals.CONSTANT, "poisson": Arrivals.POISSON}


class _Timings(msgspec.Struct):
    request_start: float | None = None
    request_end: float | None = None
    targeted_start: float | None = None
    resolve_start: float | None = None
    resolve_end: float | None = None
    first_token_iteration: float | None = None
    last_token_iteration: float | None = None
    first_iteration: float | None = None
    last_iteration: float | None = None


class _Info(msgspec.Struct):
    timings: _Timings
    error: str | None = None


class _Tokens(msgspec.Struct):
    total_tokens: int | None = None
    text_tokens: int | None = None


class _Request(msgspec.Struct):
    info: _Info
    output_metrics: _Tokens | None = None


class _Requests(msgspec.Struct):
    successful: list[_Request] | None = None
    errored: list[_Request] | None = None
    incomplete: list[_Request] | None = None


class _Strategy(msgspec.Struct):
    type_: str
    rate: float | None = None
    streams: int | None = None
    max_concurrency: int | None = None


class _Config(msgspec.Struct):
    strategy: _Strategy
    backend: dict[str, Any] = {}
    profile: dict[str, Any] = {}
    sample_size: int | None = None


class _Benchmark(msgspec.Struct):
    config: _Config
    requests: _Requests
    metrics: dict[str, Any] = {}
    start_time: float | None = None
    end_time: float | None = None
    warmup_duration: float = 0.0
    cooldown_duration: float = 0.0


class _Report(msgspec.Struct):
    benchmarks: list[_Benchmark]
    metadata: dict[str, Any] = {}


def claims(file: ForeignFile) -> bool:
    """Return whether the file is a GuideLLM report."""
    document = file.documents[0] if len(file.documents) == 1 else None
    return isinstance(document, dict) and "benchmarks" in document and "metadata" in document


def read(file: ForeignFile) -> Iterator[ForeignLoad]:
    """Yield each benchmark."""
    report = msgspec.convert(file.documents[0], _Report)
    for benchmark in report.benchmarks:
        yield _import_benchmark(benchmark, report.metadata)


def _import_benchmark(benchmark: _Benchmark, metadata: Mapping[str, Any]) -> ForeignLoad:
    load = _load(benchmark.config)
    # Rates computed from a sample of the requests would be wrong.
    requests = () if benchmark.config.sample_size is not None else tuple(_requests(benchmark.requests, load))
    backend, start, end = benchmark.config.backend, benchmark.start_time, benchmark.end_time
    # Without them, start and end are the first send and the last end, which leave out earlier due times.
    cut = (
        start is not None and end is not None and benchmark.warmup_duration + benchmark.cooldown_duration > 0
    )
    steady = (round(start * _SECOND), round(end * _SECOND) + 1) if cut and start and end else None
    return ForeignLoad(
        tool=TOOL,
        version=str(metadata.get("guidellm_version", "")),
        model=str(backend.get("model") or ""),
        url=str(backend.get("target") or ""),
        created="" if start is None else datetime.fromtimestamp(start, UTC).isoformat(),
        load=load,
        config={"protocol": str(backend.get("request_format") or backend.get("kind") or "openai")},
        software={key: str(metadata[key]) for key in ("platform",) if key in metadata},
        requests=requests,
        window=steady,
        untold=frozenset({"throughput", "inter_chunk_latency", "inter_token_latency"}),
        figures=tuple(_figures(benchmark.metrics, closed=load.closed)),
        gaps=tuple(_doubts(load, unknown=sum(not r.info.error for r in benchmark.requests.errored or ()))),
    )


def _load(config: _Config) -> Load:
    strategy = config.strategy
    if strategy.type_ in _ARRIVALS:
        # The strategy has a limit even if the user set none.
        limit = (config.profile or {"max_concurrency": strategy.max_concurrency}).get("max_concurrency")
        return Load(arrivals=_ARRIVALS[strategy.type_], rate=strategy.rate, concurrency=limit)
    return Load(concurrency=strategy.streams or strategy.max_concurrency or 1)


def _requests(groups_by_status: _Requests, load: Load) -> Iterator[ForeignRequest]:
    groups = (
        (groups_by_status.successful, RequestOutcome.OK),
        (groups_by_status.errored, RequestOutcome.SERVER_ERROR),
        (groups_by_status.incomplete, RequestOutcome.CANCELLED),
    )
    for requests, outcome in groups:
        for request in requests or ():
            error = request.info.error
            failed = outcome is RequestOutcome.SERVER_ERROR and error
            yield from _request(request, outcome_of_error(error) if failed and error else outcome, load)


def _request(request: _Request, outcome: RequestOutcome, load: Load) -> Iterator[ForeignRequest]:
    times = request.info.timings
    sent = times.resolve_start if times.request_start is None else times.request_start
    end = times.resolve_end if times.request_end is None else times.request_end
    if sent is None:
        return  # it was never sent
    first = times.first_iteration if times.first_token_iteration is None else times.first_token_iteration
    last = times.last_iteration if times.last_token_iteration is None else times.last_token_iteration
    pieces = () if first is None or last is None else tuple(dict.fromkeys((first, last)))
    tokens = request.output_metrics or _Tokens()
    due = None if load.closed or times.targeted_start is None else min(times.targeted_start, sent)
    yield ForeignRequest(
        sent=round(sent * _SECOND),
        due=None if due is None else round(due * _SECOND),
        end=round((sent if end is None else end) * _SECOND),
        outcome=outcome,
        tokens=tokens.total_tokens or tokens.text_tokens or -1,
        pieces=tuple(round(time * _SECOND) for time in pieces) if outcome is RequestOutcome.OK else (),
    )


def _figures(metrics: Mapping[str, Any], *, closed: bool) -> Iterator[Measurement]:
    """Yield the statistics of the successful requests."""
    for name, (metric, scale) in _SPREADS.items():
        spread = _successful(metrics, name)
        percentiles = spread.get("percentiles") or {}
        values = {statistic: spread.get(key) for key, statistic in _STATISTICS.items()}
        values |= {statistic: percentiles.get(key) for key, statistic in _PERCENTILES.items()}
        for target in (metric, "latency") if closed and metric == "service_time" else (metric,):
            for statistic, value in values.items():
                yield from reported_value(target, value, statistic, scale)
    for name, metric in _RATES.items():
        yield from reported_value(metric, _successful(metrics, name).get("mean"))


def _successful(metrics: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    statistics: Mapping[str, Any] = (metrics.get(name) or {}).get("successful") or {}
    return statistics


def _doubts(load: Load, *, unknown: int) -> Iterator[Doubt]:
    yield definition_doubt(
        "time_per_output_token",
        "GuideLLM calls it inter-token latency; its time per output token includes the first token, and it "
        "does not keep the gaps between tokens",
        "compare time_per_output_token, which both tools take from the first piece to the last",
    )
    if not load.closed:
        yield definition_doubt(
            "latency",
            "GuideLLM's request latency starts at the sending; here latency starts at the targeted start",
            "read service_time for GuideLLM's own figure",
        )
    if unknown:
        yield definition_doubt(
            "requests",
            f"GuideLLM did not record how {unknown:,} requests failed; they are imported as server-error",
        )

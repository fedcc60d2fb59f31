"""``vllm bench serve --save-result``: one JSON document per run; with ``--append-result`` one per line.

Times are seconds in lists and milliseconds in statistics. For every request there are ``latencies`` and,
since 0.30, ``queue_times``; with ``--save-detailed`` also when each was sent, and its pieces.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.measurement import Distribution, Measurement
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
    from modeldyno.serving.load.foreign_load import ForeignFile

TOOL = "vllm"
_REQUIRED_KEYS = frozenset({"duration", "completed", "request_throughput", "model_id", "num_prompts"})
_METRICS = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "itl": "inter_chunk_latency",
    "e2el": "service_time",
}
_STATISTIC = re.compile(r"(mean|median|std|p\d+(?:\.\d+)?)_(ttft|tpot|itl|e2el)_ms")
_RATES = {
    "request_throughput": "request_rate",
    "output_throughput": "token_rate",
    "request_goodput": "goodput",
}
_SECOND = 1e9


class _Run(msgspec.Struct):
    model_id: str
    num_prompts: int
    completed: int
    duration: float
    date: str = ""
    backend: str = ""
    request_rate: float | str | None = None
    burstiness: float = 1.0
    max_concurrency: int | None = None
    failed: int = 0
    output_lens: list[int] | int = []
    ttfts: list[float] = []
    itls: list[list[float]] = []
    latencies: list[float] = []
    start_times: list[float] = []
    queue_times: list[float] = []
    errors: list[str] = []


def claims(file: ForeignFile) -> bool:
    """Return whether every document in the file is a vLLM run."""
    return bool(file.documents) and all(
        isinstance(document, dict) and document.keys() >= _REQUIRED_KEYS for document in file.documents
    )


def read(file: ForeignFile) -> Iterator[ForeignLoad]:
    """Yield each run."""
    for document in file.documents:
        yield _import_run(msgspec.convert(document, _Run), document)


def _import_run(run: _Run, document: Mapping[str, Any]) -> ForeignLoad:
    load = _load(run)
    requests = tuple(_requests(run, load)) if run.start_times and run.ttfts else ()
    return ForeignLoad(
        tool=TOOL,
        model=run.model_id,
        created=_created(run.date),
        load=load,
        config={"protocol": run.backend} if run.backend else {},
        requests=requests,
        untold=frozenset({"throughput", "inter_token_latency"}),
        figures=(*_figures(run, document, load), *_latency_samples(run, load)),
        gaps=tuple(_doubts(run, load)),
    )


def _created(date: str) -> str:
    """Return ``20261122-130120`` as ISO time; its time zone is unknown, so this machine's is assumed."""
    try:
        return datetime.strptime(date, "%Y%m%d-%H%M%S").astimezone(UTC).isoformat()
    except ValueError:
        return ""


def _load(run: _Run) -> Load:
    rate = run.request_rate
    if not isinstance(rate, float | int) or math.isinf(rate):
        return Load(concurrency=run.max_concurrency or max(1, run.num_prompts))
    if math.isinf(run.burstiness):
        return Load(arrivals=Arrivals.CONSTANT, rate=rate, concurrency=run.max_concurrency)
    arrivals = Arrivals.POISSON if run.burstiness == 1 else Arrivals.GAMMA
    return Load(arrivals=arrivals, rate=rate, burstiness=run.burstiness, concurrency=run.max_concurrency)


def _requests(run: _Run, load: Load) -> Iterator[ForeignRequest]:
    waits = run.queue_times if run.queue_times and not load.closed else [None] * len(run.start_times)
    errors = run.errors or [""] * len(run.start_times)
    lens = run.output_lens if isinstance(run.output_lens, list) else [-1] * len(run.start_times)
    columns = zip(run.start_times, run.ttfts, run.itls, errors, lens, waits, strict=True)
    for start, first, gaps, error, tokens, wait in columns:
        pieces = tuple(round((start + after) * _SECOND) for after in accumulate(gaps, initial=first))
        yield ForeignRequest(
            sent=round(start * _SECOND),
            due=None if wait is None else round((start - wait) * _SECOND),
            end=pieces[-1],
            outcome=outcome_of_error(error) if error else RequestOutcome.OK,
            tokens=tokens or -1,
            pieces=() if error else pieces,
        )


def _figures(run: _Run, document: Mapping[str, Any], load: Load) -> Iterator[Measurement]:
    for name, metric in _RATES.items():
        yield from reported_value(metric, _number(document.get(name)))
    yield from reported_value("requests", run.completed, "ok")
    if run.failed:
        yield from reported_value("requests", run.failed, "server-error")
    for name, value in document.items():
        if match := _STATISTIC.fullmatch(name):
            both = match[2] == "e2el" and load.closed
            statistic = "p50" if match[1] == "median" else match[1]
            for metric in ("latency", "service_time") if both else (_METRICS[match[2]],):
                yield from reported_value(metric, _number(value), statistic, MILLI)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, float | int) else None


def _latency_samples(run: _Run, load: Load) -> Iterator[Measurement]:
    """Yield the request times if that is all the file has; it does not tell which ones failed."""
    if run.latencies and not run.failed:
        times = Distribution.of(run.latencies, stop="imported", clock=TOOL)
        for metric in ("latency", "service_time") if load.closed else ("service_time",):
            yield Measurement(metric=metric, value=times)


def _doubts(run: _Run, load: Load) -> Iterator[Doubt]:
    yield definition_doubt(
        "service_time",
        "vLLM ends a request with the last piece that has a choice, ModelDyno with the last byte",
        "expect ModelDyno's time to be longer by what the server sends after that piece",
    )
    yield definition_doubt(
        "inter_chunk_latency",
        "vLLM calls the gaps between pieces inter-token latency; a piece may hold several tokens, and the "
        "last one holds none",
        "compare time_per_output_token, which both tools take from the first piece to the last",
    )
    if load.closed and run.max_concurrency is None:
        yield definition_doubt(
            "latency",
            "vLLM sent all requests at once; this is imported as a closed loop with that many slots",
            "run vllm with --max-concurrency or --request-rate",
        )
    if not load.closed and run.burstiness != 1 and not math.isinf(run.burstiness):
        yield definition_doubt(
            "offered_rate",
            f"vLLM drew gaps from a gamma distribution (burstiness {run.burstiness:g}); imported as poisson",
        )
    if run.failed and not any(run.errors):
        yield definition_doubt(
            "requests", "vLLM does not record how a request failed; all are imported as server-error"
        )

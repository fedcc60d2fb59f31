"""Triton's perf_analyzer: the CSV of ``-f``, and the JSON of ``--profile-export-file``.

In the CSV times are microseconds, and ``Inferences/Second`` counts samples: batch size x requests. The JSON
has every request of the last measurement windows in wall-clock nanoseconds, but not the batch size.
"""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.serving.load.foreign_load import (
    MICRO,
    ForeignLoad,
    ForeignRequest,
    definition_doubt,
    reported_value,
)
from modeldyno.serving.load.steady_window import NANO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.serving.load.foreign_load import ForeignFile

TOOL = "perf_analyzer"
_LOADS = ("Concurrency", "Request Rate")
_STAGES = {
    "Server Queue": "queue_time",
    "Server Compute Input": "compute_input_time",
    "Server Compute Infer": "compute_time",
    "Server Compute Output": "compute_output_time",
}
_CLIENT_COLUMNS = ("Client Send", "Network+Server Send/Recv", "Client Recv")
"""Columns whose sum is network_time: the part of a request outside the server's statistics."""
_PERCENTILE = re.compile(r"(p\d+) latency")


class _Request(msgspec.Struct):
    timestamp: int
    response_timestamps: list[int]
    response_outputs: list[dict[str, Any]] = []


class _Mode(msgspec.Struct):
    mode: str
    value: float


class _Experiment(msgspec.Struct):
    experiment: _Mode
    requests: list[_Request]
    window_boundaries: list[int] = []


class _Export(msgspec.Struct):
    experiments: list[_Experiment]
    version: str = ""
    service_kind: str = ""
    endpoint: str = ""


def claims(file: ForeignFile) -> bool:
    """Return whether the file is one of these two."""
    document = file.documents[0] if len(file.documents) == 1 else None
    if isinstance(document, dict):
        return "experiments" in document
    return file.text.startswith(tuple(f"{load},Inferences/Second," for load in _LOADS))


def read(file: ForeignFile) -> Iterator[ForeignLoad]:
    """Yield each experiment of the JSON, or each row of the CSV."""
    if not file.documents:
        yield from map(_import_row, csv.DictReader(io.StringIO(file.text), strict=True))
        return
    export = msgspec.convert(file.documents[0], _Export)
    for experiment in export.experiments:
        yield _import_experiment(experiment, export)


# --- CSV -------------------------------------------------------------------------------------------


def _import_row(row: Mapping[str, str]) -> ForeignLoad:
    numbers = {name: float(text) for name, text in row.items() if _is_number(text)}
    mode = next(name for name in _LOADS if name in row)
    return ForeignLoad(
        tool=TOOL,
        load=_load("concurrency" if mode == "Concurrency" else "request_rate", numbers[mode]),
        figures=tuple(_figures(numbers, closed=mode == "Concurrency")),
        gaps=(
            Doubt(
                code="other-definition",
                seen="the CSV has neither the number of requests nor the model and batch size",
                advice="run perf_analyzer with --profile-export-file, and import that JSON",
            ),
        ),
    )


def _figures(row: Mapping[str, float], *, closed: bool) -> Iterator[Measurement]:
    yield from reported_value("throughput", row["Inferences/Second"])
    for metric in ("latency", "service_time") if closed else ("service_time",):
        for name, value in row.items():
            if match := _PERCENTILE.fullmatch(name):
                yield from reported_value(metric, value, match[1], MICRO)
        yield from reported_value(metric, row.get("Avg latency"), "mean", MICRO)
    for name, metric in _STAGES.items():
        yield from reported_value(metric, row.get(name), scale=MICRO)
    if all(name in row for name in _CLIENT_COLUMNS):
        yield from reported_value("network_time", sum(row[name] for name in _CLIENT_COLUMNS), scale=MICRO)


def _is_number(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(r"\d+(\.\d+)?(e[+-]?\d+)?", text) is not None


# --- JSON ------------------------------------------------------------------------------------------


def _import_experiment(experiment: _Experiment, export: _Export) -> ForeignLoad:
    openai = export.service_kind == "openai"
    requests = tuple(_request(entry, streamed=openai) for entry in experiment.requests)
    streamed = any(request.pieces for request in requests)
    edges = experiment.window_boundaries
    begin = min((request.sent for request in requests), default=0)
    return ForeignLoad(
        tool=TOOL,
        version=export.version,
        created=datetime.fromtimestamp(begin * NANO, UTC).isoformat() if requests else "",
        load=_load(experiment.experiment.mode, experiment.experiment.value),
        config={"protocol": export.service_kind} if export.service_kind else {},
        requests=requests,
        window=(min(edges), max(edges)) if len(edges) > 1 else None,
        untold=frozenset() if openai else frozenset({"throughput"}),
        gaps=tuple(_doubts(openai=openai, streamed=streamed)),
    )


def _request(request: _Request, *, streamed: bool) -> ForeignRequest:
    times = request.response_timestamps
    if not times:
        # perf_analyzer does not record how or when a request failed.
        return ForeignRequest(
            sent=request.timestamp, end=request.timestamp, outcome=RequestOutcome.SERVER_ERROR
        )
    outputs = request.response_outputs
    pieces = [
        time
        for time, output in zip(times, outputs, strict=False)
        if streamed and _has_content(str(output.get("response", "")))
    ]
    return ForeignRequest(
        sent=request.timestamp, end=times[-1], pieces=tuple(pieces) if len(times) > 1 else ()
    )


def _has_content(text: str) -> bool:
    """Return whether a response has an event with text in it."""
    events = (line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:"))
    return any(_has_text(event) for event in events if event.startswith("{"))


def _has_text(event: str) -> bool:
    try:
        choice = msgspec.json.decode(event)["choices"][0]
        return bool(choice.get("text") or (choice.get("delta") or {}).get("content"))
    except (msgspec.DecodeError, AttributeError, LookupError, TypeError):
        return False


def _doubts(*, openai: bool, streamed: bool) -> Iterator[Doubt]:
    if not openai:
        yield definition_doubt(
            "throughput",
            "the JSON lacks the batch size (-b); request_rate counts requests, and samples are unknown",
            "multiply request_rate by the value of -b",
        )
    if streamed:
        yield definition_doubt(
            "inter_chunk_latency",
            "perf_analyzer gives one timestamp to all events of a stream that it reads at once, and it does "
            "not count tokens",
        )


def _load(mode: str, value: float) -> Load:
    if mode == "concurrency":
        return Load(concurrency=int(value))
    if value > 0:
        return Load(arrivals=Arrivals.CONSTANT, rate=value)
    return Load(arrivals=Arrivals.TRACE, trace="--request-intervals")

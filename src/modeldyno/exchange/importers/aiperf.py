"""AIPerf: ``profile_export_aiperf.json`` and ``.csv`` (statistics), ``profile_export.jsonl`` (every request).

The statistics and the requests are in the same directory; whichever JSON file is named, both are read. The
load of the CSV is that of the JSON beside it.
Times are wall-clock nanoseconds for a request, and milliseconds for its parts. As of release 0.13.
"""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.serving.load.foreign_load import (
    MILLI,
    ForeignLoad,
    ForeignRequest,
    definition_doubt,
    outcome_of_code,
    outcome_of_error,
    reported_value,
)
from modeldyno.serving.load.steady_window import NANO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.serving.load.foreign_load import ForeignFile

TOOL = "aiperf"
_SUMMARY, _RECORDS = "profile_export_aiperf.json", "profile_export.jsonl"
_TABLE = "profile_export_aiperf.csv"
_SPREADS = {
    "request_latency": "service_time",
    "time_to_first_token": "time_to_first_token",
    "inter_token_latency": "time_per_output_token",
    "inter_chunk_latency": "inter_chunk_latency",
}
_RATES = {
    "request_throughput": "request_rate",
    "output_token_throughput": "token_rate",
    "goodput": "goodput",
}
_COUNTS = {"request_count": "ok", "error_request_count": "server-error"}
_STATISTICS = {
    "avg": "mean", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "min": "min", "max": "max",
    "std": "std",
}  # fmt: skip
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": MILLI, "s": 1.0, "sec": 1.0}
_TITLE = re.compile(r"(?P<title>[^(]+?)(?: \((?P<unit>[^)]*)\))?")
_HEADER = "Metric,avg,min,max"
_ARRIVALS = {"poisson": Arrivals.POISSON, "gamma": Arrivals.POISSON, "constant": Arrivals.CONSTANT}


class _Value(msgspec.Struct):
    value: Any
    unit: str = ""


class _Metadata(msgspec.Struct):
    request_start_ns: int
    request_end_ns: int | None = None
    credit_issued_ns: int | None = None
    benchmark_phase: str = "profiling"
    was_cancelled: bool = False


class _Error(msgspec.Struct):
    code: int | None = None
    type: str | None = None


class _Record(msgspec.Struct):
    metadata: _Metadata
    metrics: dict[str, _Value] = {}
    error: _Error | None = None


def claims(file: ForeignFile) -> bool:
    """Return whether the file is one of these three."""
    if not file.documents:
        return file.text.startswith(_HEADER)
    return all(
        isinstance(entry, dict) and (_is_record(entry) or _is_summary(entry)) for entry in file.documents
    )


def _is_record(document: Mapping[str, Any]) -> bool:
    metadata = document.get("metadata")
    return isinstance(metadata, dict) and "request_start_ns" in metadata


def _is_summary(document: Mapping[str, Any]) -> bool:
    return "input_config" in document and ("request_latency" in document or "request_throughput" in document)


def read(file: ForeignFile) -> Iterator[ForeignLoad]:
    """Yield the one load in the file."""
    if not file.documents:
        beside = _read_sibling(file.path, _SUMMARY)
        setting = {key: beside[0][key] for key in _SETTING if key in beside[0]} if beside else {}
        yield _import_load(_read_csv(file.text) | setting, ())
    elif _is_record(file.documents[0]):
        summaries = _read_sibling(file.path, _SUMMARY)
        yield _import_load(summaries[0] if summaries else {}, file.documents)
    else:
        yield _import_load(file.documents[0], _read_sibling(file.path, _RECORDS))


_SETTING = ("input_config", "aiperf_version")
"""What a CSV does not have."""


def _read_sibling(path: Path, name: str) -> Sequence[Any]:
    """Return the other file of the export, in the same directory; empty if there is none."""
    if path.name not in {_SUMMARY, _RECORDS, _TABLE}:
        return ()
    try:
        text = path.with_name(name).read_text("utf-8")
    except FileNotFoundError:
        return ()
    lines = [text] if name == _SUMMARY else [line for line in text.splitlines() if line.strip()]
    return [msgspec.json.decode(line) for line in lines]


def _import_load(summary: Mapping[str, Any], documents: Iterable[Any]) -> ForeignLoad:
    records = [msgspec.convert(document, _Record) for document in documents]
    measured = [record for record in records if record.metadata.benchmark_phase != "warmup"]
    requests = tuple(map(_request, measured))
    config = summary.get("input_config") or {}
    most = _lookup(summary, "effective_concurrency", "max") or 1
    load = _load(config, _max_concurrency(requests) if requests else round(most))
    begin = min((request.sent for request in requests), default=0)
    return ForeignLoad(
        tool=TOOL,
        version=str(summary.get("aiperf_version") or ""),
        model=_first_text(_lookup(config, "endpoint", "model_names") or _lookup(config, "models", "items")),
        url=_first_text(_lookup(config, "endpoint", "urls") or _lookup(config, "endpoint", "url")),
        created=datetime.fromtimestamp(begin * NANO, UTC).isoformat() if requests else "",
        load=load,
        config={"protocol": str(_lookup(config, "endpoint", "type") or "openai")},
        requests=requests,
        untold=frozenset({"throughput", "inter_token_latency"}),
        figures=tuple(_figures(summary)),
        due_elsewhere=True,
        gaps=tuple(_doubts(measured, has_config=bool(config))),
    )


# --- configuration ---------------------------------------------------------------------------------


def _lookup(value: Any, *path: str) -> Any:
    """Follow names through nested mappings; None if one is missing."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _first_text(value: Any) -> str:
    """Return the first of several values as text."""
    value = value[0] if isinstance(value, list) and value else value
    return str(_lookup(value, "name") or "" if isinstance(value, dict) else value or "")


def _load(config: Mapping[str, Any], most: int) -> Load:
    """Return the load: one mapping until release 0.5, a list of phases since.

    Args:
        config: that of the run; empty if it is not known.
        most: requests that were on their way at once.
    """
    phases = config.get("phases") or [config.get("loadgen") or {}]
    phase: Mapping[str, Any] = next(
        (candidate for candidate in reversed(phases) if _lookup(candidate, "kind") != "warmup"), {}
    )
    slots, rate = phase.get("concurrency"), phase.get("rate") or phase.get("request_rate")
    if rate is None:
        return Load(concurrency=int(slots) if slots else most)
    names = (str(phase.get("type", "")), str(phase.get("request_rate_mode", "")))
    kind = next((_ARRIVALS[word] for word in names if word in _ARRIVALS), Arrivals.POISSON)
    return Load(arrivals=kind, rate=float(rate), concurrency=slots)


def _max_concurrency(requests: Sequence[ForeignRequest]) -> int:
    """Return the highest number of concurrent requests."""
    steps = sorted(
        (time, step) for request in requests for time, step in ((request.sent, 1), (request.end, -1))
    )
    return max(accumulate(step for _, step in steps))


# --- requests --------------------------------------------------------------------------------------


def _request(record: _Record) -> ForeignRequest:
    metadata, metrics = record.metadata, record.metrics
    duration, first = _seconds(metrics.get("request_latency")), _seconds(metrics.get("time_to_first_token"))
    sent = metadata.request_start_ns
    end = metadata.request_end_ns if duration is None else sent + round(duration / NANO)
    gaps = metrics.get("inter_chunk_latency")
    steps = [] if gaps is None or not isinstance(gaps.value, list) else gaps.value
    scale = _UNITS[gaps.unit] if gaps is not None else 1.0
    times = () if first is None else tuple(accumulate((step * scale for step in steps), initial=first))
    return ForeignRequest(
        sent=sent,
        end=sent if end is None else end,
        due=None if metadata.credit_issued_ns is None else min(metadata.credit_issued_ns, sent),
        outcome=_outcome(record),
        tokens=_tokens(metrics),
        pieces=tuple(sent + round(time / NANO) for time in times),
    )


def _seconds(value: _Value | None) -> float | None:
    return None if value is None else float(value.value) * _UNITS[value.unit]


def _tokens(metrics: Mapping[str, _Value]) -> int:
    """Return the tokens of an answer as counted by the server, or else by AIPerf's tokenizer."""
    for name in ("usage_completion_tokens", "output_sequence_length"):
        if name in metrics:
            return int(metrics[name].value)
    return -1


def _outcome(record: _Record) -> RequestOutcome:
    if record.metadata.was_cancelled:
        return RequestOutcome.CANCELLED
    if record.error is None:
        return RequestOutcome.OK
    return (
        outcome_of_code(record.error.code) if record.error.code else outcome_of_error(record.error.type or "")
    )


# --- statistics ------------------------------------------------------------------------------------


def _read_csv(text: str) -> dict[str, Any]:
    """Return the CSV in the shape of the JSON: a table of statistics, and one of single values."""
    summary: dict[str, Any] = {}
    header: list[str] = []
    for row in csv.reader(text.splitlines(), strict=True):
        if row[:1] == ["Metric"]:
            header = ["avg" if title == "Value" else title for title in row]
        elif row and (match := _TITLE.fullmatch(row[0])):
            cells = dict(zip(header[1:], row[1:], strict=False))
            numbers = {name: float(cell) for name, cell in cells.items() if name in _STATISTICS and cell}
            summary[match["title"].lower().replace(" ", "_")] = {"unit": match["unit"] or "", **numbers}
    return summary


def _figures(summary: Mapping[str, Any]) -> Iterator[Measurement]:
    for name, metric in _SPREADS.items():
        spread = summary.get(name) or {}
        for key, statistic in _STATISTICS.items():
            yield from reported_value(metric, spread.get(key), statistic, _UNITS[spread.get("unit", "ms")])
    for name, metric in _RATES.items():
        yield from reported_value(metric, _lookup(summary.get(name), "avg"))
    for name, scope in _COUNTS.items():
        yield from reported_value("requests", _lookup(summary.get(name), "avg"), scope)


def _doubts(records: Sequence[_Record], *, has_config: bool) -> Iterator[Doubt]:
    yield definition_doubt(
        "service_time",
        "AIPerf ends a request with the last piece that has content, ModelDyno with the last byte",
        "expect ModelDyno's time to be longer by what the server sends after the content",
    )
    if any("inter_chunk_latency" in record.metrics for record in records):
        yield definition_doubt(
            "inter_chunk_latency",
            "AIPerf gives one timestamp to all events that it reads at once, so some gaps are zero",
        )
    if not all("usage_completion_tokens" in record.metrics for record in records if record.error is None):
        yield definition_doubt(
            "token_rate",
            "AIPerf counted the tokens of answers with its own tokenizer",
            "run AIPerf with --use-server-token-count to use the server's count",
        )
    if not records:
        yield definition_doubt(
            "token_rate",
            "AIPerf counts the tokens of answers with its own tokenizer by default",
            "import profile_export.jsonl, which has the server's count, and when requests were due",
        )
    if not has_config:
        yield Doubt(
            code="other-definition",
            seen="this file has no load; it is imported as a closed loop with the highest concurrency seen",
            advice="put profile_export_aiperf.json in the directory of profile_export.jsonl, and import that",
        )

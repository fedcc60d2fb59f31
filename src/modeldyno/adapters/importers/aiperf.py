"""AIPerf: ``profile_export_aiperf.json`` and ``.csv`` (statistics), ``profile_export.jsonl`` (every request).

The statistics and the requests lie beside each other; whichever of the JSON files is named, both are read.
Times are nanoseconds of the wall clock for a request, and milliseconds for its parts. As of release 0.13.
"""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from modeldyno.core.load.foreign_load import MILLI, NANO, Imported, Told, differs, figure
from modeldyno.core.load.request_log import Outcome
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.spec.load_spec import Arrivals, Load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from modeldyno.core.load.foreign_load import Foreign
    from modeldyno.core.metrics.measurement import Measurement

TOOL = "aiperf"
_SUMMARY, _RECORDS = "profile_export_aiperf.json", "profile_export.jsonl"
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
_OVERLOADED = frozenset({429, 503})
_CANCELLED = 499
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


def claims(file: Foreign) -> bool:
    """Say whether it is one of these three."""
    if not file.documents:
        return file.text.startswith(_HEADER)
    return all(isinstance(each, dict) and (_is_record(each) or _is_summary(each)) for each in file.documents)


def _is_record(document: Mapping[str, Any]) -> bool:
    metadata = document.get("metadata")
    return isinstance(metadata, dict) and "request_start_ns" in metadata


def _is_summary(document: Mapping[str, Any]) -> bool:
    return "input_config" in document and ("request_latency" in document or "request_throughput" in document)


def read(file: Foreign) -> Iterator[Imported]:
    """Give the one load that it tells of."""
    if not file.documents:
        yield _imported(_table(file.text), ())
    elif _is_record(file.documents[0]):
        beside = _beside(file.path, _SUMMARY)
        yield _imported(beside[0] if beside else {}, file.documents)
    else:
        yield _imported(file.documents[0], _beside(file.path, _RECORDS))


def _beside(path: Path, name: str) -> Sequence[Any]:
    """Give what lies beside a file under the name that AIPerf gives it; nothing where none does."""
    if path.name not in {_SUMMARY, _RECORDS}:
        return ()
    try:
        text = path.with_name(name).read_text("utf-8")
    except FileNotFoundError:
        return ()
    lines = [text] if name == _SUMMARY else [line for line in text.splitlines() if line.strip()]
    return [msgspec.json.decode(line) for line in lines]


def _imported(summary: Mapping[str, Any], documents: Iterable[Any]) -> Imported:
    records = [msgspec.convert(document, _Record) for document in documents]
    measured = [record for record in records if record.metadata.benchmark_phase != "warmup"]
    requests = tuple(map(_told, measured))
    asked = summary.get("input_config") or {}
    load = _load(asked, requests)
    begin = min((each.sent for each in requests), default=0)
    return Imported(
        tool=TOOL,
        version=str(summary.get("aiperf_version") or ""),
        model=_first(_at(asked, "endpoint", "model_names") or _at(asked, "models", "items")),
        url=_first(_at(asked, "endpoint", "urls") or _at(asked, "endpoint", "url")),
        created=datetime.fromtimestamp(begin * NANO, UTC).isoformat() if requests else "",
        load=load,
        config={"protocol": str(_at(asked, "endpoint", "type") or "openai")},
        requests=requests,
        untold=frozenset({"throughput", "inter_token_latency"}),
        figures=tuple(_figures(summary, closed=load.closed)),
        gaps=tuple(_gaps(measured, known=bool(asked))),
    )


# --- what was asked for ----------------------------------------------------------------------------


def _at(asked: Any, *path: str) -> Any:
    """Follow names through mappings; None where one is missing."""
    for name in path:
        asked = asked.get(name) if isinstance(asked, dict) else None
    return asked


def _first(found: Any) -> str:
    """Give the first of several as text."""
    found = found[0] if isinstance(found, list) and found else found
    return str(_at(found, "name") or "" if isinstance(found, dict) else found or "")


def _load(asked: Mapping[str, Any], requests: Sequence[Told]) -> Load:
    """Read the load: one mapping until 0.5, a list of phases since."""
    phases = asked.get("phases") or [asked.get("loadgen") or {}]
    phase: Mapping[str, Any] = next((each for each in reversed(phases) if _at(each, "kind") != "warmup"), {})
    slots, rate = phase.get("concurrency"), phase.get("rate") or phase.get("request_rate")
    if rate is None:
        return Load(concurrency=int(slots) if slots else _busiest(requests))
    words = (str(phase.get("type", "")), str(phase.get("request_rate_mode", "")))
    kind = next((_ARRIVALS[word] for word in words if word in _ARRIVALS), Arrivals.POISSON)
    return Load(arrivals=kind, rate=float(rate), concurrency=slots)


def _busiest(requests: Sequence[Told]) -> int:
    """Count the most requests that were on their way at once."""
    steps = sorted((when, step) for each in requests for when, step in ((each.sent, 1), (each.end, -1)))
    return max(accumulate(step for _, step in steps), default=1)


# --- requests --------------------------------------------------------------------------------------


def _told(record: _Record) -> Told:
    begun, metrics = record.metadata, record.metrics
    took, first = _seconds(metrics.get("request_latency")), _seconds(metrics.get("time_to_first_token"))
    sent = begun.request_start_ns
    end = begun.request_end_ns if took is None else sent + round(took / NANO)
    gaps = metrics.get("inter_chunk_latency")
    steps = [] if gaps is None or not isinstance(gaps.value, list) else gaps.value
    scale = _UNITS[gaps.unit] if gaps is not None else 1.0
    times = () if first is None else tuple(accumulate((step * scale for step in steps), initial=first))
    return Told(
        sent=sent,
        end=sent if end is None else end,
        due=None if begun.credit_issued_ns is None else min(begun.credit_issued_ns, sent),
        outcome=_outcome(record),
        tokens=_tokens(metrics),
        pieces=tuple(sent + round(time / NANO) for time in times),
    )


def _seconds(found: _Value | None) -> float | None:
    return None if found is None else float(found.value) * _UNITS[found.unit]


def _tokens(metrics: Mapping[str, _Value]) -> int:
    """Give the tokens of an answer as the server counts them, or else as AIPerf's tokenizer does."""
    for name in ("usage_completion_tokens", "output_sequence_length"):
        if name in metrics:
            return int(metrics[name].value)
    return -1


def _outcome(record: _Record) -> Outcome:
    if record.metadata.was_cancelled:
        return Outcome.CANCELLED
    if record.error is None:
        return Outcome.OK
    code = record.error.code or 0
    if code == _CANCELLED:
        return Outcome.CANCELLED
    if code in _OVERLOADED:
        return Outcome.REJECTED
    if "timeout" in (record.error.type or "").lower():
        return Outcome.TIMEOUT
    return Outcome.CLIENT_ERROR if code // 100 == 4 else Outcome.SERVER_ERROR  # noqa: PLR2004 - a class of codes


# --- statistics ------------------------------------------------------------------------------------


def _table(text: str) -> dict[str, Any]:
    """Read the CSV in the shape of the JSON: a table of statistics, and one of single values."""
    found: dict[str, Any] = {}
    head: list[str] = []
    for row in csv.reader(text.splitlines(), strict=True):
        if row[:1] == ["Metric"]:
            head = ["avg" if title == "Value" else title for title in row]
        elif row and (named := _TITLE.fullmatch(row[0])):
            cells = dict(zip(head[1:], row[1:], strict=False))
            numbers = {name: float(cell) for name, cell in cells.items() if name in _STATISTICS and cell}
            found[named["title"].lower().replace(" ", "_")] = {"unit": named["unit"] or "", **numbers}
    return found


def _figures(summary: Mapping[str, Any], *, closed: bool) -> Iterator[Measurement]:
    for name, metric in _SPREADS.items():
        spread = summary.get(name) or {}
        for each in (metric, "latency") if closed and metric == "service_time" else (metric,):
            for key, statistic in _STATISTICS.items():
                yield from figure(each, spread.get(key), statistic, _UNITS[spread.get("unit", "ms")])
    for name, metric in _RATES.items():
        yield from figure(metric, _at(summary.get(name), "avg"))
    for name, scope in _COUNTS.items():
        yield from figure("requests", _at(summary.get(name), "avg"), scope)


def _gaps(records: Sequence[_Record], *, known: bool) -> Iterator[Doubt]:
    yield differs(
        "service_time",
        "AIPerf ends a request with the last piece that bears content; ours with the last byte",
        "expect ours to be longer by what the server sends behind it",
    )
    if any("inter_chunk_latency" in record.metrics for record in records):
        yield differs(
            "inter_chunk_latency",
            "AIPerf stamps what it reads at once; events that came together have gaps of zero",
        )
    if not all("usage_completion_tokens" in record.metrics for record in records if record.error is None):
        yield differs(
            "token_rate",
            "AIPerf has counted the tokens of answers with a tokenizer of its own",
            "let it use the server's count with --use-server-token-count",
        )
    if not records:
        yield differs(
            "token_rate",
            "AIPerf counts the tokens of answers with a tokenizer of its own, unless it is told otherwise",
            "import profile_export.jsonl, which has the server's count",
        )
    if not known:
        yield Doubt(
            code="other-definition",
            seen="this file does not tell the load; it stands as a closed loop of as many slots as were busy",
            advice="keep profile_export_aiperf.json beside profile_export.jsonl, and import that",
        )

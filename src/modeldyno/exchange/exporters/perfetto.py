"""Perfetto (and chrome://tracing): a file of JSON trace events, to be viewed in ui.perfetto.dev.

A Result stores how long calls took but not when they began. So calls are laid end to end, and so are the
layers of one call of the second pass within their parents: lengths are measured, gaps are not. Requests have
their real times, if ``--records`` wrote them. Times in microseconds.
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import csv
import json
from heapq import heapify, heappop, heappush
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import codec
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.result.trace_data import EventKind
from modeldyno.base.stats.statistics import load_numpy, unpack_samples
from modeldyno.base.views.text import number
from modeldyno.engine.trace.line_times import OUTSIDE
from modeldyno.engine.trace.op_events import WITHIN
from modeldyno.profiling.views.result.regions import is_region_profile
from modeldyno.profiling.views.result.served import STAGE_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.base.result.result import Result
    from modeldyno.base.result.trace_data import ExecutedOp

requires: tuple[str, ...] = ()
_EVENT_LIMIT = 20_000
"""Maximum events per track, so that the viewer stays responsive."""
_CALLS, _LAYERS, _MEMORY, _REQUESTS, _SERVER_STAGES, _REGIONS, _LINES = range(1, 8)
"""Process ids; the viewer shows each process as a group of tracks."""
_TITLES = {
    _CALLS: "timed calls, laid end to end",
    _LAYERS: "layers of one call, laid end to end within their parents",
    _MEMORY: "memory in one call",
    _REQUESTS: "requests",
    _REGIONS: "calls of regions, laid end to end",
    _LINES: "wall time of one call by line of code, laid end to end",
    _SERVER_STAGES: "an average request, from the server's statistics",
}
_MICRO = 1e6
Event = dict[str, Any]


def export(document: Result, target: str) -> str:
    """Write the trace file and return its path.

    Raises:
        RequestError: nothing in the document has a length, so that the trace would be empty.
    """
    path = Path(target)
    events = trace_events(document)
    if not events:
        raise RequestError(
            f"'{document.id or document.name}' has no times that a trace could show; profile a model, or "
            "run a script with @profiled functions, or with modeldyno run --ops."
        )
    content = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"result": document.id},
    }
    codec.write(path, json.dumps(content, separators=(",", ":")).encode())
    return str(path)


def trace_events(result: Result) -> list[Event]:
    """Return the events, and the names of the groups that have any."""
    tracks = (_calls, _layers, _memory, _requests, _stages, _regions, _lines)
    events = [event for track in tracks for event in track(result)]
    groups = sorted({event["pid"] for event in events})
    names = [_metadata_event(group, "process_name", _TITLES[group]) for group in groups]
    return [*names, *events]


def _metadata_event(pid: int, what: str, name: str) -> Event:
    return {"ph": "M", "pid": pid, "tid": 0, "name": what, "args": {"name": name}}


def _slice(pid: int, tid: int, name: str, begin: float, seconds: float, **args: Any) -> Event:
    event = {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": begin * _MICRO, "dur": seconds * _MICRO}
    return {**event, "args": args} if args else event


def _regions(result: Result) -> Iterator[Event]:
    """Yield the kept calls of each region of code, a track for each region."""
    if not is_region_profile(result):
        return
    scopes = [one for one in result.measurements if one.metric == "latency"]
    for track, measured in enumerate(scopes, 1):
        yield _metadata_event(_REGIONS, "thread_name", measured.scope) | {"tid": track}
        assert isinstance(measured.value, Distribution)
        begin = 0.0
        for seconds in list(measured.value.samples())[:_EVENT_LIMIT]:
            yield _slice(_REGIONS, track, measured.scope, begin, float(seconds))
            begin += float(seconds)


def _lines(result: Result) -> Iterator[Event]:
    """Yield the wall time of each line of code in one call of its region, a track for each region."""
    executed = result.activity.executed if result.activity else ()
    rows = [row for row in executed if row.kind is EventKind.LINE and row.name != OUTSIDE]
    tracks = {region: track for track, region in enumerate(dict.fromkeys(map(_region, rows)), 1)}
    begins = dict.fromkeys(tracks, 0.0)
    for region, track in tracks.items():
        yield _metadata_event(_LINES, "thread_name", region) | {"tid": track}
    for row in rows:
        region = _region(row)
        yield _slice(_LINES, tracks[region], row.name, begins[region], row.total_time)
        begins[region] += row.total_time


def _region(row: ExecutedOp) -> str:
    return row.scope.partition(WITHIN)[0]


def _calls(result: Result) -> Iterator[Event]:
    """Yield the calls of each process end to end; none under load, which has requests instead."""
    latency = result.find("latency")
    if latency is None or not isinstance(latency.value, Distribution) or result.job.load is not None:
        return
    for process, samples in enumerate(latency.value.arrays(), 1):
        times = samples[:_EVENT_LIMIT].tolist()
        for begin, seconds in zip(accumulate(times, initial=0.0), times, strict=False):
            yield _slice(_CALLS, process, "call", begin, seconds)


def _layers(result: Result) -> Iterator[Event]:
    """Yield the modules end to end within their parents, by median; scaled down together to fit."""
    layers = {layer.path: layer for layer in (result.activity.layers if result.activity else ())}
    latencies = {path: result.find("latency", path) for path in layers}
    lengths = {
        path: _median(latency) * layers[path].calls
        for path, latency in latencies.items()
        if latency is not None
    }
    children: dict[str | None, list[str]] = {}
    for path in lengths:
        children.setdefault(_parent(path, lengths), []).append(path)
    outermost = children.get(None, [])
    starts = accumulate((lengths[path] for path in outermost), initial=0.0)
    waiting = [(path, lengths[path], begin) for path, begin in zip(outermost, starts, strict=False)]
    while waiting:
        path, seconds, begin = waiting.pop()
        layer, inner = layers[path], children.get(path, [])
        args = {"kind": layer.kind, "calls": layer.calls, "output": layer.output}
        yield _slice(_LAYERS, 1, path or result.name, begin, seconds, **args, measured=lengths[path])
        scale = min(1.0, seconds / (sum(lengths[child] for child in inner) or 1.0))
        for child in inner:
            waiting.append((child, lengths[child] * scale, begin))
            begin += lengths[child] * scale


def _parent(path: str, timed: Mapping[str, float]) -> str | None:
    """Return the nearest enclosing module that was timed; None for the outermost."""
    while path:
        path = path.rpartition(".")[0]
        if path in timed:
            return path
    return None


def _median(latency: Measurement) -> float:
    return latency.value.statistic("p50") if isinstance(latency.value, Distribution) else float(latency.value)


def _memory(result: Result) -> Iterator[Event]:
    """Yield the bytes in use by category as counter events."""
    course = result.activity.course if result.activity else None
    if course is None:
        return
    times = unpack_samples(course.times).tolist()
    levels = {category: unpack_samples(level).tolist() for category, level in course.levels.items()}
    step = max(1, len(times) // _EVENT_LIMIT)
    for index in range(0, len(times), step):
        args = {category: level[index] for category, level in levels.items() if index < len(level)}
        name = {"ph": "C", "pid": _MEMORY, "tid": 0, "name": "bytes in use"}
        yield {**name, "ts": times[index] * _MICRO, "args": args}


def _stages(result: Result) -> Iterator[Event]:
    """Yield the mean times of the server's stages end to end."""
    begin = 0.0
    for metric in STAGE_NAMES:
        if (measurement := result.find(metric)) is not None:
            seconds = number(measurement)[0]
            yield _slice(_SERVER_STAGES, 1, metric, begin, seconds)
            begin += seconds


# --- requests --------------------------------------------------------------------------------------


def _requests(result: Result) -> Iterator[Event]:
    """Yield the requests that ``--records`` wrote, in as many lanes as there were concurrent requests."""
    path = next((Path(a.path) for a in result.artifacts if a.name == "records" and a.path), None)
    rows = (
        sorted(_read_records(path), key=lambda row: int(row["due"]))[:_EVENT_LIMIT]
        if path and path.is_file()
        else []
    )
    origin = min((int(row["due"]) for row in rows), default=0)
    for lane, row in _lanes(rows):
        due, sent, first, end = ((int(row[key]) - origin) * 1e-9 for key in ("due", "sent", "first", "end"))
        begin = min(due, sent) if int(row["sent"]) else due
        args = {key: str(row[key]) for key in ("outcome", "received", "retries", "tokens") if key in row}
        yield _slice(_REQUESTS, lane, "request", begin, max(0.0, end - begin), **args)
        if sent > due:
            yield _slice(_REQUESTS, lane, "waits in the client", due, sent - due)
        if int(row["first"]) and sent <= first <= end:
            yield _slice(_REQUESTS, lane, "to the first byte", sent, first - sent)


def _lanes(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield each request with a lane: the one that has been free for longest, or a new one."""
    busy: list[tuple[int, int]] = []
    heapify(busy)
    count = 0
    for row in rows:
        if busy and busy[0][0] <= int(row["due"]):
            _, lane = heappop(busy)
        else:
            count += 1
            lane = count
        heappush(busy, (max(int(row["end"]), int(row["due"])), lane))
        yield lane, row


def _read_records(path: Path) -> Iterable[Mapping[str, Any]]:
    """Return all requests from a records file, in any of its three formats."""
    if path.suffix == ".npz":
        with load_numpy().load(path, allow_pickle=False) as archive:
            columns = {name: archive[name].tolist() for name in archive.files}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return list(csv.DictReader(text.splitlines()))

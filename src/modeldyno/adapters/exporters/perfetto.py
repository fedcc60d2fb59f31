"""Perfetto (and chrome://tracing): a file of JSON trace events, to look at in ui.perfetto.dev.

A Result keeps how long calls took and not when they began, so calls are laid end to end, and so are the
layers of one call of the second pass within their parents: lengths are measured, gaps are not. Requests lie
where they were, if ``--records`` wrote them. Times in microseconds.
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import csv
import json
from heapq import heapify, heappop, heappush
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno import codec
from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.stats.statistics import load_numpy, unpack
from modeldyno.views.text import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from modeldyno.core.metrics.measurement import Measurement
    from modeldyno.core.result.result import Result

requires: tuple[str, ...] = ()
_MOST = 20_000
"""Events of a track: what a browser shows without waiting."""
_CALLS, _LAYERS, _MEMORY, _REQUESTS, _STAGES = range(1, 6)
"""Processes, as the viewer calls a group of tracks."""
_TITLES = {
    _CALLS: "timed calls, laid end to end",
    _LAYERS: "layers of one call, laid end to end within their parents",
    _MEMORY: "memory in one call",
    _REQUESTS: "requests",
    _STAGES: "a request on the average, by the server's account",
}
_ACCOUNT = ("queue_time", "compute_input_time", "compute_time", "compute_output_time", "network_time")
_MICRO = 1e6
Event = dict[str, Any]


def export(document: Result, target: str) -> str:
    """Write the file."""
    path = Path(target)
    written = {"traceEvents": trace(document), "displayTimeUnit": "ms", "otherData": {"result": document.id}}
    codec.write(path, json.dumps(written, separators=(",", ":")).encode())
    return str(path)


def trace(result: Result) -> list[Event]:
    """Give the events, and the names of the groups that have any."""
    events = [*_calls(result), *_layers(result), *_memory(result), *_requests(result), *_stages(result)]
    groups = sorted({event["pid"] for event in events})
    named = [_named(group, "process_name", _TITLES[group]) for group in groups]
    return [*named, *events]


def _named(pid: int, what: str, name: str) -> Event:
    return {"ph": "M", "pid": pid, "tid": 0, "name": what, "args": {"name": name}}


def _slice(pid: int, tid: int, name: str, begin: float, seconds: float, **args: Any) -> Event:
    event = {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": begin * _MICRO, "dur": seconds * _MICRO}
    return {**event, "args": args} if args else event


def _calls(result: Result) -> Iterator[Event]:
    """Lay the calls of each process end to end; under load there are requests instead."""
    found = result.find("latency")
    if found is None or not isinstance(found.value, Distribution) or result.job.load is not None:
        return
    for process, samples in enumerate(found.value.arrays(), 1):
        times = samples[:_MOST].tolist()
        for begin, seconds in zip(accumulate(times, initial=0.0), times, strict=False):
            yield _slice(_CALLS, process, "call", begin, seconds)


def _layers(result: Result) -> Iterator[Event]:
    """Lay modules behind their siblings within their parent, by medians; shortened alike to fit in it."""
    layers = {each.path: each for each in (result.activity.layers if result.activity else ())}
    found = {path: result.find("latency", path) for path in layers}
    lengths = {path: _median(each) * layers[path].calls for path, each in found.items() if each is not None}
    within: dict[str | None, list[str]] = {}
    for path in lengths:
        within.setdefault(_parent(path, lengths), []).append(path)
    first = within.get(None, [])
    begins = accumulate((lengths[path] for path in first), initial=0.0)
    waiting = [(path, lengths[path], begin) for path, begin in zip(first, begins, strict=False)]
    while waiting:
        path, seconds, begin = waiting.pop()
        layer, parts = layers[path], within.get(path, [])
        args = {"kind": layer.kind, "calls": layer.calls, "output": layer.output}
        yield _slice(_LAYERS, 1, path or result.name, begin, seconds, **args, measured=lengths[path])
        scale = min(1.0, seconds / (sum(lengths[part] for part in parts) or 1.0))
        for part in parts:
            waiting.append((part, lengths[part] * scale, begin))
            begin += lengths[part] * scale


def _parent(path: str, known: Mapping[str, float]) -> str | None:
    """Give the nearest module around it that was timed; None for the outermost."""
    while path:
        path = path.rpartition(".")[0]
        if path in known:
            return path
    return None


def _median(found: Measurement) -> float:
    return found.value.statistic("p50") if isinstance(found.value, Distribution) else float(found.value)


def _memory(result: Result) -> Iterator[Event]:
    """Give the bytes in use by category as counters."""
    course = result.activity.course if result.activity else None
    if course is None:
        return
    times = unpack(course.times).tolist()
    levels = {category: unpack(level).tolist() for category, level in course.levels.items()}
    step = max(1, len(times) // _MOST)
    for place in range(0, len(times), step):
        args = {category: level[place] for category, level in levels.items() if place < len(level)}
        name = {"ph": "C", "pid": _MEMORY, "tid": 0, "name": "bytes in use"}
        yield {**name, "ts": times[place] * _MICRO, "args": args}


def _stages(result: Result) -> Iterator[Event]:
    """Lay the mean times of the stages end to end."""
    begin = 0.0
    for metric in _ACCOUNT:
        if (found := result.find(metric)) is not None:
            seconds = number(found)[0]
            yield _slice(_STAGES, 1, metric, begin, seconds)
            begin += seconds


# --- requests --------------------------------------------------------------------------------------


def _requests(result: Result) -> Iterator[Event]:
    """Give the requests that ``--records`` wrote, in as many lanes as were on their way at once."""
    path = next((Path(a.path) for a in result.artifacts if a.name == "records" and a.path), None)
    rows = sorted(_rows(path), key=lambda row: int(row["due"]))[:_MOST] if path and path.is_file() else []
    origin = min((int(row["due"]) for row in rows), default=0)
    for lane, row in _lanes(rows):
        due, sent, first, end = ((int(row[key]) - origin) * 1e-9 for key in ("due", "sent", "first", "end"))
        begun = min(due, sent) if int(row["sent"]) else due
        args = {key: str(row[key]) for key in ("outcome", "received", "retries", "tokens") if key in row}
        yield _slice(_REQUESTS, lane, "request", begun, max(0.0, end - begun), **args)
        if sent > due:
            yield _slice(_REQUESTS, lane, "waits in the client", due, sent - due)
        if int(row["first"]) and sent <= first <= end:
            yield _slice(_REQUESTS, lane, "to the first byte", sent, first - sent)


def _lanes(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Put each request into the lane that has been free for longest, or a new one."""
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


def _rows(path: Path) -> Iterable[Mapping[str, Any]]:
    """Read every request, from whichever of its three formats."""
    if path.suffix == ".npz":
        with load_numpy().load(path, allow_pickle=False) as archive:
            columns = {name: archive[name].tolist() for name in archive.files}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return list(csv.DictReader(text.splitlines()))

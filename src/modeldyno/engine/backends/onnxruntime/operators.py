"""Records what ONNX Runtime runs within calls, with its own profiler in a separate session.

The profile has whole microseconds, rounded down, to which half a microsecond is added, and names each node by
the path that the exporter gave it.
"""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import perf_counter
from modeldyno.base.result.trace_data import EventKind
from modeldyno.engine.trace.op_events import Occurrence, WatchedCalls
from modeldyno.models.static.fused_nodes import scope_of_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Event = Mapping[str, Any]

_MICRO = 1e-6
"""Seconds in which the profile counts."""
_RUN, _NODE, _KERNEL = "model_run", "Node", "Kernel"
_SUFFIX = "_kernel_time"
_ROUNDING = 0.5
"""Average microseconds lost by rounding a time down."""


def watch_operators(
    start: Callable[[str], tuple[Callable[[], Any], Callable[[], str]]], calls: int, trace: Path | None
) -> WatchedCalls:
    """Make `calls` calls in a profiling session, after a warm-up call.

    Args:
        start: opens a session with this path prefix for its profile; returns a function that makes a call,
            and one that ends profiling and returns the path of the profile.
        calls: how many calls to watch.
        trace: file for the profile, in the format of Chrome and Perfetto; None for none.

    Raises:
        OSError: the trace cannot be written.
    """
    times = []
    with TemporaryDirectory() as folder:
        call, end = start(str(Path(folder) / "profile"))
        call()
        for _ in range(calls):
            begin = perf_counter()
            call()
            times.append(perf_counter() - begin)
        profile = Path(end())
        events = json.loads(profile.read_bytes())
        if trace is not None:
            _export(profile, trace)
    return WatchedCalls(times=tuple(times), occurrences=occurrences(events, calls), tick=_MICRO)


def _export(profile: Path, path: Path) -> None:
    """Copy a profile, compressed if the name ends in .gz; the file appears only once it is complete."""
    with TemporaryDirectory(dir=path.parent) as folder:
        copy = Path(folder) / "trace"
        with profile.open("rb") as source, _open_for_writing(copy, packed=path.suffix == ".gz") as target:
            shutil.copyfileobj(source, target)
        copy.replace(path)


def _open_for_writing(path: Path, *, packed: bool) -> Any:
    return gzip.open(path, "wb", 6) if packed else path.open("wb")


def occurrences(events: Sequence[Event], calls: int) -> tuple[Occurrence, ...]:
    """Turn profile events into occurrences within the last `calls` calls; nodes are not nested."""
    runs = [event for event in events if event.get("cat") == "Session" and event["name"] == _RUN]
    spans = [(event["ts"], event["ts"] + event["dur"]) for event in runs[-calls:]]
    nodes = [event for event in events if event.get("cat") == _NODE and event["name"].endswith(_SUFFIX)]
    watched_nodes = [(event, call) for event in nodes if (call := _call_index(event, spans)) is not None]
    result = [_node(event, call) for event, call in watched_nodes]
    indices = {(event["name"], event["ts"]): index for index, (event, _) in enumerate(watched_nodes)}
    last_index: dict[str, int | None] = {}
    for event in events:
        if event.get("cat") == _NODE:
            last_index[event["name"]] = indices.get((event["name"], event["ts"]))
        elif event.get("cat") == _KERNEL:
            index = last_index.get(event.get("args", {}).get("parent_name", ""))
            if index is not None:
                result += _kernel(event, result, index)
    return tuple(result)


def _call_index(event: Event, spans: Sequence[tuple[float, float]]) -> int | None:
    """Return the index of the call that an event lies in; None if it lies in none."""
    return next((call for call, (begin, end) in enumerate(spans) if begin <= event["ts"] <= end), None)


def _node(event: Event, call: int) -> Occurrence:
    arguments = event.get("args", {})
    name = arguments.get("op_name", "") or event["name"].removesuffix(_SUFFIX)
    seconds = _MICRO * (event["dur"] + _ROUNDING)
    allocated = arguments.get("mem_in_use_delta", arguments.get("output_size", 0))
    return Occurrence(
        name=name,
        kind=EventKind.TRANSFER if name.startswith("Memcpy") else EventKind.OPERATOR,
        scope=scope_of_node(event["name"].removesuffix(_SUFFIX)) or "",
        shapes=format_shapes(arguments.get("input_type_shape", ())),
        self_time=seconds,
        total_time=seconds,
        allocated=float(max(0, int(allocated or 0))),
        call=call,
    )


def _kernel(event: Event, occurrences: list[Occurrence], index: int) -> Iterable[Occurrence]:
    """Return the occurrence of a kernel, and add its time to the node that launched it."""
    seconds, node = _MICRO * event["dur"], occurrences[index]
    occurrences[index] = replace(node, device_time=node.device_time + seconds)
    is_transfer = event["name"].lower().startswith("memcpy")
    kind = EventKind.TRANSFER if is_transfer else EventKind.KERNEL
    return [Occurrence(name=event["name"], kind=kind, scope=node.scope, device_time=seconds, call=node.call)]


def format_shapes(input_types: Iterable[Mapping[str, Sequence[int]]]) -> str:
    """Format the shapes of inputs; scalars are left out."""
    return ", ".join("x".join(map(str, shape)) for types in input_types for shape in types.values() if shape)

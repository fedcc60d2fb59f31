"""Records what TensorFlow runs within calls on the CPU, with its own profiler.

The profile names each kernel ``scope/operator:Kind`` and has its begin and end in picoseconds, thread by
thread. A kernel that was fused has the name of its last operator.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import perf_counter
from modeldyno.base.errors import RunFailed
from modeldyno.engine.trace.op_events import Occurrence, WatchedCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_CALL = "modeldyno call"
"""Name of the event of each call."""
_MESSAGES = ("tensorflow.tsl.profiler.protobuf.xplane_pb2", "tensorflow.core.profiler.protobuf.xplane_pb2")
"""Where TensorFlow has the messages of a profile: today, and before 2.12."""
_HOST = "/host:CPU"
_PICO, _NANO = 1e-12, 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEvent:
    """Something that a thread did."""

    name: str
    kind: str
    """The kind of an operator; empty for what is none."""
    thread: int
    begin: float
    end: float
    """Seconds of one clock."""


def watch_operators(
    call: Callable[[], Any], calls: int, trace: Path | None, layer_of: Callable[[str], str]
) -> WatchedCalls:
    """Make `calls` calls under the profiler, after a warm-up call.

    Args:
        call: makes a call, which was made before.
        calls: how many calls to watch.
        trace: file for the profile, in the format of Chrome and Perfetto; None for none.
        layer_of: returns the module of an operator, given its name.

    Raises:
        OSError: the trace cannot be written.
        RunFailed: TensorFlow wrote no profile.
    """
    import tensorflow as tf  # optional, and heavy

    times = []
    with TemporaryDirectory(prefix="modeldyno-") as folder:
        tf.profiler.experimental.start(folder)
        try:
            call()
            for _ in range(calls):
                with tf.profiler.experimental.Trace(_CALL):
                    begin = perf_counter()
                    call()
                    times.append(perf_counter() - begin)
        finally:
            tf.profiler.experimental.stop()
        events = [event for path in Path(folder).rglob("*.xplane.pb") for event in _read_profile(path)]
    if not events:
        raise RunFailed("TensorFlow's profiler wrote no profile of the calls.")
    if trace is not None:
        _export(events, trace)
    return WatchedCalls(times=tuple(times), occurrences=find_occurrences(events, layer_of))


def _read_profile(path: Path) -> Iterator[ProfileEvent]:
    """Yield the events of the host in a profile."""
    space = _messages().XSpace.FromString(path.read_bytes())
    for plane in space.planes:
        if plane.name != _HOST:
            continue
        for thread, line in enumerate(plane.lines):
            for event in line.events:
                names = plane.event_metadata[event.metadata_id]
                begin = _NANO * line.timestamp_ns + _PICO * event.offset_ps
                yield ProfileEvent(
                    name=names.name,
                    kind=names.display_name if names.name.endswith(f":{names.display_name}") else "",
                    thread=thread,
                    begin=begin,
                    end=begin + _PICO * event.duration_ps,
                )


def _messages() -> Any:
    for name in _MESSAGES[:-1]:
        try:
            return import_module(name)
        except ImportError:
            continue
    return import_module(_MESSAGES[-1])


def find_occurrences(
    events: Sequence[ProfileEvent], layer_of: Callable[[str], str]
) -> tuple[Occurrence, ...]:
    """Turn the operators among profile events into occurrences, of the calls that they begin in.

    An operator within another one of its thread, as those of a loop, is a callee of that.
    """
    calls = sorted((event.begin, event.end) for event in events if event.name.partition("#")[0] == _CALL)
    begins = [begin for begin, _ in calls]
    occurrences: list[Occurrence] = []
    enclosing: list[tuple[int, ProfileEvent]] = []
    for event in sorted((e for e in events if e.kind), key=lambda e: (e.thread, e.begin, -e.end)):
        call = bisect_right(begins, event.begin) - 1
        if call < 0 or event.begin > calls[call][1]:
            continue
        while enclosing and (enclosing[-1][1].thread != event.thread or enclosing[-1][1].end < event.end):
            enclosing.pop()
        parent = enclosing[-1][0] if enclosing else None
        enclosing.append((len(occurrences), event))
        seconds = event.end - event.begin
        occurrences.append(
            Occurrence(
                name=event.kind,
                scope=layer_of(event.name.removesuffix(f":{event.kind}")),
                self_time=seconds,
                total_time=seconds,
                parent=parent,
                call=call,
            )
        )
    return tuple(_without_callees(occurrences))


def _without_callees(occurrences: Sequence[Occurrence]) -> Iterable[Occurrence]:
    """Subtract the time of callees from that of their callers."""
    within = [0.0] * len(occurrences)
    for occurrence in occurrences:
        if occurrence.parent is not None:
            within[occurrence.parent] += occurrence.total_time
    for occurrence, seconds in zip(occurrences, within, strict=True):
        yield replace(occurrence, self_time=max(0.0, occurrence.total_time - seconds))


def _export(events: Sequence[ProfileEvent], path: Path) -> None:
    """Write events for Chrome and Perfetto, compressed if the name ends in .gz; then move it there."""
    start = min(event.begin for event in events)
    rows = [
        {
            "name": event.kind or event.name,
            "cat": "operator" if event.kind else "host",
            "ph": "X",
            "ts": 1e6 * (event.begin - start),
            "dur": 1e6 * (event.end - event.begin),
            "pid": 0,
            "tid": event.thread,
            "args": {"name": event.name},
        }
        for event in events
    ]
    data = json.dumps({"traceEvents": rows}).encode()
    with TemporaryDirectory(dir=path.parent) as folder:
        copy = Path(folder) / "trace"
        copy.write_bytes(gzip.compress(data, 6) if path.suffix == ".gz" else data)
        copy.replace(path)

"""What ONNX Runtime runs within calls, by its own profiling, in a session of its own.

Its profile has microseconds, and names each node after the path that the exporter gave it.
"""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from modeldyno.core.result.trace_data import Happening
from modeldyno.core.static import node_scope
from modeldyno.core.trace.op_events import Occurrence, WatchedCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Event = Mapping[str, Any]

_RUN, _NODE, _KERNEL = "model_run", "Node", "Kernel"
_SUFFIX = "_kernel_time"


def watched(
    start: Callable[[str], tuple[Callable[[], Any], Callable[[], str]]], calls: int, trace: Path | None
) -> WatchedCalls:
    """Make so many calls in a session that profiles itself, after one that warms up.

    Args:
        start: opens a session whose profile has a name that begins so; gives what makes a call, and what
            ends profiling and gives the path of the profile.
        calls: how many calls to watch.
        trace: a file for the profile, which has the form that Chrome and Perfetto read.

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
    return WatchedCalls(times=tuple(times), occurrences=occurrences(events, calls))


def _export(profile: Path, path: Path) -> None:
    """Copy a profile, compressed if the name says so; a file is there only when it is whole."""
    with TemporaryDirectory(dir=path.parent) as folder:
        copy = Path(folder) / "trace"
        with profile.open("rb") as source, _writing(copy, packed=path.suffix == ".gz") as target:
            shutil.copyfileobj(source, target)
        copy.replace(path)


def _writing(path: Path, *, packed: bool) -> Any:
    return gzip.open(path, "wb", 6) if packed else path.open("wb")


def occurrences(events: Sequence[Event], calls: int) -> tuple[Occurrence, ...]:
    """Turn events into what happened within the last `calls` calls; nodes hold each other nowhere."""
    runs = [event for event in events if event.get("cat") == "Session" and event["name"] == _RUN]
    spans = [(event["ts"], event["ts"] + event["dur"]) for event in runs[-calls:]]
    nodes = [event for event in events if event.get("cat") == _NODE and event["name"].endswith(_SUFFIX)]
    watched_nodes = [(event, call) for event in nodes if (call := _call(event, spans)) is not None]
    found = [_node(event, call) for event, call in watched_nodes]
    places = {(event["name"], event["ts"]): place for place, (event, _) in enumerate(watched_nodes)}
    before: dict[str, int | None] = {}
    for event in events:
        if event.get("cat") == _NODE:
            before[event["name"]] = places.get((event["name"], event["ts"]))
        elif event.get("cat") == _KERNEL:
            place = before.get(event.get("args", {}).get("parent_name", ""))
            if place is not None:
                found += _kernel(event, found, place)
    return tuple(found)


def _call(event: Event, spans: Sequence[tuple[float, float]]) -> int | None:
    """Say in which call an event lies; None in none of them."""
    return next((call for call, (begin, end) in enumerate(spans) if begin <= event["ts"] <= end), None)


def _node(event: Event, call: int) -> Occurrence:
    arguments = event.get("args", {})
    name = arguments.get("op_name", "") or event["name"].removesuffix(_SUFFIX)
    seconds = 1e-6 * event["dur"]
    taken = arguments.get("mem_in_use_delta", arguments.get("output_size", 0))
    return Occurrence(
        name=name,
        kind=Happening.TRANSFER if name.startswith("Memcpy") else Happening.OPERATOR,
        scope=node_scope.of_node(event["name"].removesuffix(_SUFFIX)) or "",
        shapes=shapes(arguments.get("input_type_shape", ())),
        self_time=seconds,
        total_time=seconds,
        allocated=float(max(0, int(taken or 0))),
        call=call,
    )


def _kernel(event: Event, found: list[Occurrence], place: int) -> Iterable[Occurrence]:
    """Give the occurrence of a kernel, and add its time to the node that launched it."""
    seconds, node = 1e-6 * event["dur"], found[place]
    found[place] = replace(node, device_time=node.device_time + seconds)
    is_transfer = event["name"].lower().startswith("memcpy")
    kind = Happening.TRANSFER if is_transfer else Happening.KERNEL
    return [Occurrence(name=event["name"], kind=kind, scope=node.scope, device_time=seconds, call=node.call)]


def shapes(found: Iterable[Mapping[str, Sequence[int]]]) -> str:
    """Show the shapes of inputs; a scalar has none."""
    return ", ".join("x".join(map(str, shape)) for each in found for shape in each.values() if shape)

"""Times the nodes within a call of ONNX Runtime, by its own profiling in a session of its own.

A node belongs to the module that torch's exporters name: in the path of its name, or in its metadata. What
ONNX Runtime fuses keeps the name of its output, so that the graph as it was rewritten, which is saved for
this, tells where that comes from. Times are told in whole microseconds, rounded down; half a one is added.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.result.trace_data import Span
from modeldyno.core.static import fused_nodes as origins
from modeldyno.core.static import node_scope as origin
from modeldyno.core.trace.layer_times import Toll, in_place, quiet
from modeldyno.interfaces import Layers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from modeldyno.interfaces import Named

Event = Mapping[str, Any]
_MICRO = 1e-6
_ROUNDING = 0.5
"""Microseconds that a time which is cut to whole ones is short of on the average."""
_NODE, _RUN, _END = "Node", "model_run", "_kernel_time"
_HOLDERS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""Operators whose body is a graph: its nodes run within them."""
_EMPTY, _ROUNDS = 100, 60
"""Nodes of the graph on which the cost of profiling is measured, and calls of it."""
_SETTLING = 0.5
"""Seconds in which that is seen in the model itself, too."""
_SHAPE = (1, 64, 2048)
"""Of what they give: enough to leave the caches of a core as cold as the nodes of a network do."""
_DTYPES = {"float": "float32", "double": "float64"}


class Start(Protocol):
    """Opens a session with the settings of another."""

    def __call__(
        self, profile: str = "", saved: str = "", graph: bytes | None = None, *, resting: bool = False
    ) -> Any:
        """Open it.

        Args:
            profile: how the path of its profile begins; without, it writes none.
            saved: where to save the graph as it is rewritten.
            graph: what to run instead of the model.
            resting: whether its threads stop to spin as a call returns. Those of one session else take the
                cores from another whose turn it is: calls in turns then take half as long again, or more.
        """


@contextmanager
def watching(
    start: Start,
    prepare: Callable[[Any], Callable[[], Any]],
    model: Path,
    named: Named,
    *,
    device: str,
    usual: Any | None,
) -> Iterator[Layers]:
    """Watch the nodes of a model.

    Args:
        start: opens another session on it.
        prepare: gives what makes a call in a session.
        model: its file.
        named: says which nodes to watch, by their path and operator.
        device: the execution provider.
        usual: the session whose calls are timed; None where its threads spin when a call has returned:
            plain calls are then made in one more session, whose threads rest.
    """
    found = _places(start, model)
    with TemporaryDirectory(prefix="modeldyno-") as folder:
        session = start(str(Path(folder) / "profile"), resting=True)
        plain = prepare(usual or start(resting=True))
        run, seconds = prepare(session), []
        more = _more(run, plain)
        toll = in_place(_toll(start), more, found.nodes)

        def call() -> Any:
            begin = perf_counter()
            output = run()
            seconds.append(perf_counter() - begin)
            return output

        names = _Names(found)

        def spans(since: int) -> list[list[Span]]:
            profile = Path(session.end_profiling())
            runs = list(_runs(profile, since + 1 + len(more)))  # and the first of all, which is not timed
            return [
                _spans(nodes, whole, names, named)
                for nodes, whole in zip(runs, seconds[since:], strict=False)
            ]

        doubts = tuple(_unseen(device))
        yield Layers(
            call=call,
            spans=spans,
            toll=toll,
            plain=None if usual else plain,
            doubts=doubts,
            origins=names.origins,
        )


def _unseen(device: str) -> Iterator[Doubt]:
    if device != "CPUExecutionProvider":
        yield Doubt(
            code="unseen-layers",
            seen=f"ONNX Runtime times nodes on the host: what {device} does later is in the node that waits",
            advice="compare nodes on the CPU, or read kernels with the profiler of the device",
        )


# -- where nodes come from ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Places:
    """Where nodes come from."""

    scopes: Mapping[str, str] = field(default_factory=dict)
    """Name of a node, as it runs, to its module."""
    known: frozenset[str] = frozenset()
    """Names of the nodes that are in the model's file."""
    done: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What a node is called as it runs, or its operator and turn where it has no name, to what it does."""
    nodes: int = 0
    """That a call runs; 0 where the graph does not tell how often those within others run."""


def _places(start: Start, model: Path) -> Places:
    """Read them from the model, and from the graph as it is rewritten in a session that does nothing else.

    A session that saves its graph keeps more of it than others, so that it is not the one that is timed.
    """
    try:
        import onnx  # noqa: PLC0415 - optional
    except ImportError:
        return Places()
    with TemporaryDirectory(prefix="modeldyno-") as folder:
        saved = Path(folder) / "rewritten.onnx"
        try:
            graph = onnx.load(model, load_external_data=False).graph
            start(saved=str(saved))
            return places(graph, onnx.load(saved, load_external_data=False).graph)
        except Exception:  # noqa: BLE001 - what ONNX Runtime has compiled it cannot save; names are left to tell
            return Places()


def places(graph: Any, rewritten: Any) -> Places:
    """Find the module of each node of a graph: by itself, by what it gives, or by what takes that."""
    original = list(_nodes(graph))
    given = {
        output: place for node in original for output in node.output if (place := _scope(node)) is not None
    }
    found: dict[str, str] = {}
    takers: dict[str, str] = {}
    for node in reversed(list(_nodes(rewritten))):
        told = [_scope(node), *(given.get(output) for output in node.output)]
        told += [takers.get(output) for output in node.output]
        place = next((each for each in told if each is not None), None)
        if place is not None:
            found[node.name] = place
            takers.update(dict.fromkeys(node.input, place))
    return Places(
        found,
        frozenset(node.name for node in original),
        origins.origins(_made(original), _made(_nodes(rewritten))),
        0 if any(node.op_type in _HOLDERS for node in rewritten.node) else len(rewritten.node),
    )


def _made(nodes: Iterable[Any]) -> Iterator[origins.Made]:
    """Describe nodes; those without a name by their operator and their turn."""
    turns: defaultdict[str, int] = defaultdict(int)
    for node in nodes:
        yield node.name or _turn(node.op_type, turns), tuple(node.input), tuple(node.output)


def _turn(kind: str, turns: defaultdict[str, int]) -> str:
    turns[kind] += 1
    return f"{kind} {turns[kind]}"


def _nodes(graph: Any) -> Iterator[Any]:
    """Give the nodes of a graph, and of those within them, each after those that it takes from."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _nodes(inner)


def _scope(node: Any) -> str | None:
    """Read the module out of a node's metadata or name; None where neither tells."""
    told = {entry.key: entry.value for entry in node.metadata_props}
    return origin.of_node(node.name, told.get(origin.SCOPES, ""))


# -- profile ------------------------------------------------------------------------------------------


class _Names:
    """Names nodes by their operator within their module; the second ``MatMul`` in one is ``MatMul_1``."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._paths: dict[tuple[str, str], tuple[str, str]] = {}
        self._used: defaultdict[str, int] = defaultdict(int)
        self._turns: defaultdict[str, int] = defaultdict(int)
        self._done: dict[str, tuple[str, ...]] = {}

    def origins(self) -> Mapping[str, tuple[str, ...]]:
        """Give the path of each node that was named so far, with the operators of the file that it does."""
        return self._done

    def __call__(self, event: Event) -> tuple[str, str]:
        """Give path and operator; the same node has the same in every call."""
        name, index = event["name"].removesuffix(_END), str(event["args"].get("node_index", ""))
        if (name, index) not in self._paths:
            kind = event["args"].get("op_name") or name
            scope = self._places.scopes.get(name, origin.of_node(name) or "")
            path = f"{scope}.{kind}" if scope else kind
            turn, self._used[path] = self._used[path], self._used[path] + 1
            new = bool(self._places.known) and name not in self._places.known
            fused = new and not kind.startswith("Fused")
            path = f"{path}_{turn}" if turn else path
            self._paths[name, index] = (path, f"fused {kind}" if fused else kind)
            done = self._places.done
            self._done[path] = done.get(name) or done.get(_turn(kind, self._turns), ())
        return self._paths[name, index]


def _runs(profile: Path, since: int) -> Iterator[list[Event]]:
    """Give the events of the nodes of each call, from one call on.

    A profile has an event a line, and that of a call after those of its nodes. What is not wanted is skipped.
    """
    seen = 0
    nodes: list[Event] = []
    with profile.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if f'"{_RUN}"' in line:
                if seen >= since:
                    yield nodes
                seen, nodes = seen + 1, []
            elif seen >= since and f'{_END}"' in line:
                nodes.append(json.loads(line.strip().rstrip(",")))


def _spans(nodes: Iterable[Event], seconds: float, names: _Names, named: Named) -> list[Span]:
    """Make spans of the nodes of a call, those in the body of another within that."""
    spans = [Span(path="", kind="graph", begin=0.0, end=seconds)]
    ordered = sorted(nodes, key=lambda event: (event["ts"], -event["dur"]))
    origin = ordered[0]["ts"] if ordered else 0
    around: list[tuple[int, float]] = []
    for event in ordered:
        begin = (event["ts"] - origin) * _MICRO
        end = begin + (event["dur"] + _ROUNDING) * _MICRO
        while around and end > around[-1][1] + _MICRO:
            around.pop()
        path, kind = names(event)
        holds = event["args"].get("op_name") in _HOLDERS
        if not named(path, kind):
            continue
        parent = around[-1][0] if around else 0
        if holds:
            around.append((len(spans), end))
        text, size = _output(event["args"])
        spans.append(
            Span(path=path, kind=kind, begin=begin, end=end, parent=parent, output=text, output_bytes=size)
        )
    return spans


def _output(told: Event) -> tuple[str, int]:
    """Give shape and dtype of the first output of a node, and the bytes of all."""
    shapes = [item for each in told.get("output_type_shape", ()) for item in each.items()]
    if not shapes:
        return "", 0
    dtype, shape = shapes[0]
    more = f" and {len(shapes) - 1} more" if len(shapes) > 1 else ""
    text = f"{'x'.join(map(str, shape)) or 'scalar'} {_DTYPES.get(dtype, dtype)}{more}"
    return text, int(told.get("output_size", 0) or 0)


# -- cost ---------------------------------------------------------------------------------------------


def _more(run: Callable[[], Any], plain: Callable[[], Any]) -> list[float]:
    """Give the seconds by which profiled calls take longer than plain ones, in turns after one of each."""
    run()
    plain()
    more: list[float] = []
    begin = perf_counter()
    while len(more) < _ROUNDS and perf_counter() - begin < _SETTLING:
        more.append(_seconds(run) - _seconds(plain))
    return more


def _seconds(run: Callable[[], Any]) -> float:
    begin = perf_counter()
    run()
    return perf_counter() - begin


def _toll(start: Start) -> Toll:
    """Measure what profiling adds to a node, on a graph of small nodes: what they do themselves cancels out.

    Nothing where there is no `onnx` to write that graph with.
    """
    try:
        graph = _chain()
    except ImportError:
        return Toll()
    import numpy as np  # noqa: PLC0415 - dear at start-up

    given = {"x": np.zeros(_SHAPE, np.float32)}
    with TemporaryDirectory(prefix="modeldyno-") as folder:
        paths = ("", str(Path(folder) / "profile"))
        sessions = [start(path, graph=graph, resting=True) for path in paths]
        times = [
            [_seconds(partial(session.run, None, given)) for session in sessions] for _ in range(_ROUNDS + 1)
        ][1:]
        runs = list(_runs(Path(sessions[1].end_profiling()), 1))
    count = len(runs[0]) if runs else 0
    if not count:
        return Toll()
    plain, profiled = (quiet(column) for column in zip(*times, strict=True))
    spans = quiet(sum(event["dur"] + _ROUNDING for event in nodes) * _MICRO for nodes in runs)
    inside = max(0.0, (spans - plain) / count)
    return Toll(inside=inside, outside=max(0.0, (profiled - plain) / count - inside))


def _chain() -> bytes:
    """Write a graph of small nodes, with about as much to tell of each as usual."""
    from onnx import TensorProto, helper  # noqa: PLC0415 - optional

    names = ["x", *(f"v{n}" for n in range(1, _EMPTY)), "y"]
    nodes = [
        helper.make_node("Add", [given, "bias"], [taken], name=f"/layer.0/attention/{taken}/Add")
        for given, taken in pairwise(names)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, _SHAPE) for name in ("x", "y")]
    bias = helper.make_tensor("bias", TensorProto.FLOAT, _SHAPE[-1:], [1.0] * _SHAPE[-1])
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], [bias])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())

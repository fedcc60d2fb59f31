"""Times the nodes within a call of ONNX Runtime, with its own profiler in a separate session.

A node belongs to the module that torch's exporters write into its name or metadata. A fused node keeps the
name of its output, so the optimised graph, which is saved for this, shows where it comes from. The profiler
reports whole microseconds, rounded down; half a microsecond is added.
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
from typing import TYPE_CHECKING, Any, Protocol

from modeldyno.base.clock import perf_counter
from modeldyno.base.metrics.doubt import HOST_TIMES, Doubt
from modeldyno.base.result.trace_data import Span
from modeldyno.engine.interfaces.session import Layers
from modeldyno.engine.trace.layer_times import HookOverhead, lower_quartile, scale_overhead_to_model
from modeldyno.models.static import fused_nodes as origins
from modeldyno.models.static.fused_nodes import SCOPES, scope_of_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from modeldyno.models.interface import ModuleFilter

Event = Mapping[str, Any]
_MICRO = 1e-6
_ROUNDING = 0.5
"""Average microseconds lost by rounding a time down."""
_NODE, _RUN, _KERNEL_TIME = "Node", "model_run", "_kernel_time"
_CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""Operators with a subgraph, whose nodes run within them."""
_CHAIN_LENGTH, _ROUNDS = 100, 60
"""Nodes of the graph on which the profiling overhead is measured, and calls of it."""
_TIME_LIMIT = 0.5
"""Seconds for measuring the overhead in the model itself."""
_SHAPE = (1, 64, 2048)
"""Shape of their outputs: large enough to evict a core's caches, as the nodes of a real network do."""
_DTYPES = {"float": "float32", "double": "float64"}


class SessionStarter(Protocol):
    """Opens further sessions with the same settings."""

    def __call__(
        self, profile: str = "", saved: str = "", graph: bytes | None = None, *, resting: bool = False
    ) -> Any:
        """Open a session.

        Args:
            profile: path prefix of its profile; empty for no profile.
            saved: where to save the optimised graph; empty to not save it.
            graph: serialised model to run instead of the model's file.
            resting: whether its threads stop spinning when a call returns. Otherwise the threads of one
                session take the cores from another when their calls alternate, which then take 50 % longer.
        """


@contextmanager
def watch_nodes(
    start: SessionStarter,
    prepare: Callable[[Any], Callable[[], Any]],
    model: Path,
    named: ModuleFilter,
    *,
    device: str,
    usual: Any | None,
) -> Iterator[Layers]:
    """Time the nodes of a model.

    Args:
        start: opens another session on the model.
        prepare: returns a function that makes a call in a session.
        model: the model's file.
        named: selects the nodes to watch by path and operator.
        device: the execution provider.
        usual: the session whose calls are timed; None if its threads spin after a call: plain calls are then
            made in one more session, whose threads do not spin.
    """
    node_origins = _places(start, model)
    with TemporaryDirectory(prefix="modeldyno-") as folder:
        session = start(str(Path(folder) / "profile"), resting=True)
        plain = prepare(usual or start(resting=True))
        run, seconds = prepare(session), []
        overheads = _profiling_overheads(run, plain)
        overhead = scale_overhead_to_model(_measure_overhead(start), overheads, node_origins.nodes)

        def call() -> Any:
            begin = perf_counter()
            output = run()
            seconds.append(perf_counter() - begin)
            return output

        namer = _NodeNamer(node_origins)

        def spans(since: int) -> list[list[Span]]:
            profile = Path(session.end_profiling())
            first_call = since + 1 + len(overheads)  # the very first one is not timed
            runs = list(_read_calls(profile, first_call))
            return [
                _spans(nodes, call_seconds, namer, named)
                for nodes, call_seconds in zip(runs, seconds[since:], strict=False)
            ]

        doubts = tuple(_unseen_doubts(device))
        yield Layers(
            call=call,
            spans=spans,
            overhead=overhead,
            tick=_MICRO,
            plain=None if usual else plain,
            doubts=doubts,
            origins=namer.origins,
        )


def _unseen_doubts(device: str) -> Iterator[Doubt]:
    if device != "CPUExecutionProvider":
        yield Doubt(
            code=HOST_TIMES,
            seen=f"ONNX Runtime times nodes on the host: work of {device} counts for the node that waits",
            advice="compare nodes on the CPU, or time kernels with the device's own profiler",
        )


# -- origins of nodes ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeOrigins:
    """The modules and original operators of nodes."""

    scopes: Mapping[str, str] = field(default_factory=dict)
    """Name of an executed node to its module."""
    known: frozenset[str] = frozenset()
    """Names of the nodes in the model's file."""
    done: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of an executed node (its operator and number if unnamed) to the operators that it implements."""
    nodes: int = 0
    """Nodes that a call executes; 0 if unknown, as subgraphs run an unknown number of times."""


def _places(start: SessionStarter, model: Path) -> NodeOrigins:
    """Compare the model's graph with the optimised graph, which an extra session saves.

    A session that saves its graph keeps more of it than others, so it is not the one that is timed.
    """
    try:
        import onnx  # optional
    except ImportError:
        return NodeOrigins()
    with TemporaryDirectory(prefix="modeldyno-") as folder:
        saved = Path(folder) / "rewritten.onnx"
        try:
            graph = onnx.load(model, load_external_data=False).graph
            start(saved=str(saved))
            return find_node_origins(graph, onnx.load(saved, load_external_data=False).graph)
        except Exception:  # noqa: BLE001 - compiled graphs cannot be saved; the node names remain
            return NodeOrigins()


def find_node_origins(graph: Any, rewritten: Any) -> NodeOrigins:
    """Find the module of each executed node: by its own name, its outputs, or the nodes that consume them."""
    original = list(_nodes(graph))
    scope_of_output = {
        output: scope for node in original for output in node.output if (scope := _scope(node)) is not None
    }
    scopes: dict[str, str] = {}
    scope_of_input: dict[str, str] = {}
    for node in reversed(list(_nodes(rewritten))):
        candidates = [_scope(node), *(scope_of_output.get(output) for output in node.output)]
        candidates += [scope_of_input.get(output) for output in node.output]
        scope = next((scope for scope in candidates if scope is not None), None)
        if scope is not None:
            scopes[node.name] = scope
            scope_of_input.update(dict.fromkeys(node.input, scope))
    return NodeOrigins(
        scopes,
        frozenset(node.name for node in original),
        origins.find_original_operators(_described_nodes(original), _described_nodes(_nodes(rewritten))),
        0 if any(node.op_type in _CONTROL_FLOW for node in rewritten.node) else len(rewritten.node),
    )


def _described_nodes(nodes: Iterable[Any]) -> Iterator[origins.NodeNames]:
    """Yield name, inputs and outputs of nodes; unnamed ones are named by their operator and number."""
    counts: defaultdict[str, int] = defaultdict(int)
    for node in nodes:
        yield node.name or _numbered(node.op_type, counts), tuple(node.input), tuple(node.output)


def _numbered(kind: str, counts: defaultdict[str, int]) -> str:
    counts[kind] += 1
    return f"{kind} {counts[kind]}"


def _nodes(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a graph and its subgraphs in topological order."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _nodes(inner)


def _scope(node: Any) -> str | None:
    """Return the module in a node's metadata or name; None if there is none."""
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    return scope_of_node(node.name, metadata.get(SCOPES, ""))


# -- profile ------------------------------------------------------------------------------------------


class _NodeNamer:
    """Names nodes by module and operator; the second ``MatMul`` in a module is ``MatMul_1``."""

    def __init__(self, node_origins: NodeOrigins) -> None:
        self._places = node_origins
        self._paths: dict[tuple[str, str], tuple[str, str]] = {}
        self._used: defaultdict[str, int] = defaultdict(int)
        self._turns: defaultdict[str, int] = defaultdict(int)
        self._done: dict[str, tuple[str, ...]] = {}

    def origins(self) -> Mapping[str, tuple[str, ...]]:
        """Return the path of each node named so far, with the original operators that it implements."""
        return self._done

    def __call__(self, event: Event) -> tuple[str, str]:
        """Return path and operator of a node, the same in every call."""
        name, index = event["name"].removesuffix(_KERNEL_TIME), str(event["args"].get("node_index", ""))
        if (name, index) not in self._paths:
            kind = event["args"].get("op_name") or name
            scope = self._places.scopes.get(name, scope_of_node(name) or "")
            path = f"{scope}.{kind}" if scope else kind
            number, self._used[path] = self._used[path], self._used[path] + 1
            new = bool(self._places.known) and name not in self._places.known
            fused = new and not kind.startswith("Fused")
            path = f"{path}_{number}" if number else path
            self._paths[name, index] = (path, f"fused {kind}" if fused else kind)
            done = self._places.done
            self._done[path] = done.get(name) or done.get(_numbered(kind, self._turns), ())
        return self._paths[name, index]


def _read_calls(profile: Path, since: int) -> Iterator[list[Event]]:
    """Yield the node events of each call, starting with call `since`.

    A profile has one event per line; that of a call follows those of its nodes. Other events are skipped.
    """
    calls = 0
    nodes: list[Event] = []
    with profile.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if f'"{_RUN}"' in line:
                if calls >= since:
                    yield nodes
                calls, nodes = calls + 1, []
            elif calls >= since and f'{_KERNEL_TIME}"' in line:
                nodes.append(json.loads(line.strip().rstrip(",")))


def _spans(nodes: Iterable[Event], seconds: float, namer: _NodeNamer, named: ModuleFilter) -> list[Span]:
    """Turn the node events of a call into spans; nodes of a subgraph are nested in their operator."""
    spans = [Span(path="", kind="graph", begin=0.0, end=seconds)]
    ordered = sorted(nodes, key=lambda event: (event["ts"], -event["dur"]))
    start = ordered[0]["ts"] if ordered else 0
    enclosing: list[tuple[int, float]] = []
    for event in ordered:
        begin = (event["ts"] - start) * _MICRO
        end = begin + (event["dur"] + _ROUNDING) * _MICRO
        while enclosing and end > enclosing[-1][1] + _MICRO:
            enclosing.pop()
        path, kind = namer(event)
        has_subgraph = event["args"].get("op_name") in _CONTROL_FLOW
        if not named(path, kind):
            continue
        parent = enclosing[-1][0] if enclosing else 0
        if has_subgraph:
            enclosing.append((len(spans), end))
        text, size = _describe_output(event["args"])
        spans.append(
            Span(path=path, kind=kind, begin=begin, end=end, parent=parent, output=text, output_bytes=size)
        )
    return spans


def _describe_output(arguments: Event) -> tuple[str, int]:
    """Return shape and dtype of the first output of a node, and the bytes of all outputs."""
    shapes = [item for types in arguments.get("output_type_shape", ()) for item in types.items()]
    if not shapes:
        return "", 0
    dtype, shape = shapes[0]
    more = f" and {len(shapes) - 1} more" if len(shapes) > 1 else ""
    text = f"{'x'.join(map(str, shape)) or 'scalar'} {_DTYPES.get(dtype, dtype)}{more}"
    return text, int(arguments.get("output_size", 0) or 0)


# -- cost ---------------------------------------------------------------------------------------------


def _profiling_overheads(run: Callable[[], Any], plain: Callable[[], Any]) -> list[float]:
    """Return the seconds by which profiled calls exceed plain ones, alternating, after a warm-up of each."""
    run()
    plain()
    overheads: list[float] = []
    begin = perf_counter()
    while len(overheads) < _ROUNDS and perf_counter() - begin < _TIME_LIMIT:
        overheads.append(_time_call(run) - _time_call(plain))
    return overheads


def _time_call(run: Callable[[], Any]) -> float:
    begin = perf_counter()
    run()
    return perf_counter() - begin


def _measure_overhead(start: SessionStarter) -> HookOverhead:
    """Measure the profiling overhead per node on a graph of small nodes, whose own work cancels out.

    Zero without the package `onnx`, which writes that graph.
    """
    try:
        graph = _chain_model()
    except ImportError:
        return HookOverhead()
    import numpy as np  # slow to import

    feed = {"x": np.zeros(_SHAPE, np.float32)}
    with TemporaryDirectory(prefix="modeldyno-") as folder:
        paths = ("", str(Path(folder) / "profile"))
        sessions = [start(path, graph=graph, resting=True) for path in paths]
        times = [
            [_time_call(partial(session.run, None, feed)) for session in sessions] for _ in range(_ROUNDS + 1)
        ][1:]
        calls = list(_read_calls(Path(sessions[1].end_profiling()), 1))
    count = len(calls[0]) if calls else 0
    if not count:
        return HookOverhead()
    plain, profiled = (lower_quartile(column) for column in zip(*times, strict=True))
    spans = lower_quartile(sum(event["dur"] + _ROUNDING for event in nodes) * _MICRO for nodes in calls)
    inside = max(0.0, (spans - plain) / count)
    return HookOverhead(inside=inside, outside=max(0.0, (profiled - plain) / count - inside))


def _chain_model() -> bytes:
    """Serialise a chain of small nodes, with names of typical length."""
    from onnx import TensorProto, helper  # optional

    names = ["x", *(f"v{n}" for n in range(1, _CHAIN_LENGTH)), "y"]
    nodes = [
        helper.make_node("Add", [source, "bias"], [target], name=f"/layer.0/attention/{target}/Add")
        for source, target in pairwise(names)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, _SHAPE) for name in ("x", "y")]
    bias = helper.make_tensor("bias", TensorProto.FLOAT, _SHAPE[-1:], [1.0] * _SHAPE[-1])
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], [bias])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())

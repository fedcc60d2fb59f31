"""Trace an ONNX model into the neutral Graph at given sizes, node by node; weights are never read.

What follows from sizes and small constants alone (Shape, Gather, Concat ... up to a Reshape) is evaluated,
and is no operator of the Graph: a runtime folds it away or runs it on the host in negligible time. Functions
of the file are inlined. Of two branches that depend on data the more expensive one is taken, operators
without a formula at their upper bound (see `models.flops.macs_upper_bound`). A loop with a known trip
count is unrolled; after 64 iterations the rest are taken as equal to the last one, if that equals the one
before it.
Where a loop collects outputs, an operator `onnx.Loop` or `onnx.Scan` writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.static_options import Mode
from modeldyno.models.flops.registry import formulas
from modeldyno.models.loaders.onnx_tracing.nodes import read_main_body
from modeldyno.models.loaders.onnx_tracing.ops import operands
from modeldyno.models.loaders.onnx_tracing.walk import GraphWalk
from modeldyno.models.static.graph import Graph, Role, Storage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.models.interface import Tracing
    from modeldyno.models.loaders.onnx_tracing.tensors import Proto
    from modeldyno.models.loaders.onnx_tracing.walk import Env, Note, StorageRecord


def trace_onnx_model(model: Proto, tracing: Tracing) -> Graph:
    """Return the Graph of a ModelProto, with all symbolic dimensions bound.

    Raises:
        RequestError: it cannot be analysed at these sizes.
    """
    if tracing.mode is not Mode.INFERENCE:
        raise RequestError("An ONNX file holds no backward pass; inspect it with mode 'inference'.")
    functions = {(f.domain, f.name, getattr(f, "overload", "")): f for f in model.functions}
    walk = GraphWalk(functions, formulas(plugins.formulas()))
    body = read_main_body(model, walk.classes)
    env: Env = {}
    walk.begin(body, env, {spec.name: spec for spec in tracing.inputs}, tracing.sizes)
    walk.run(body, env)
    returned = [value for value in (env.get(name) for name in body.outputs) if value is not None]
    storages = {tensor.storage for value in returned for tensor in operands(value)} - {-1}
    return Graph(
        ops=tuple(walk.ops),
        storages=_storages(walk, storages),
        sizes=dict(tracing.sizes),
        modules=_modules(walk),
        assumptions=_sentences(walk.notes),
    )


def _storages(walk: GraphWalk, returned: set[int]) -> tuple[Storage, ...]:
    """Determine when each storage begins and ends: after its last use, unless it is returned."""
    born: dict[int, int] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    users: dict[int, str] = {}
    for index, op in enumerate(walk.ops):
        for tensor in op.outputs:
            born.setdefault(tensor.storage, index)
            last[tensor.storage] = index
        for tensor in op.tensors():
            last[tensor.storage] = index
            users.setdefault(tensor.storage, op.scope)
            first.setdefault(tensor.storage, index)

    def storage(index: int, memory: StorageRecord) -> Storage:
        output = index in returned
        if memory.role is not Role.ACTIVATION:
            scope = users.get(index) or memory.scope if memory.role is Role.WEIGHT else ""
            return Storage(memory.bytes, memory.role, -1, None, scope, output)
        begin = born.get(index, first.get(index, 0))
        end = None if output else last.get(index, begin) + 1
        return Storage(memory.bytes, memory.role, begin, end, memory.scope, output)

    return tuple(storage(index, memory) for index, memory in enumerate(walk.memory))


def _modules(walk: GraphWalk) -> dict[str, str]:
    """Return the modules that operators came from, and their parents, with the class where it is known."""
    modules = {"": walk.classes.get("", "")}
    for scope in dict.fromkeys(op.scope for op in walk.ops):
        parts = scope.split(".") if scope else []
        for depth in range(1, len(parts) + 1):
            path = ".".join(parts[:depth])
            modules.setdefault(path, walk.classes.get(path, ""))
    return modules


def _sentences(notes: Iterable[Note]) -> tuple[str, ...]:
    """Say each assumption once, with the first node that it is about."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for kind, text, name in notes:
        nodes.setdefault((kind, text), []).append(name)
    return tuple(
        f"{kind} {text} ({first}{f' and {len(others)} more' if others else ''})"
        if first
        else f"{kind} {text}"
        for (kind, text), (first, *others) in nodes.items()
    )

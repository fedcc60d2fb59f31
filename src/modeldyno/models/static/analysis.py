"""Static analysis: from a model's graph to the measurements and the outline of a Result."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH, SEQUENCE
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Interval, Measurement
from modeldyno.base.result.static_data import (
    Module,
    ModuleJoin,
    ModuleLink,
    Operator,
    SizePoint,
    StaticReport,
)
from modeldyno.base.stats.units import BYTES, format_quantity
from modeldyno.models.static import roofline
from modeldyno.models.static.graph import Graph, Phase, Role, Tensor
from modeldyno.models.static.other_sizes import LARGEST, SizeExtrapolator, TraceCache
from modeldyno.models.static.totals import (
    AnalysedGraph,
    Totals,
    cost_by_module,
    find_static_peak,
    parent_scope,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from modeldyno.base.job.devices import DevicePeaks
    from modeldyno.base.job.static_options import StaticOptions
    from modeldyno.models.flops import CountedOp, Formula
    from modeldyno.models.static.graph import Op
    from modeldyno.models.static.other_sizes import Trace


_SHOWN = ("macs", "flops", "bytes_read", "bytes_written", "activation_peak", "memory_peak")
"""Metrics of a point of the size grid."""


def analyse_model(
    trace: Trace,
    inspection: StaticOptions,
    formulas: Mapping[str, Formula],
    devices: Callable[[str], Sequence[DevicePeaks]] = lambda _dtype: (),
) -> Iterator[Measurement | Doubt | StaticReport]:
    """Analyse a model.

    Args:
        trace: returns its graph at given sizes of some dimensions; the others are those of the inputs.
        inspection: what to analyse.
        formulas: operator to its cost formula.
        devices: returns the devices whose roofline to estimate, for products in a dtype.
    """
    analysed = AnalysedGraph.of(trace({name: sizes[0] for name, sizes in inspection.vary.items()}), formulas)
    totals = analysed.totals()
    dtype = dominant_product_dtype(analysed)
    roofline_devices = devices(dtype)
    yield from total_measurements(analysed, totals)
    for device in roofline_devices:
        yield from _roofline_estimates(analysed, totals, device, dtype)
    if inspection.modules:
        yield from _module_measurements(analysed)
    traces = TraceCache(trace, formulas, analysed.graph.sizes, analysed)
    vary = {name: sizes for name, sizes in inspection.vary.items() if len(sizes) > 1}
    extrapolator = SizeExtrapolator(traces, vary) if vary else None
    if inspection.memory is not None and BATCH not in traces.base:
        yield _no_largest_batch(
            "no dimension of the inputs is a batch that could be larger",
            "give the model inputs whose first dimension is free, or read memory_peak, which one call takes",
        )
    elif inspection.memory is not None:
        batch = _batch_extrapolator(traces, extrapolator, vary)
        traces.forget()
        yield from _largest_batch(batch, inspection.memory)
    traces.forget()
    refused: list[str] = []
    points = (
        ()
        if extrapolator is None
        else tuple(_grid_points(extrapolator, inspection, roofline_devices, dtype, refused))
    )
    symbolic = None if extrapolator is None else extrapolator.family
    yield replace(
        describe_analysed_graph(analysed),
        points=points,
        formulas={} if symbolic is None else symbolic.text(),
        domain="" if symbolic is None else symbolic.domain(),
        traced=symbolic is None,
    )
    yield from _graph_doubts(analysed, totals)
    if refused:
        yield _sizes_left_out(refused, len(points))


# -- numbers ------------------------------------------------------------------------------------------


def total_measurements(analysed: AnalysedGraph, totals: Totals) -> Iterator[Measurement]:
    """Yield the totals as measurements of the whole model."""
    uncounted = uncounted_macs_bound(analysed.counts)
    yield _exact("macs", totals.macs, interval=_upper_interval(totals.macs, uncounted))
    if totals.skippable:
        yield _exact("causal_macs", totals.causal_macs)
    if (dense := dense_macs(analysed)) is not None:
        yield _exact("dense_macs", dense)
    yield _exact("elementwise", totals.elementwise)
    yield _exact("flops", totals.flops, interval=_upper_interval(totals.flops, 2 * uncounted))
    yield _exact("coverage", totals.coverage)
    for name in ("bytes_read", "bytes_written", "input_bytes", "output_bytes", "activation_peak"):
        yield _exact(name, getattr(totals, name))
    yield _exact("memory_peak", totals.memory_peak)
    if totals.arithmetic_intensity is not None:
        yield _exact("arithmetic_intensity", totals.arithmetic_intensity)
    tokens = analysed.graph.sizes.get(BATCH, 1) * analysed.graph.sizes.get(SEQUENCE, 0)
    if (cache := _cache_bytes(analysed)) is not None and tokens:
        yield _exact("kv_cache_per_token", cache / tokens)
    if _is_training(analysed):
        yield _exact("gradient_bytes", totals.gradient_bytes)
        yield _exact("optimizer_bytes", totals.optimizer_bytes)
        for phase in Phase:
            macs = sum(
                c.macs for op, c in zip(analysed.graph.ops, analysed.counts, strict=True) if op.phase is phase
            )
            yield _exact("macs", macs, scope=f"phase {phase}")


def uncounted_macs_bound(counts: Iterable[CountedOp]) -> float:
    """Return an upper bound on the MACs of calls without a formula; infinite where one is unbounded."""
    return sum(inf if cost.most is None else cost.most for cost in counts)


def _upper_interval(low: int, uncounted: float) -> Interval | None:
    return Interval(low=low, high=low + uncounted) if uncounted else None


def _is_training(analysed: AnalysedGraph) -> bool:
    return any(op.phase is not Phase.FORWARD for op in analysed.graph.ops)


def _module_measurements(analysed: AnalysedGraph) -> Iterator[Measurement]:
    held: Counter[str] = Counter()
    for part in find_static_peak(analysed.graph).held:
        if part.role == Role.ACTIVATION:
            for scope in _scope_and_parents(part.scope):
                held[scope] += part.bytes
    for scope, cost in cost_by_module(analysed.graph, analysed.counts).items():
        if not scope:
            continue
        yield _exact("macs", cost.macs, scope=scope)
        yield _exact("elementwise", cost.elementwise, scope=scope)
        yield _exact("flops", cost.flops, scope=scope)
        yield _exact("bytes_read", cost.bytes_read, scope=scope)
        yield _exact("bytes_written", cost.bytes_written, scope=scope)
        yield _exact("held_at_peak", held[scope], scope=scope)


def _scope_and_parents(scope: str) -> Iterator[str]:
    while scope:
        yield scope
        scope = parent_scope(scope)


def dense_macs(analysed: AnalysedGraph) -> int | None:
    """Return the MACs if every expert took every token; None for models without a mixture of experts.

    The experts of a router are the sibling or child modules named ``experts``: their MACs are scaled by
    experts / chosen.
    """
    ratios: dict[str, tuple[int, int]] = {}
    for routing in analysed.graph.routings:
        for scope in (routing.scope, parent_scope(routing.scope)):
            experts = f"{scope}.experts" if scope else "experts"
            if experts in analysed.graph.modules:
                ratios[experts] = (routing.experts, routing.chosen)
    if not ratios:
        return None
    routed: defaultdict[str, int] = defaultdict(int)
    dense = 0
    for op, cost in zip(analysed.graph.ops, analysed.counts, strict=True):
        inside = next((scope for scope in _scope_and_parents(op.scope) if scope in ratios), None)
        if inside is None:
            dense += cost.macs
        else:
            routed[inside] += cost.macs
    return dense + sum(macs * ratios[at][0] // ratios[at][1] for at, macs in routed.items())


def dominant_product_dtype(analysed: AnalysedGraph) -> str:
    """Return the dtype of most MACs, or of most operand bytes where there are no MACs."""
    macs_by_dtype: Counter[str] = Counter()
    bytes_by_dtype: Counter[str] = Counter()
    for op, cost in zip(analysed.graph.ops, analysed.counts, strict=True):
        operands = [tensor for tensor in op.tensors() if _is_product_dtype(tensor.dtype)]
        for tensor in operands:
            bytes_by_dtype[tensor.dtype] += tensor.bytes
        if operands and cost.macs:
            macs_by_dtype[operands[0].dtype] += cost.macs
    return next(
        (
            ranking[0][0]
            for ranking in (macs_by_dtype.most_common(1), bytes_by_dtype.most_common(1))
            if ranking
        ),
        "float32",
    )


def _is_product_dtype(dtype: str) -> bool:
    return "float" in dtype or dtype.startswith(("int8", "uint8", "complex"))


def _exact(metric: str, value: float, *, scope: str = "", interval: Interval | None = None) -> Measurement:
    """Return the Measurement of a deterministic number."""
    return Measurement(metric=metric, value=value, scope=scope, interval=interval)


# -- outline ------------------------------------------------------------------------------------------


def describe_analysed_graph(analysed: AnalysedGraph) -> StaticReport:
    """Describe the analysed graph: its sizes, modules, operators and peak memory."""
    graph = analysed.graph
    top = find_static_peak(graph)
    operator = graph.ops[top.op] if 0 <= top.op < len(graph.ops) else None
    links, joins = flow_between_modules(graph)
    return StaticReport(
        sizes=dict(graph.sizes),
        modules=tuple(_describe_modules(graph)),
        links=links,
        joins=joins,
        operators=sum_by_operator(analysed),
        peak=top.held,
        peak_scope="" if operator is None else operator.scope,
        peak_operator="" if operator is None else operator.kind,
        assumptions=graph.assumptions,
    )


def _describe_modules(graph: Graph) -> Iterator[Module]:
    """Yield each module with its output; that of its last operator where the loader did not see it.

    A module without a class, as those of ONNX are, has that of the one kind of operator within it.
    """
    outputs: dict[str, str] = {}
    kernels: dict[str, str] = {}
    operators: dict[str, set[str]] = {}
    for op in graph.ops:
        if op.phase is Phase.FORWARD and op.outputs and op.sized:
            text = _format_outputs(op.outputs)
            outputs.update(dict.fromkeys((*_scope_and_parents(op.scope), ""), text))
            operators.setdefault(op.scope, set()).add(op.kind.rpartition(".")[2])
            if kernel := _kernel_size(op):
                kernels[op.scope] = kernel
    outputs |= graph.outputs
    holders = {
        scope for path in graph.modules if path for scope in (*_scope_and_parents(parent_scope(path)), "")
    }
    for path, kind in graph.modules.items():
        kernel = "" if path in holders else kernels.get(path, "")
        within = operators.get(path, ()) if path and path not in holders else ()
        yield Module(
            path=path,
            kind=kind or (next(iter(within)) if len(within) == 1 else ""),
            output=outputs.get(path, ""),
            kernel=kernel,
        )


def _format_outputs(tensors: Sequence[Tensor]) -> str:
    first, *more = tensors
    shape = "x".join(map(str, first.shape)) or "scalar"
    return f"{shape} {first.dtype}{f' and {len(more)} more' if more else ''}"


def _kernel_size(op: Op) -> str:
    """Format the kernel size of a convolution or pooling; empty for any other operator."""
    window = op.arguments.get("kernel_size", op.arguments.get("kernel_shape"))
    if op.kind.rpartition(".")[2] in _CONVOLUTIONS:
        weight = next((op.arguments[name] for name in ("weight", "W", "w") if name in op.arguments), None)
        window = weight.shape[2:] if isinstance(weight, Tensor) else None
    return "x".join(map(str, window)) if isinstance(window, list | tuple) else ""


_CONVOLUTIONS = frozenset(
    {"convolution", "_convolution", "Conv", "ConvTranspose", "ConvInteger", "QLinearConv"}
)


def sum_by_operator(analysed: AnalysedGraph) -> tuple[Operator, ...]:
    """Sum the calls by operator; those without a formula also by shapes, and last."""
    groups: dict[tuple[str, str], list[tuple[Op, CountedOp]]] = {}
    for op, cost in zip(analysed.graph.ops, analysed.counts, strict=True):
        groups.setdefault((op.kind, "" if cost.known else format_call_shapes(op)), []).append((op, cost))
    rows = [
        Operator(
            kind=kind,
            calls=len(calls),
            macs=sum(cost.macs for _, cost in calls),
            elementwise=sum(cost.elementwise for _, cost in calls),
            counted=not unknown_shapes,
            most=_finite_bound(uncounted_macs_bound(cost for _, cost in calls)),
            shapes=unknown_shapes,
            scope=calls[0][0].scope if unknown_shapes else "",
        )
        for (kind, unknown_shapes), calls in groups.items()
    ]
    return tuple(
        sorted(rows, key=lambda row: (not row.counted, -row.macs, -row.elementwise, -_bound_or_inf(row)))
    )


def _finite_bound(bound: float) -> int | None:
    return None if bound == inf else int(bound)


def _bound_or_inf(row: Operator) -> float:
    return inf if row.most is None else row.most


def format_call_shapes(op: Op) -> str:
    """Format the shapes of a call: ``(8, 128) x (128, 64) -> (8, 64)``."""
    unknown = "" if op.sized else "?"
    operands = " x ".join(str(tensor.shape) for tensor in op.tensors())
    return f"{operands or unknown} -> {', '.join(str(tensor.shape) for tensor in op.outputs) or unknown}"


def _graph_doubts(analysed: AnalysedGraph, totals: Totals) -> Iterator[Doubt]:
    if missing := totals.calls - totals.counted_calls:
        kinds = list(dict.fromkeys(row.kind for row in sum_by_operator(analysed) if not row.counted))
        named = ", ".join([*kinds[:_MOST_NAMED], *(["..."] if kinds[_MOST_NAMED:] else [])])
        yield _uncounted_doubt(
            f"{missing:,} of {totals.calls:,} calls", named, uncounted_macs_bound(analysed.counts)
        )
    for assumption in analysed.graph.assumptions:
        yield Doubt(
            code="assumed-branch",
            seen=assumption,
            advice="read the counts as those of this path; another may cost more or less",
        )


def _uncounted_doubt(calls: str, kinds: str, bound: float) -> Doubt:
    if bound == inf:
        return Doubt(
            code="uncounted",
            seen=f"{calls} are not counted ({kinds}), some because their shapes are unknown, so that their "
            "MACs have no upper bound; bytes and memory are incomplete, too",
            advice="write the shapes into the file, or give a formula; see docs/howto/count-your-operator.md",
        )
    return Doubt(
        code="uncounted",
        seen=f"{calls} are of operators without a formula ({kinds}), which take up to {bound:,} MACs "
        "together if each is one matrix product, convolution or attention",
        advice="give a formula for them; see docs/howto/count-your-operator.md",
    )


_MOST_NAMED = 3


# -- sizes --------------------------------------------------------------------------------------------


def _batch_extrapolator(
    traces: TraceCache, extrapolator: SizeExtrapolator | None, vary: Mapping[str, Sequence[int]]
) -> SizeExtrapolator:
    """Return an extrapolator over the batch: the one over other sizes, if the batch is one of those."""
    if extrapolator is not None and extrapolator.family is not None and BATCH in vary:
        return extrapolator
    return SizeExtrapolator(traces, {BATCH: vary.get(BATCH, (1, 2, 8, 64))})


def _largest_batch(batch: SizeExtrapolator, memory: int) -> Iterator[Measurement | Doubt]:
    answer, refused = batch.largest(BATCH, memory)
    limit = format_quantity(memory, BYTES, None)
    if answer == LARGEST:
        yield _no_largest_batch(
            f"a batch of {LARGEST:,} fits {limit}, and none larger is tried",
            "the memory is no limit in practice; `memory` with less of it finds one",
        )
        return
    yield _exact("largest_batch", answer)
    if refused:
        yield Doubt(
            code="largest-batch",
            seen=f"a batch of {answer + 1:,} cannot be analysed, whatever the memory: {refused}",
            advice=f"read {answer:,} as the largest batch that the model takes, not as the most that fits",
        )


def _no_largest_batch(reason: str, advice: str) -> Doubt:
    return Doubt(code="largest-batch", seen=f"no largest batch was found: {reason}", advice=advice)


def _grid_points(
    extrapolator: SizeExtrapolator,
    inspection: StaticOptions,
    devices: Sequence[DevicePeaks],
    dtype: str,
    refused: list[str],
) -> Iterator[SizePoint]:
    """Yield the points of the size grid; the reasons for failed sizes are appended to `refused`."""
    for sizes in product(*inspection.vary.values()):
        point = dict(zip(inspection.vary, sizes, strict=True))
        try:
            totals, costs = extrapolator.at(point)
        except RequestError as error:
            refused.append(f"{', '.join(f'{name} {size:,}' for name, size in point.items())}: {error}")
            continue
        values: dict[str, float] = {name: getattr(totals, name) for name in _SHOWN}
        for device in devices:
            values[f"roofline_latency@{device.name}"] = roofline.estimate_ideal(totals, device, dtype)
            values[f"eager_latency@{device.name}"] = roofline.estimate_eager(costs, device, dtype)
        yield SizePoint(sizes=point, values=values)


def _sizes_left_out(refused: Sequence[str], answered: int) -> Doubt:
    return Doubt(
        code="sizes-left-out",
        seen=f"{len(refused):,} of {len(refused) + answered:,} sizes cannot be analysed and are left out; "
        f"the first is {refused[0].rstrip('.')}",
        advice="ask for sizes that the model takes",
    )


# -- estimates ----------------------------------------------------------------------------------------


def _roofline_estimates(
    analysed: AnalysedGraph, totals: Totals, device: DevicePeaks, dtype: str
) -> Iterator[Measurement]:
    yield _exact("roofline_latency", roofline.estimate_ideal(totals, device, dtype), scope=device.name)
    eager = roofline.estimate_eager(Counter(analysed.counts), device, dtype)
    yield _exact("eager_latency", eager, scope=device.name)
    if (cache := _cache_bytes(analysed)) is not None and not _is_training(analysed):
        read = sum(item.bytes for item in analysed.graph.storages if item.role is Role.WEIGHT)
        seconds = roofline.estimate_decode_seconds(min(read, totals.moved), cache, device)
        yield _exact("decode_latency", seconds, scope=device.name)
    if (rate := device.peak(dtype)) != inf:
        yield _exact("peak_flops", rate, scope=device.name)
    yield _exact("peak_bandwidth", device.bandwidth, scope=device.name)


def _cache_bytes(analysed: AnalysedGraph) -> int | None:
    graph = analysed.graph
    return sum(graph.storages[index].bytes for index in graph.caches) if graph.caches else None


_MOST = 4000
"""Links and joins of a graph that are kept; of a larger one, none are."""
_Key: TypeAlias = "tuple[int, tuple[int, ...], int]"


def flow_between_modules(graph: Graph) -> tuple[tuple[ModuleLink, ...], tuple[ModuleJoin, ...]]:
    """Return the links between the modules of a forward pass, and the joins; none if they are too many.

    An operator counts as the module whose code calls it. Code of a module that has others in it is followed
    through, and is a join where it brings several of their outputs together, as a residual connection does.
    """
    flow = _Flow(
        leaves=frozenset(graph.modules) - {parent_scope(path) for path in graph.modules if path},
        latest={at: ("",) for at, storage in enumerate(graph.storages) if storage.role == Role.INPUT},
    )
    for op in graph.ops:
        if op.phase is Phase.FORWARD:
            flow.follow(op)
        if len(flow.links) + len(flow.joins) > _MOST:
            return (), ()
    ends = (flow.latest.get(at, ()) for at, storage in enumerate(graph.storages) if storage.output)
    flow.link((source for sources in ends for source in sources if source), "")
    return tuple(flow.links), tuple(flow.joins)


@dataclass(slots=True, kw_only=True)
class _Flow:
    """What was followed so far: by whom each tensor was made, and what went where."""

    leaves: frozenset[str]
    """Modules with no others in them."""
    latest: dict[int, tuple[str, ...]]
    """Makers of what is in each storage."""
    made: dict[_Key, tuple[str, ...]] = field(default_factory=dict)
    """Makers of each tensor, which may be one of several views of a storage."""
    links: dict[ModuleLink, None] = field(default_factory=dict)
    joins: list[ModuleJoin] = field(default_factory=list)

    def follow(self, op: Op) -> None:
        """Follow an operator."""
        makers_by_input = (self.made.get(_key(t)) or self.latest.get(t.storage, ()) for t in op.tensors())
        sources = tuple(dict.fromkeys(source for makers in makers_by_input for source in makers))
        makers = self._makers(op, sources)
        if makers != sources:
            self.link(sources, makers[0])
        for tensor in op.outputs:
            if tensor.storage >= 0:
                self.made[_key(tensor)] = self.latest[tensor.storage] = makers

    def link(self, sources: Iterable[str], target: str) -> None:
        """Note that something goes from sources to a target."""
        self.links.update({ModuleLink(source=s, target=target): None for s in sources if s != target})

    def _makers(self, op: Op, sources: tuple[str, ...]) -> tuple[str, ...]:
        if op.scope in self.leaves:
            return (op.scope,)
        if len(sources) < 2:
            return sources
        self.joins.append(ModuleJoin(name=f"join {len(self.joins) + 1}", scope=op.scope, kind=op.kind))
        return (self.joins[-1].name,)


def _key(tensor: Tensor) -> _Key:
    return tensor.storage, tensor.shape, tensor.offset

"""From a network's graph to the numbers and the outline of a Result; pure, whatever made the graph."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Interval, Measurement
from modeldyno.core.result.static_data import Module, Operator, Outline, Point
from modeldyno.core.spec.input_spec import BATCH, SEQUENCE
from modeldyno.core.static import roofline
from modeldyno.core.static.flops import Counted, count
from modeldyno.core.static.graph import Graph, Phase, Role, Tensor
from modeldyno.core.static.liveness import peak
from modeldyno.core.static.other_sizes import LARGEST, Elsewhere, Traces
from modeldyno.core.static.totals import Totals, by_scope, parent, totals
from modeldyno.core.stats.units import BYTES, format_quantity
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from modeldyno.core.spec.devices import Device
    from modeldyno.core.spec.static_options import Inspection
    from modeldyno.core.static.flops import Formula
    from modeldyno.core.static.graph import Op
    from modeldyno.core.static.other_sizes import Trace

_SHOWN = ("macs", "flops", "bytes_read", "bytes_written", "activation_peak", "memory_peak")
"""Metrics of a point of the grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """A graph, and what each of its operators costs."""

    graph: Graph
    counts: tuple[Counted, ...]

    @classmethod
    def of(cls, graph: Graph, formulas: Mapping[str, Formula]) -> Analysed:
        """Count every operator."""
        return cls(graph=graph, counts=tuple(count(op, formulas) for op in graph.ops))

    def totals(self) -> Totals:
        """Add up."""
        return totals(self.graph, self.counts)


def analyse(
    trace: Trace,
    inspection: Inspection,
    formulas: Mapping[str, Formula],
    devices: Callable[[str], Sequence[Device]] = lambda _dtype: (),
) -> Iterator[Measurement | Doubt | Outline]:
    """Analyse a network.

    Args:
        trace: gives its graph at sizes of some dimensions; the others are as the inputs have them.
        inspection: what is asked for.
        formulas: operator to what it costs.
        devices: gives those whose roofline to estimate, for products in a dtype.
    """
    found = Analysed.of(trace({name: sizes[0] for name, sizes in inspection.vary.items()}), formulas)
    whole = found.totals()
    dtype = product_dtype(found)
    places = devices(dtype)
    yield from measurements(found, whole)
    for device in places:
        yield from _estimates(found, whole, device, dtype)
    if inspection.modules:
        yield from _by_module(found)
    traces = Traces(trace, formulas, found.graph.sizes, (found.graph, found.counts))
    vary = {name: sizes for name, sizes in inspection.vary.items() if len(sizes) > 1}
    elsewhere = Elsewhere(traces, vary) if vary else None
    if inspection.memory is not None and BATCH not in traces.base:
        yield _unanswered(
            "no dimension of the inputs is a batch that could be larger",
            "give the model inputs whose first dimension is free, or read memory_peak, which one call takes",
        )
    elif inspection.memory is not None:
        batch = _batch(traces, elsewhere, vary)
        traces.forget()
        yield from _largest(batch, inspection.memory)
    traces.forget()
    refused: list[str] = []
    points = () if elsewhere is None else tuple(_points(elsewhere, inspection, places, dtype, refused))
    family = None if elsewhere is None else elsewhere.family
    yield replace(
        outline(found),
        points=points,
        formulas={} if family is None else family.text(),
        domain="" if family is None else family.domain(),
        traced=family is None,
    )
    yield from _doubts(found, whole)
    if refused:
        yield _left_out(refused, len(points))


# -- numbers ------------------------------------------------------------------------------------------


def measurements(found: Analysed, whole: Totals) -> Iterator[Measurement]:
    """Give the totals as measurements of the whole."""
    open_ = most(found.counts)
    yield _fact("macs", whole.macs, interval=_interval(whole.macs, open_))
    if whole.skippable:
        yield _fact("causal_macs", whole.causal_macs)
    if (dense := dense_macs(found)) is not None:
        yield _fact("dense_macs", dense)
    yield _fact("elementwise", whole.elementwise)
    yield _fact("flops", whole.flops, interval=_interval(whole.flops, 2 * open_))
    yield _fact("coverage", whole.coverage)
    for name in ("bytes_read", "bytes_written", "input_bytes", "output_bytes", "activation_peak"):
        yield _fact(name, getattr(whole, name))
    yield _fact("memory_peak", whole.memory_peak)
    if whole.arithmetic_intensity is not None:
        yield _fact("arithmetic_intensity", whole.arithmetic_intensity)
    tokens = found.graph.sizes.get(BATCH, 1) * found.graph.sizes.get(SEQUENCE, 0)
    if (cache := _cache_bytes(found)) is not None and tokens:
        yield _fact("kv_cache_per_token", cache / tokens)
    if _trains(found):
        yield _fact("gradient_bytes", whole.gradient_bytes)
        yield _fact("optimizer_bytes", whole.optimizer_bytes)
        for phase in Phase:
            macs = sum(
                c.macs for op, c in zip(found.graph.ops, found.counts, strict=True) if op.phase is phase
            )
            yield _fact("macs", macs, scope=f"phase {phase}")


def most(counts: Iterable[Counted]) -> float:
    """Add up the MACs that calls without a formula can take at most; infinite where one is not bounded."""
    return sum(inf if cost.most is None else cost.most for cost in counts)


def _interval(low: int, open_: float) -> Interval | None:
    return Interval(low=low, high=low + open_) if open_ else None


def _trains(found: Analysed) -> bool:
    return any(op.phase is not Phase.FORWARD for op in found.graph.ops)


def _by_module(found: Analysed) -> Iterator[Measurement]:
    held: Counter[str] = Counter()
    for part in peak(found.graph).held:
        if part.role == Role.ACTIVATION:
            for scope in _prefixes(part.scope):
                held[scope] += part.bytes
    for scope, cost in by_scope(found.graph, found.counts).items():
        if not scope:
            continue
        yield _fact("macs", cost.macs, scope=scope)
        yield _fact("elementwise", cost.elementwise, scope=scope)
        yield _fact("flops", cost.flops, scope=scope)
        yield _fact("bytes_read", cost.bytes_read, scope=scope)
        yield _fact("bytes_written", cost.bytes_written, scope=scope)
        yield _fact("held_at_peak", held[scope], scope=scope)


def _prefixes(scope: str) -> Iterator[str]:
    while scope:
        yield scope
        scope = parent(scope)


def dense_macs(found: Analysed) -> int | None:
    """Give the MACs if every expert took every token; None where no experts are chosen.

    The experts of a router are the modules called ``experts`` beside it: what they do for the chosen
    share would be done for all, experts / chosen times as often.
    """
    ratios: dict[str, tuple[int, int]] = {}
    for routing in found.graph.routings:
        for scope in (routing.scope, parent(routing.scope)):
            experts = f"{scope}.experts" if scope else "experts"
            if experts in found.graph.modules:
                ratios[experts] = (routing.experts, routing.chosen)
    if not ratios:
        return None
    routed: defaultdict[str, int] = defaultdict(int)
    dense = 0
    for op, cost in zip(found.graph.ops, found.counts, strict=True):
        inside = next((scope for scope in _prefixes(op.scope) if scope in ratios), None)
        if inside is None:
            dense += cost.macs
        else:
            routed[inside] += cost.macs
    return dense + sum(macs * ratios[at][0] // ratios[at][1] for at, macs in routed.items())


def product_dtype(found: Analysed) -> str:
    """Give the dtype of most of the MACs, or that of most bytes of operands where there are none."""
    work: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for op, cost in zip(found.graph.ops, found.counts, strict=True):
        given = [tensor for tensor in op.tensors() if _computes(tensor.dtype)]
        for tensor in given:
            size[tensor.dtype] += tensor.bytes
        if given and cost.macs:
            work[given[0].dtype] += cost.macs
    return next((most[0][0] for most in (work.most_common(1), size.most_common(1)) if most), "float32")


def _computes(dtype: str) -> bool:
    return "float" in dtype or dtype.startswith(("int8", "uint8", "complex"))


def _fact(metric: str, value: float, *, scope: str = "", interval: Interval | None = None) -> Measurement:
    """Make the Measurement of what is the same at every look."""
    return Measurement(metric=metric, value=value, scope=scope, interval=interval)


# -- what it is about ---------------------------------------------------------------------------------


def outline(found: Analysed) -> Outline:
    """Describe what was analysed."""
    graph = found.graph
    top = peak(graph)
    at = graph.ops[top.op] if 0 <= top.op < len(graph.ops) else None
    return Outline(
        sizes=dict(graph.sizes),
        modules=tuple(_modules(graph)),
        operators=operators(found),
        peak=top.held,
        peak_scope="" if at is None else at.scope,
        peak_operator="" if at is None else at.kind,
        assumptions=graph.assumptions,
    )


def _modules(graph: Graph) -> Iterator[Module]:
    """Give each module with what it returns; its last operator tells where the loader did not see that."""
    outputs: dict[str, str] = {}
    kernels: dict[str, str] = {}
    for op in graph.ops:
        if op.phase is Phase.FORWARD and op.outputs and op.sized:
            text = _written(op.outputs)
            outputs.update(dict.fromkeys((*_prefixes(op.scope), ""), text))
            if kernel := _kernel(op):
                kernels[op.scope] = kernel
    outputs |= graph.outputs
    holders = {scope for path in graph.modules if path for scope in (*_prefixes(parent(path)), "")}
    for path, kind in graph.modules.items():
        kernel = "" if path in holders else kernels.get(path, "")
        yield Module(path=path, kind=kind, output=outputs.get(path, ""), kernel=kernel)


def _written(tensors: Sequence[Tensor]) -> str:
    first, *more = tensors
    shape = "x".join(map(str, first.shape)) or "scalar"
    return f"{shape} {first.dtype}{f' and {len(more)} more' if more else ''}"


def _kernel(op: Op) -> str:
    """Write the size of the window of a convolution or a pooling; empty of any other operator."""
    window = op.arguments.get("kernel_size", op.arguments.get("kernel_shape"))
    if op.kind.rpartition(".")[2] in _CONVOLUTIONS:
        weight = next((op.arguments[name] for name in ("weight", "W", "w") if name in op.arguments), None)
        window = weight.shape[2:] if isinstance(weight, Tensor) else None
    return "x".join(map(str, window)) if isinstance(window, list | tuple) else ""


_CONVOLUTIONS = frozenset(
    {"convolution", "_convolution", "Conv", "ConvTranspose", "ConvInteger", "QLinearConv"}
)


def operators(found: Analysed) -> tuple[Operator, ...]:
    """Add up the calls of each operator; those without a formula by their shapes, and last."""
    groups: dict[tuple[str, str], list[tuple[Op, Counted]]] = {}
    for op, cost in zip(found.graph.ops, found.counts, strict=True):
        groups.setdefault((op.kind, "" if cost.known else shapes(op)), []).append((op, cost))
    rows = [
        Operator(
            kind=kind,
            calls=len(calls),
            macs=sum(cost.macs for _, cost in calls),
            elementwise=sum(cost.elementwise for _, cost in calls),
            counted=not shown,
            most=_whole(most(cost for _, cost in calls)),
            shapes=shown,
            scope=calls[0][0].scope if shown else "",
        )
        for (kind, shown), calls in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (not row.counted, -row.macs, -row.elementwise, -_open(row))))


def _whole(open_: float) -> int | None:
    return None if open_ == inf else int(open_)


def _open(row: Operator) -> float:
    return inf if row.most is None else row.most


def shapes(op: Op) -> str:
    """Write the shapes of a call: ``(8, 128) x (128, 64) -> (8, 64)``."""
    unknown = "" if op.sized else "?"
    given = " x ".join(str(tensor.shape) for tensor in op.tensors())
    return f"{given or unknown} -> {', '.join(str(tensor.shape) for tensor in op.outputs) or unknown}"


def _doubts(found: Analysed, whole: Totals) -> Iterator[Doubt]:
    if missing := whole.calls - whole.counted_calls:
        kinds = list(dict.fromkeys(row.kind for row in operators(found) if not row.counted))
        named = ", ".join([*kinds[:_NAMED], *(["..."] if kinds[_NAMED:] else [])])
        yield _uncounted(f"{missing:,} of {whole.calls:,} calls", named, most(found.counts))
    for assumption in found.graph.assumptions:
        yield Doubt(
            code="assumed-branch",
            seen=assumption,
            advice="read the counts as those of this path; another may cost more or less",
        )


def _uncounted(calls: str, kinds: str, open_: float) -> Doubt:
    if open_ == inf:
        return Doubt(
            code="uncounted",
            seen=f"{calls} are not counted ({kinds}), some for want of shapes, so that nothing bounds their "
            "MACs; bytes and memory lack what is unknown, too",
            advice="write the shapes into the file, or give a formula; see docs/howto/count-your-operator.md",
        )
    return Doubt(
        code="uncounted",
        seen=f"{calls} are of operators without a formula ({kinds}), which take up to {open_:,} MACs "
        "together if each is one matrix product, convolution or attention",
        advice="give a formula for them; see docs/howto/count-your-operator.md",
    )


_NAMED = 3


# -- sizes --------------------------------------------------------------------------------------------


def _batch(traces: Traces, elsewhere: Elsewhere | None, vary: Mapping[str, Sequence[int]]) -> Elsewhere:
    """Give the network at other batches: as it is at other sizes, if the batch is one of those."""
    if elsewhere is not None and elsewhere.family is not None and BATCH in vary:
        return elsewhere
    return Elsewhere(traces, {BATCH: vary.get(BATCH, (1, 2, 8, 64))})


def _largest(batch: Elsewhere, memory: int) -> Iterator[Measurement | Doubt]:
    answer, refused = batch.largest(BATCH, memory)
    limit = format_quantity(memory, BYTES, None)
    if answer == LARGEST:
        yield _unanswered(
            f"a batch of {LARGEST:,} fits {limit}, and none larger is tried",
            "the memory is no limit in practice; --memory with less of it finds one",
        )
        return
    yield _fact("largest_batch", answer)
    if refused:
        yield Doubt(
            code="largest-batch",
            seen=f"a batch of {answer + 1:,} cannot be analysed, whatever the memory: {refused}",
            advice=f"read {answer:,} as the largest batch that the model takes, not as the most that fits",
        )


def _unanswered(seen: str, advice: str) -> Doubt:
    return Doubt(code="largest-batch", seen=f"no largest batch was found: {seen}", advice=advice)


def _points(
    elsewhere: Elsewhere,
    inspection: Inspection,
    devices: Sequence[Device],
    dtype: str,
    refused: list[str],
) -> Iterator[Point]:
    """Give the grid; why the network cannot have some of its sizes is added to `refused`."""
    for sizes in product(*inspection.vary.values()):
        point = dict(zip(inspection.vary, sizes, strict=True))
        try:
            whole, costs = elsewhere.at(point)
        except RequestError as error:
            refused.append(f"{', '.join(f'{name} {size:,}' for name, size in point.items())}: {error}")
            continue
        values: dict[str, float] = {name: getattr(whole, name) for name in _SHOWN}
        for device in devices:
            values[f"roofline_latency@{device.name}"] = roofline.ideal(whole, device, dtype).seconds
            values[f"eager_latency@{device.name}"] = roofline.eager(costs, device, dtype).seconds
        yield Point(sizes=point, values=values)


def _left_out(refused: Sequence[str], answered: int) -> Doubt:
    return Doubt(
        code="sizes-left-out",
        seen=f"{len(refused):,} of {len(refused) + answered:,} sizes cannot be analysed and are left out; "
        f"the first is {refused[0].rstrip('.')}",
        advice="ask for sizes that the model takes",
    )


# -- estimates ----------------------------------------------------------------------------------------


def _estimates(found: Analysed, whole: Totals, device: Device, dtype: str) -> Iterator[Measurement]:
    yield _fact("roofline_latency", roofline.ideal(whole, device, dtype).seconds, scope=device.name)
    eager = roofline.eager(Counter(found.counts), device, dtype)
    yield _fact("eager_latency", eager.seconds, scope=device.name)
    if (cache := _cache_bytes(found)) is not None and not _trains(found):
        read = sum(item.bytes for item in found.graph.storages if item.role is Role.WEIGHT)
        seconds = roofline.decode(min(read, whole.moved), cache, device)
        yield _fact("decode_latency", seconds, scope=device.name)
    if (rate := device.peak(dtype)) != inf:
        yield _fact("peak_flops", rate, scope=device.name)
    yield _fact("peak_bandwidth", device.bandwidth, scope=device.name)


def _cache_bytes(found: Analysed) -> int | None:
    graph = found.graph
    return sum(graph.storages[index].bytes for index in graph.caches) if graph.caches else None

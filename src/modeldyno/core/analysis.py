"""From a network's graph to the numbers and the outline of a Result; pure, whatever made the graph."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from modeldyno.core import roofline
from modeldyno.core.counts import Counted, count
from modeldyno.core.doubt import Doubt
from modeldyno.core.family import fit, largest, sample
from modeldyno.core.graph import Graph, Phase, Role
from modeldyno.core.inputs import BATCH, SEQUENCE
from modeldyno.core.liveness import peak
from modeldyno.core.measurement import Interval, Measurement
from modeldyno.core.outline import Module, Operator, Outline, Point
from modeldyno.core.totals import Totals, by_scope, parent, totals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.counts import Formula
    from modeldyno.core.family import Family
    from modeldyno.core.graph import Op
    from modeldyno.core.inspection import Inspection
    from modeldyno.core.roofline import Device

Trace = Callable[[Mapping[str, int]], Graph]
"""Sizes of the dimensions that vary, to the graph at them."""

_SHOWN = ("macs", "flops", "bytes_read", "bytes_written", "activation_peak", "memory_peak")
"""Metrics of a point of the grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """A graph, and what each of its operators costs."""

    graph: Graph
    counts: tuple[Counted, ...]

    @classmethod
    def of(cls, graph: Graph, formulas: Mapping[str, Formula]) -> Analysed:
        """Count every operator; equal calls once."""
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
    base, vary = found.graph.sizes, {n: sizes for n, sizes in inspection.vary.items() if len(sizes) > 1}
    elsewhere = Elsewhere(trace, formulas, base, vary) if vary else None
    if inspection.memory is not None and BATCH in base:
        among = {BATCH: vary.get(BATCH, (1, 2, 8, 64))}
        yield from _largest(Elsewhere(trace, formulas, base, among), base, inspection.memory)
    points = () if elsewhere is None else tuple(_points(elsewhere, inspection, places, dtype))
    family = None if elsewhere is None else elsewhere.family
    yield replace(
        outline(found),
        points=points,
        formulas=family.text() if family is not None else {},
        traced=family is None,
    )
    yield from _doubts(found, whole)


# -- numbers ------------------------------------------------------------------------------------------


def measurements(found: Analysed, whole: Totals) -> Iterator[Measurement]:
    """Give the totals as measurements of the whole."""
    bound = Interval(low=whole.macs, high=whole.macs + whole.most) if whole.most else None
    yield _fact("macs", whole.macs, interval=bound)
    if whole.skippable:
        yield _fact("causal_macs", whole.causal_macs)
    if (dense := dense_macs(found)) is not None:
        yield _fact("dense_macs", dense)
    yield _fact("elementwise", whole.elementwise)
    flops = Interval(low=whole.flops, high=whole.flops + 2 * whole.most) if whole.most else None
    yield _fact("flops", whole.flops, interval=flops)
    yield _fact("coverage", whole.coverage)
    for name in ("bytes_read", "bytes_written", "input_bytes", "output_bytes", "activation_peak"):
        yield _fact(name, getattr(whole, name))
    yield _fact("memory_peak", whole.memory_peak)
    if whole.arithmetic_intensity is not None:
        yield _fact("arithmetic_intensity", whole.arithmetic_intensity)
    tokens = found.graph.sizes.get(BATCH, 1) * found.graph.sizes.get(SEQUENCE, 0)
    if (cache := _cache_bytes(found)) is not None and tokens:
        yield _fact("kv_cache_per_token", cache / tokens)
    if any(op.phase is not Phase.FORWARD for op in found.graph.ops):
        yield _fact("gradient_bytes", whole.gradient_bytes)
        yield _fact("optimizer_bytes", whole.optimizer_bytes)
        for phase in Phase:
            macs = sum(
                c.macs for op, c in zip(found.graph.ops, found.counts, strict=True) if op.phase is phase
            )
            yield _fact("macs", macs, scope=f"phase {phase}")


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
        if held[scope]:
            yield _fact("activation_peak", held[scope], scope=scope)


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
    """Give the dtype in which most of the MACs are done, or of most of the bytes where there are none."""
    work: Counter[str] = Counter()
    for op, cost in zip(found.graph.ops, found.counts, strict=True):
        kind = next((tensor.dtype for tensor in op.tensors() if _computes(tensor.dtype)), None)
        if kind is not None:
            work[kind] += cost.macs or 1
    return work.most_common(1)[0][0] if work else "float32"


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
        modules=tuple(Module(path=path, kind=kind) for path, kind in graph.modules.items()),
        operators=operators(found),
        peak=top.held,
        peak_scope="" if at is None else at.scope,
        peak_operator="" if at is None else at.kind,
        assumptions=graph.assumptions,
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
            most=sum(cost.most for _, cost in calls),
            shapes=shown,
            scope=calls[0][0].scope if shown else "",
        )
        for (kind, shown), calls in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (not row.counted, -row.macs, -row.elementwise, -row.most)))


def shapes(op: Op) -> str:
    """Write the shapes of a call: ``(8, 128) x (128, 64) -> (8, 64)``."""
    given = " x ".join(str(tensor.shape) for tensor in op.tensors())
    return f"{given} -> {', '.join(str(tensor.shape) for tensor in op.outputs)}"


def _doubts(found: Analysed, whole: Totals) -> Iterator[Doubt]:
    if missing := whole.calls - whole.counted_calls:
        kinds = dict.fromkeys(row.kind for row in operators(found) if not row.counted)
        yield Doubt(
            code="uncounted",
            seen=f"{missing:,} of {whole.calls:,} calls are of operators without a formula "
            f"({', '.join(list(kinds)[:3])}{', ...' if len(kinds) > 3 else ''}), of which each "  # noqa: PLR2004
            f"takes up to {whole.most:,} MACs in all if it is one product of its operands",
            advice="give a formula for them; see docs/howto/count-your-operator.md",
        )
    for assumption in found.graph.assumptions:
        yield Doubt(
            code="assumed-course",
            seen=assumption,
            advice="read the counts as those of this course; another choice may cost something else",
        )


# -- sizes --------------------------------------------------------------------------------------------


class Elsewhere:
    """The network at other sizes: by polynomials where they hold, traced anew where they do not."""

    def __init__(
        self,
        trace: Trace,
        formulas: Mapping[str, Formula],
        base: Mapping[str, int],
        vary: Mapping[str, Sequence[int]],
    ) -> None:
        """Trace it at a few of the sizes that `vary`; the other dimensions are as in `base`."""
        self.trace, self.formulas, self.base = trace, formulas, base
        self.seen: dict[tuple[tuple[str, int], ...], Analysed] = {}
        self.family = self._fitted(vary)
        self.least = 1
        """Size from which the polynomials hold: one sample alone often takes a course of its own."""
        if self.family is None and any(1 in asked for asked in vary.values()):
            self.least = 2
            rest = {name: [n for n in asked if n > 1] for name, asked in vary.items()}
            self.family = self._fitted(rest) if all(rest.values()) else None
        self.varied = frozenset(vary)

    def _fitted(self, vary: Mapping[str, Sequence[int]]) -> Family | None:
        points = sample(vary)
        known = [self._traced(point) for point in points]
        checks = len(points) - prod(2 if name == BATCH else 3 for name in vary)
        return fit([a.graph for a in known], [a.counts for a in known], verify=checks)

    def at(self, sizes: Mapping[str, int]) -> tuple[Totals, Mapping[Counted, int]]:
        """Give the totals, and what the operators cost and how many cost that."""
        whole = {**self.base, **sizes}
        large = all(whole[name] >= self.least for name in self.varied)
        if self.family is not None and large and self.family.covers(whole):
            return self.family.at(whole), self.family.counts(whole)
        found = self._traced(sizes)
        return found.totals(), Counter(found.counts)

    def _traced(self, sizes: Mapping[str, int]) -> Analysed:
        key = _key({**self.base, **sizes})
        if key not in self.seen:
            self.seen[key] = Analysed.of(self.trace(sizes), self.formulas)
        return self.seen[key]


def _key(sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(sizes.items()))


def _largest(elsewhere: Elsewhere, sizes: Mapping[str, int], memory: int) -> Iterator[Measurement]:
    answer = largest(lambda at: elsewhere.at(at)[0], BATCH, memory, sizes)
    if answer is not None:
        yield _fact("largest_batch", answer)


def _points(
    elsewhere: Elsewhere, inspection: Inspection, devices: Sequence[Device], dtype: str
) -> Iterator[Point]:
    for sizes in product(*inspection.vary.values()):
        point = dict(zip(inspection.vary, sizes, strict=True))
        whole, costs = elsewhere.at(point)
        values: dict[str, float] = {name: getattr(whole, name) for name in _SHOWN}
        for device in devices:
            values[f"roofline_latency@{device.name}"] = roofline.ideal(whole, device, dtype).seconds
            values[f"eager_latency@{device.name}"] = roofline.eager(costs, device, dtype).seconds
        yield Point(sizes=point, values=values)


# -- estimates ----------------------------------------------------------------------------------------


def _estimates(found: Analysed, whole: Totals, device: Device, dtype: str) -> Iterator[Measurement]:
    yield _fact("roofline_latency", roofline.ideal(whole, device, dtype).seconds, scope=device.name)
    eager = roofline.eager(Counter(found.counts), device, dtype)
    yield _fact("eager_latency", eager.seconds, scope=device.name)
    if (cache := _cache_bytes(found)) is not None:
        read = sum(item.bytes for item in found.graph.storages if item.role is Role.WEIGHT)
        seconds = roofline.decode(min(read, whole.moved), cache, device)
        yield _fact("decode_latency", seconds, scope=device.name)
    yield _fact("peak_flops", device.peak(dtype), scope=device.name)
    yield _fact("peak_bandwidth", device.bandwidth, scope=device.name)


def _cache_bytes(found: Analysed) -> int | None:
    graph = found.graph
    return sum(graph.storages[index].bytes for index in graph.caches) if graph.caches else None

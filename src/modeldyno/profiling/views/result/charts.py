"""Charts of a Result: latency over time, layers, roofline, memory over time, request stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.metric import CALL_SCOPES
from modeldyno.base.report.axes import ORDERS
from modeldyno.base.report.charts import AxisScale, Band, Plot, ReferenceLine, Series, Stack, Tree, TreeNode
from modeldyno.base.stats.statistics import unpack_samples
from modeldyno.base.stats.units import BYTES, COUNT, RATE, SECONDS, format_quantity
from modeldyno.base.views.text import count, share, unit_of_work
from modeldyno.models.static.graph import Role
from modeldyno.profiling.views.result.call_stages import mean_call_stages
from modeldyno.profiling.views.result.layer_tree import build_layer_tree
from modeldyno.profiling.views.result.memory import BEFORE, call_or_step
from modeldyno.profiling.views.result.module_tree import build_module_tree, pattern
from modeldyno.profiling.views.result.served import STAGE_NAMES, stages
from modeldyno.profiling.views.result.static import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy import ndarray

    from modeldyno.base.metrics.measurement import Distribution
    from modeldyno.base.result.result import Result
    from modeldyno.base.result.static_data import StaticReport
    from modeldyno.base.result.trace_data import LoadSecond
    from modeldyno.profiling.views.result.layer_tree import LayerNode
    from modeldyno.profiling.views.result.module_tree import ModuleNode

_POINTS, _PROCESSES = 600, 6
"""Most points of a line, and most processes that have a line."""
_CELLS, _THIN = 600, 0.001
"""Most parts of a tree, and the share of the whole below which a part is too thin to be seen."""
_LAYERS, _NAMED = 60, 3
"""Most layers on a roofline chart, and how many of them are named there: those with most time."""


# --- time ------------------------------------------------------------------------------------------


def load_by_second(result: Result) -> Iterator[Plot]:
    """Draw a load second by second: how long answers took, and how many there were."""
    rows = result.activity.seconds if result.activity else ()
    if len(rows) < _FEWEST_SECONDS:
        return
    kept = [row for row in rows if row.p50 is not None]
    axis, bands = AxisScale(label="time", unit=SECONDS), tuple(_ramp_and_end(result, rows))
    if kept:
        yield Plot(
            title="Latency by second",
            x=axis,
            y=AxisScale(label="latency", unit=SECONDS, logarithmic_from=ORDERS),
            series=tuple(
                Series.through(name, ((row.at, getattr(row, name) or 0.0) for row in kept))
                for name in ("p50", "p95", "p99")
            ),
            bands=bands,
            note="percentiles of one second are rough; shaded: not measured",
        )
    whole = rows[:-1]  # the load has ended during the last one: fewer answers there are no fall of the rate
    answers = Series.through("answered", ((row.at, row.answered / row.length) for row in whole))
    failures = Series.through("failed", ((row.at, row.failed / row.length) for row in whole))
    yield Plot(
        title="Answers by second",
        x=axis,
        y=AxisScale(label="requests", unit=RATE),
        series=(answers, *((failures,) if any(row.failed for row in rows) else ())),
        bands=bands,
        note="shaded: not measured; the last second, during which the load ended, is not drawn",
    )
    yield from _tokens_by_second(rows, axis, bands)


def _tokens_by_second(rows: Sequence[LoadSecond], axis: AxisScale, bands: tuple[Band, ...]) -> Iterator[Plot]:
    """Draw the tokens and the first tokens of a load whose answers were streamed."""
    whole, timed = rows[:-1], [row for row in rows if row.first_token is not None]
    if any(row.tokens for row in whole):
        yield Plot(
            title="Tokens by second",
            x=axis,
            y=AxisScale(label="tokens", unit=RATE),
            series=(Series.through("tokens", ((row.at, row.tokens / row.length) for row in whole)),),
            bands=bands,
            note="tokens of answers that ended well, by when they came; shaded: not measured",
        )
    if timed:
        yield Plot(
            title="First token by second",
            x=axis,
            y=AxisScale(label="first token", unit=SECONDS, logarithmic_from=ORDERS),
            series=(Series.through("median", ((row.at, row.first_token) for row in timed)),),
            bands=bands,
            note="of those whose first token came in that second; shaded: not measured",
        )


def slowest_answers(result: Result) -> Iterator[Stack]:
    """Draw what the slowest streamed answers waited for."""
    answers = result.activity.slowest if result.activity else ()
    if len(answers) < _FEWEST_ANSWERS:
        return
    parts = {
        "until sent": [answer.lag for answer in answers],
        "to the first token": [answer.first_token for answer in answers],
        "further tokens": [answer.further for answer in answers],
    }
    yield Stack(
        title="The slowest answers",
        scale=AxisScale(label="time", unit=SECONDS),
        bars=tuple(f"at {format_quantity(answer.at, SECONDS, 3)}" for answer in answers),
        parts=tuple(Series.through(name, enumerate(seconds)) for name, seconds in parts.items()),
        note="by when each was due, from the begin of the load",
    )


_FEWEST_ANSWERS = 3


def _ramp_and_end(result: Result, rows: Sequence[LoadSecond]) -> Iterator[Band]:
    """Yield what of a load is not in the steady window: the ramp with the warm-up, and the end."""
    latency = result.distribution("latency")
    begin = latency.warmup_time if latency is not None else 0.0
    if begin > 0:
        yield Band(name="warm-up", low=rows[0].at, high=begin)
    yield Band(name="end", low=rows[-1].at, high=rows[-1].at + rows[-1].length)


_FEWEST_SECONDS = 2


def call_timeline(result: Result) -> Iterator[Plot]:
    """Draw the latency of the calls in order, after the warm-up."""
    value, unit = result.distribution("latency"), unit_of_work(result)
    if value is None or len(value) < _FEWEST:
        return
    runs = [run for run in value.arrays() if len(run)]
    longest = max(map(len, runs))
    step = max(1, -(-longest // _POINTS))
    series = [
        line
        for place, run in enumerate(runs[:_PROCESSES], 1)
        for line in _line(run, step, unit, f"process {place}: " if len(runs) > 1 else "")
    ]
    yield Plot(
        title=f"{unit.capitalize()}s in order",
        x=AxisScale(label=f"{unit} after the warm-up"),
        y=AxisScale(label="latency", unit=SECONDS, logarithmic_from=ORDERS),
        series=tuple(series),
        rules=tuple(
            ReferenceLine(name=name, at=value.statistic(name))
            for name in ("p50", "p99")
            if value.certified(name) is not None
        ),
        note="; ".join(filter(None, (_warmup_note(value, unit), _undrawn_processes(runs)))),
    )


_FEWEST = 8


def _line(run: ndarray, step: int, unit: str, prefix: str) -> Iterator[Series]:
    """Draw each call; if there are too many, the median and the maximum of groups."""
    if step == 1:
        places = tuple(map(float, range(len(run))))
        yield Series(name=f"{prefix}each {unit}", x=places, y=tuple(map(float, run)))
        return
    starts = range(0, len(run), step)
    places = tuple(float(start) + (step - 1) / 2 for start in starts)
    parts = [sorted(map(float, run[start : start + step])) for start in starts]
    few = f"each {step} {unit}s"
    yield Series(name=f"{prefix}median of {few}", x=places, y=tuple(p[len(p) // 2] for p in parts))
    if not prefix:
        yield Series(name=f"slowest of {few}", x=places, y=tuple(p[-1] for p in parts), joined=False)


def _warmup_note(value: Distribution, unit: str) -> str:
    if not value.warmup_dropped:
        return ""
    took = f" in {format_quantity(value.warmup_time, SECONDS, 2)}" if value.warmup_time else ""
    return f"the warm-up, {count(value.warmup_dropped, unit)}{took}, is not included"


def _undrawn_processes(runs: Sequence[ndarray]) -> str:
    more = len(runs) - _PROCESSES
    return f"{count(more, 'more process', 'more processes')} not drawn" if more > 0 else ""


# --- what it costs -----------------------------------------------------------------------------------


def cost_charts(result: Result) -> Iterator[Tree]:
    """Draw what the parts of a network take of its operations, and of its memory at the peak."""
    root = build_module_tree(result)
    outline = result.outline
    metric = next((name for name in _COSTS if root is not None and root.of(name)), "")
    if root is not None and root.children and metric:
        yield Tree(
            title=f"Modules, each as wide as its {_COSTS[metric]}",
            scale=AxisScale(label=_COSTS[metric], unit=COUNT),
            root=_module_part(root, metric, _WIDE_ENOUGH * root.of(metric)),
            note=f"equal modules are merged; {_ZOOM}",
        )
    elif outline is not None and len(kinds := [op for op in outline.operators if op.macs]) > 1:
        parts = tuple(TreeNode(name=op.kind, value=op.macs, detail=count(op.calls, "call")) for op in kinds)
        yield Tree(
            title="Operators, each as wide as its MACs",
            scale=AxisScale(label="MACs", unit=COUNT),
            root=TreeNode(name="the model", value=sum(op.macs for op in kinds), children=parts),
        )
    if outline is not None and outline.peak:
        yield _peak_tree(outline)


_COSTS = {"macs": "MACs", "flops": "FLOPs", "parameters": "parameters"}
"""What the modules are drawn by: the first of which there is any."""
_WIDE_ENOUGH = 0.004
"""Share of the whole below which a part has no room for its name."""
_ZOOM = "darker means more of its own; click a part to zoom in, again to zoom out"


def _module_part(node: ModuleNode, metric: str, least: float) -> TreeNode:
    kind = f"{node.count} x {node.kind}" if node.count > 1 else node.kind
    return TreeNode(
        name=node.label or node.kind or "the model",
        value=node.of(metric),
        detail=kind,
        children=tuple(
            _module_part(child, metric, least) for child in node.children if child.of(metric) >= least
        ),
    )


def _peak_tree(outline: StaticReport) -> Tree:
    """Draw what holds memory at the peak: roles, and in each the modules that hold most of it."""
    total = sum(held.bytes for held in outline.peak)
    by_role: dict[str, dict[str, int]] = {}
    for held in outline.peak:
        places = by_role.setdefault(held.role, {})
        place = pattern(held.scope)
        places[place] = places.get(place, 0) + held.bytes
    roles = [
        TreeNode(
            name=ROLES.get(role, "activations" if role == Role.ACTIVATION else role),
            value=sum(places.values()),
            children=tuple(
                TreeNode(name=place, value=size)
                for place, size in sorted(places.items(), key=lambda item: -item[1])
                if place and size >= _WIDE_ENOUGH * total
            ),
        )
        for role, places in by_role.items()
    ]
    return Tree(
        title="Memory at the peak, by what holds it",
        scale=AxisScale(label="memory", unit=BYTES),
        root=TreeNode(
            name="at the peak", value=total, children=tuple(sorted(roles, key=lambda role: -role.value))
        ),
    )


# --- layers ----------------------------------------------------------------------------------------


def layer_chart(result: Result) -> Iterator[Tree]:
    """Draw the layer tree as a flame graph, each layer as wide as its time."""
    root = build_layer_tree(result)
    if root is None or not root.time or not root.children:
        return
    drawn = _node(root, _THIN * root.time)
    yield Tree(
        title="Layers, each as wide as its time",
        scale=AxisScale(label="time of one call", unit=SECONDS),
        root=drawn,
        note=f"equal layers are merged; {_ZOOM}",
    )


def _node(branch: LayerNode, least: float) -> TreeNode:
    kind = f"{branch.count} x {branch.kind}" if branch.count > 1 else branch.kind
    return TreeNode(
        name=branch.label or branch.kind or "the model",
        value=branch.time,
        detail=kind,
        children=(
            *(_node(child, least) for child in branch.children if child.time >= least),
            *_own_code(branch, least),
        ),
    )


def _own_code(branch: LayerNode, least: float) -> Iterator[TreeNode]:
    """Yield a node for the time of a layer's own code, outside its sublayers."""
    own = branch.time - sum(child.time for child in branch.children)
    if branch.children and own >= least:
        yield TreeNode(name="own code", value=own, detail="outside the layers within")


def roofline(result: Result) -> Iterator[Plot]:
    """Draw the roofline of the machine with the leaf layers at their arithmetic intensity and FLOP/s."""
    root = build_layer_tree(result)
    flops, bandwidth = (
        result.number(metric, result.peaks_scope) for metric in ("peak_flops", "peak_bandwidth")
    )
    if root is None or flops is None or bandwidth is None:
        return
    leaves = [leaf for leaf in _leaves(root) if leaf.compute and leaf.memory and leaf.time]
    leaves = sorted(leaves, key=lambda leaf: -leaf.time)[:_LAYERS]
    if not leaves or not flops or not bandwidth:
        return
    # Times at the peaks, multiplied by the peaks, are the counted operations and bytes.
    places = [
        (leaf.compute * flops / (leaf.memory * bandwidth), leaf.compute * flops / leaf.time)
        for leaf in leaves
    ]
    ridge = flops / bandwidth
    low = min(*(x for x, _ in places), ridge) / 2
    high = max(*(x for x, _ in places), ridge) * 2
    labels = [f"{leaf.path}, {share(leaf.time, root.time)} of the time" for leaf in leaves]
    roof = [(low, low * bandwidth), (ridge, flops), (high, flops)]
    yield Plot(
        title="Roofline: the layers and the peaks of this machine",
        x=AxisScale(label="operations per byte", unit="FLOP/B", logarithmic_from=1),
        y=AxisScale(label="operations per second", unit=RATE, logarithmic_from=1),
        series=(
            Series.through("peaks of this machine", roof),
            Series.through(
                "layers",
                ((x, y, label) for (x, y), label in zip(places, labels, strict=True)),
                ("x", "y", "labels"),
                joined=False,
                marked=True,
                named=_NAMED,
            ),
        ),
        note=f"the {count(len(leaves), 'layer')} with most time among those with MACs, the first {_NAMED} "
        "named; memory-bound left of the ridge, compute-bound right of it",
    )


def _leaves(branch: LayerNode) -> Iterator[LayerNode]:
    if not branch.children:
        yield branch
    for child in branch.children:
        yield from _leaves(child)


# --- memory ----------------------------------------------------------------------------------------


def memory_chart(result: Result) -> Iterator[Plot]:
    """Draw the memory in use over a call, by category."""
    timeline = result.activity.course if result.activity else None
    if timeline is None:
        return
    times = tuple(float(time) for time in unpack_samples(timeline.times))
    lines = {name: unpack_samples(line) for name, line in timeline.levels.items()}
    levels = {name: line for name, line in lines.items() if name not in BEFORE}
    preexisting = sum(float(line.max()) for name, line in lines.items() if name in BEFORE and len(line))
    if len(times) < 2 or not any(line.any() for line in levels.values()):
        return
    yield Plot(
        title=f"Memory in use over one {call_or_step(result)}",
        x=AxisScale(label=f"time from the beginning of the {call_or_step(result)}", unit=SECONDS),
        y=AxisScale(label="in use", unit=BYTES),
        series=tuple(
            Series(name=name, x=times, y=tuple(map(float, line)))
            for name, line in levels.items()
            if line.any()
        ),
        stacked=True,
        note=f"in addition to {format_quantity(preexisting, BYTES, 3)} allocated before"
        if preexisting
        else "",
    )


# --- a server --------------------------------------------------------------------------------------


def request_stage_chart(result: Result) -> Iterator[Stack]:
    """Draw the stages of a mean request."""
    bars = [(unit_of_work(result), dict(stages(result)))]
    yield from draw_request_stages(bars, "Where a request spends its time")


def call_stage_chart(result: Result) -> Iterator[Stack]:
    """Draw the stages of a mean call end to end."""
    bars = [("call", mean_call_stages(result))]
    yield from draw_request_stages(bars, "A call end to end", label="mean time of a call")


def draw_request_stages(
    loads: Sequence[tuple[str, Mapping[str, float]]],
    title: str = "Where a request spends its time, under each load",
    *,
    label: str = "mean time of a request",
) -> Iterator[Stack]:
    """Draw the mean seconds of a request by stage, a bar for each load; nothing if there is but one stage.

    Args:
        loads: the label of each load, and the seconds of its stages by name; one without any has no bar.
        title: title of the chart.
        label: label of the axis.
    """
    loads = [(load, parts) for load, parts in loads if parts]
    names = dict.fromkeys(name for _, parts in loads for name in parts)
    if len(names) < 2:
        return
    yield Stack(
        title=title,
        scale=AxisScale(label=label, unit=SECONDS),
        bars=tuple(load for load, _ in loads),
        parts=tuple(
            Series.through(
                name,
                ((float(bar), parts[name]) for bar, (_, parts) in enumerate(loads) if name in parts),
                tint=_TINTS.get(name),
            )
            for name in names
        ),
    )


_TINTS = {
    str(name): place for names in (STAGE_NAMES.values(), CALL_SCOPES) for place, name in enumerate(names)
}
"""Colour of each stage: the same in every chart, whichever other stages that has."""

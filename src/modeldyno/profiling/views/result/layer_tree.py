"""The timed layers as a tree: equal layers are merged, each has its place on the roofline."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import HOST_TIMES
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.engine.trace.layer_times import RooflinePosition, is_resolved, locate_on_roofline
from modeldyno.profiling.views.result.module_tree import follows, name_range, parent_of, pattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy import ndarray

    from modeldyno.base.result.result import Result
    from modeldyno.base.result.trace_data import Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNode:
    """A layer, or several equal ones, with their total time and cost."""

    path: str
    """Such as ``encoder.layer.0-11``."""
    label: str
    """Name relative to its parent."""
    kind: str
    count: int = 1
    calls: float = 1.0
    """Calls of this module and its submodules in one call of the model."""
    time: float
    """Seconds per call of the model, children included."""
    own: float
    tick: float = 0.0
    """Seconds in which the times of its calls were counted."""
    macs: float = 0.0
    flops: float = 0.0
    output: float = 0.0
    """Bytes that one call of each of them returns."""
    compute: float = 0.0
    """Seconds its operations take at peak FLOP/s."""
    memory: float = 0.0
    """Seconds its weights and outputs take at peak bandwidth."""
    children: tuple[LayerNode, ...] = ()
    likeness: str
    """Key that is equal for two layers of one class with equal children and outputs."""

    @property
    def resolved(self) -> bool:
        """Whether its clock resolves the time of each of the layers."""
        return is_resolved(self.time / self.count, self.tick)

    @property
    def roofline_place(self) -> RooflinePosition | None:
        """Its place on the roofline, if known; None for a time that its clock does not resolve."""
        if not self.resolved:
            return None
        return locate_on_roofline(self.time, self.compute, self.memory, max(1.0, self.calls))


def build_layer_tree(result: Result) -> LayerNode | None:
    """Build the tree of timed layers; equal neighbours are merged into one with their sum."""
    watched = result.activity.layers if result.activity else ()
    if not watched or watched[0].path:
        return None
    numbers = _numbers(result)
    kinds = {module.path: module.kind for module in result.outline.modules} if result.outline else {}
    paths = {layer.path for layer in watched}
    families: defaultdict[str | None, list[LayerNode]] = defaultdict(list)
    alike: dict[object, str] = {}
    for layer in sorted(watched, key=lambda layer: -_depth(layer.path)):
        children = tuple(_merge_alike(families.pop(layer.path, [])))
        parent = parent_of(layer.path, paths)
        named = layer if layer.kind else replace(layer, kind=kinds.get(layer.path, ""))
        branch = _branch(named, parent, numbers, children, alike)
        families[parent].append(branch if layer.path else _with_total(branch, result, numbers))
    return families[None][0]


def layer_seconds(result: Result) -> dict[str, float]:
    """Return the seconds per call of each timed layer by its path, and of the whole by ``""``.

    They are the means over the same middle half of the calls that the layer tree shows.
    """
    numbers = _numbers(result)
    own = {path: seconds for (metric, path), seconds in numbers.items() if metric == "self_time"}
    times = {path: s for (metric, path), s in numbers.items() if metric == "latency" and path in own}
    return times | {"": sum(own.values())} if own else {}


def _branch(
    layer: Layer,
    parent: str | None,
    numbers: Mapping[tuple[str, str], float],
    children: tuple[LayerNode, ...],
    alike: dict[object, str],
) -> LayerNode:
    path, label = layer.path, layer.path[len(parent) + 1 :] if parent else layer.path
    key = (layer.kind, layer.output, layer.calls, tuple((child.label, child.likeness) for child in children))
    compute, memory = _bounds(path, numbers)
    branch = LayerNode(
        path=path,
        label=label,
        kind=layer.kind,
        calls=layer.calls + sum(child.calls for child in children),
        time=numbers.get(("latency", path), 0.0),
        own=numbers.get(("self_time", path), 0.0),
        tick=numbers.get((_TICK, path), 0.0),
        macs=numbers.get(("macs", path), 0.0),
        flops=numbers.get(("flops", path), 0.0),
        output=numbers.get(("output_bytes", path), 0.0),
        compute=compute,
        memory=memory,
        children=children,
        likeness=alike.setdefault(key, str(len(alike))),
    )
    if layer.calls or len(children) != 1:
        return branch
    (child,) = children  # a container with one child, such as a list, adds no information
    return replace(child, label=f"{label}.{child.label}")


def _with_total(root: LayerNode, result: Result, numbers: Mapping[tuple[str, str], float]) -> LayerNode:
    """Set the root's time to the sum of all own times, and its bound to that of the static analysis."""
    time = sum(value for (metric, _), value in numbers.items() if metric == "self_time")
    least = result.number("roofline_latency", result.peaks_scope) or 0.0
    peak = result.number("peak_flops", result.peaks_scope) or 0.0
    macs = result.number("causal_macs") or result.number("macs") or 0.0
    compute = min(least, 2 * macs / peak) if peak else 0.0
    memory = least if compute < _ALL * least else 0.0
    counts = result.number("macs") or 0.0, result.number("flops") or 0.0
    return replace(root, time=time, compute=compute, memory=memory, macs=counts[0], flops=counts[1])


_ALL, _TICK = 0.999, "tick"


def _bounds(path: str, numbers: Mapping[tuple[str, str], float]) -> tuple[float, float]:
    """Return the seconds for a layer's MACs at the peak, and for moving its weights and outputs once."""
    flops, bandwidth = numbers.get(("peak_flops", ""), 0.0), numbers.get(("peak_bandwidth", ""), 0.0)
    if not flops or not bandwidth:
        return 0.0, 0.0

    def of(metric: str) -> float:
        return numbers.get((metric, path), 0.0)

    read, written = of("bytes_read"), of("bytes_written")
    moved = min(read, of("weight_bytes")) + min(written, of("output_bytes"))
    return 2 * of("macs") / flops, moved / bandwidth


_WANTED = (
    "latency", "self_time", "flops", "macs", "bytes_read", "bytes_written", "weight_bytes", "output_bytes",
)  # fmt: skip


def _numbers(result: Result) -> dict[tuple[str, str], float]:
    """Return the numbers of each path, and the peaks of this machine if the model ran on it."""
    values = {(m.metric, m.scope): m.value for m in result.measurements if m.metric in _WANTED}
    typical = _typical([values[key] for key in values if key[0] == "self_time"])
    numbers = {key: _mean(value, typical) for key, value in values.items()}
    for (metric, path), value in values.items():
        if metric == "latency" and path and isinstance(value, Distribution):
            numbers[_TICK, path] = value.clock_resolution
    if all(doubt.code != HOST_TIMES for doubt in result.doubts):
        for metric in ("peak_flops", "peak_bandwidth"):
            numbers[metric, ""] = result.number(metric, result.peaks_scope) or 0.0
    return numbers


def _typical(owns: Sequence[float | Distribution]) -> ndarray:
    """Return the indices of the middle half of the calls by total time, which leaves out outliers."""
    import numpy as np  # slow to import

    samples = [own.samples() for own in owns if isinstance(own, Distribution)]
    most = max(map(len, samples), default=0)  # a layer that one of several processes did not call has fewer
    order = np.argsort(
        sum((sample for sample in samples if len(sample) == most), np.zeros(most)), kind="stable"
    )
    return order[most // 4 : most - most // 4]


def _mean(value: float | Distribution, chosen: ndarray) -> float:
    """Return a number that adds up over layers: the mean over the same calls for each."""
    if not isinstance(value, Distribution):
        return value
    samples = value.samples()
    fits = len(chosen) and len(samples) > chosen.max()
    return float(samples[chosen].mean()) if fits else value.statistic("p50")


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0


def _merge_alike(branches: Sequence[LayerNode]) -> Iterator[LayerNode]:
    """Merge equal numbered neighbours, and equal layers whose number is further up in the path."""
    groups: dict[object, list[LayerNode]] = {}
    for place, branch in enumerate(branches):
        before = branches[place - 1]
        if place and follows(before, branch):
            key = next(key for key, group in groups.items() if group[-1] is before)
        else:
            inner = pattern(branch.label)
            key = place if inner == branch.label or inner.endswith("*") else (inner, branch.likeness)
        groups.setdefault(key, []).append(branch)
    for group in groups.values():
        label = name_range([one.label for one in group])
        path = group[0].path.removesuffix(group[0].label) + label
        yield _merged(group, group[0].path, path, label) if len(group) > 1 else group[0]


def _merged(alike: Sequence[LayerNode], old: str, new: str, label: str = "") -> LayerNode:
    first = alike[0]
    return replace(
        first,
        path=new + first.path[len(old) :],
        label=label or first.label,
        **{name: sum(getattr(one, name) for one in alike) for name in _SUMMED},
        children=tuple(
            _merged(parts, old, new) for parts in zip(*(one.children for one in alike), strict=True)
        ),
        likeness=f"{first.likeness}x{len(alike)}",
    )


_SUMMED = ("count", "calls", "time", "own", "macs", "flops", "output", "compute", "memory")

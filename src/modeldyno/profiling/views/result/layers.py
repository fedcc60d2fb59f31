"""Time of a call by layer: the slowest layer, the tree, and the layers with most time to gain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Block, clean, make_table, note, shorten
from modeldyno.base.stats.units import BYTES, COUNT, RATE, SECONDS, format_quantity
from modeldyno.base.views.text import count, keep_ending, share
from modeldyno.engine.trace.layer_times import RESOLVED
from modeldyno.profiling.views.result.layer_tree import LayerNode, build_layer_tree
from modeldyno.profiling.views.result.module_tree import readable_depth

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from modeldyno.base.result.result import Result
    from modeldyno.base.views.view_options import ViewOptions
    from modeldyno.engine.trace.layer_times import RooflinePosition

_ROWS, _NAME = 25, 30
"""Most rows of the table, and most characters of a layer's name."""
_LIGHT = 0.005
"""Share of the time below which a layer is left out, unless a depth is given."""
_MOST = 0.6
"""A child with at least this share of its parent's time is reported instead of the parent."""
_GAINS = 3


def layers(result: Result, options: ViewOptions) -> Iterator[Block]:
    """Lay out the timed layers."""
    root = build_layer_tree(result)
    if root is None or not root.time or not root.children:
        return
    some = bool(result.job.observation.layers)
    yield note(_slowest_sentence(replace(root, own=0.0) if some else root))
    yield from _table(root, options)
    if text := _gains_sentence(root):
        yield note(text)
    if text := _overhead_sentence(result):
        yield note(text)


# -- the table ----------------------------------------------------------------------------------------


def _table(root: LayerNode, options: ViewOptions) -> Iterator[Block]:
    all_rows = list(_walk(root))
    rows = [
        (level, branch)
        for level, branch in all_rows
        if options.depth is not None or branch.time >= _LIGHT * root.time
    ]
    depth = readable_depth([level for level, _ in rows], _ROWS) if options.depth is None else options.depth
    listed = [(level, branch) for level, branch in rows if level <= depth]
    cut = 0 if options.depth is not None else max(0, len(listed) - _ROWS)
    listed = listed[: len(listed) - cut]
    roofline = any(branch.roofline_place for _, branch in listed)
    columns = ("layer", "time>", "share>", "own>", "MACs>?", "output>?")
    yield make_table(
        "Layers: mean time in the middle half of the calls, measuring overhead subtracted",
        (*columns, *(("FLOP/s>", "roofline>") if roofline else ())),
        (
            (_name(level, branch), *_cells(branch, root), *(_roofline_cells(branch) if roofline else ()))
            for level, branch in listed
        ),
        spare=("own", *(["FLOP/s"] if roofline else [])),
    )
    if unresolved := [branch for _, branch in listed if not branch.resolved]:
        least = _seconds(RESOLVED * unresolved[0].tick)
        yield note(
            f"not resolved: {count(len(unresolved), 'layer')} of less than {least}, as the profile counts in "
            f"ticks of {_seconds(unresolved[0].tick)}"
        )
    beyond = dict.fromkeys(
        b.roofline_place.bound for _, b in listed if b.roofline_place and b.roofline_place.share > _ROOF
    )
    for bound in beyond:
        yield note(f"over 100 % of the roofline: {_BEYOND[bound]}")
    if hidden := len(all_rows) - len(listed):
        why = f"lighter than {_LIGHT:.1%} or deeper" if options.depth is None else "deeper"
        yield note(
            f"left out: {count(hidden, 'layer')}, {why}; `show --get latency.p50@PATH` shows any of them"
        )


def _walk(branch: LayerNode, level: int = 0) -> Iterator[tuple[int, LayerNode]]:
    yield level, branch
    for child in branch.children:
        yield from _walk(child, level + 1)


def _cells(branch: LayerNode, root: LayerNode) -> tuple[str, ...]:
    return (
        _layer_seconds(branch, branch.time),
        share(branch.time, root.time),
        _layer_seconds(branch, branch.own) if branch.own else "—",
        format_quantity(branch.macs, COUNT, 3) if branch.macs else "—",
        format_quantity(branch.output, BYTES, 3) if branch.output else "—",
    )


def _roofline_cells(branch: LayerNode) -> tuple[str, str]:
    place = branch.roofline_place
    known = branch.flops and branch.time and branch.resolved
    rate = format_quantity(branch.flops / branch.time, RATE, 3) if known else "—"
    return rate.removesuffix("/s").strip(), _reached(place) if place else "—"


def _reached(place: RooflinePosition) -> str:
    """Return the share of the machine's peak that is reached, and which peak is the limit."""
    if place.bound == "overhead":
        return "overhead-bound"
    peak = "peak" if place.bound == "neither" else place.bound
    return f"{_percent(place)} of {peak}"


def _percent(place: RooflinePosition) -> str:
    return f"{place.share:.0%}" if place.share >= _PERCENT else "<1%"


_PERCENT = 0.005
_ROOF = 1.005
"""Share of a bound that is displayed as more than 100 %."""
_BEYOND = {
    "memory": "the data came from a cache, which is faster than the memory whose bandwidth is the peak",
    "compute": "it was faster than what was measured as the peak of this machine",
}


def _seconds(value: float) -> str:
    return format_quantity(value, SECONDS, 3)


def _layer_seconds(branch: LayerNode, seconds: float) -> str:
    """Format a time of a layer; of one below a tick of its clock, that it is less."""
    ticks = branch.tick * branch.count
    return f"<{_seconds(ticks)}" if 0 < seconds < ticks else _seconds(seconds)


def _name(level: int, branch: LayerNode) -> str:
    """Return the name of a layer, indented by dots; the class is left out if it does not fit."""
    dots, label = "· " * level, clean(branch.label)
    kind = clean(f"{branch.count} x {branch.kind}" if branch.count > 1 else branch.kind)
    room = _NAME - len(dots)
    if not label:
        return shorten(kind or "the model", room)
    named = label if kind in {"", label.rstrip("_0123456789")} else f"{label} ({kind})"
    return dots + (named if len(named) <= room else keep_ending(label, room))


# -- sentences ----------------------------------------------------------------------------------------


def slowest_layer_sentence(result: Result) -> str:
    """Return a clause on the slowest layer; empty if no layers were timed."""
    root = build_layer_tree(result)
    if root is None or not root.time or not root.children:
        return ""
    return _slowest_sentence(replace(root, own=0.0) if result.job.observation.layers else root)


def layer_time_clause(result: Result) -> str:
    """Return a clause on the time of a call by its layers, for Results without a latency."""
    root = build_layer_tree(result)
    return f"takes {_seconds(root.time)} a call while its layers are measured" if root and root.time else ""


def _slowest_sentence(root: LayerNode) -> str:
    """Describe the slowest layer, descending past layers that merely wrap one other."""
    at = root
    while at.children:
        heaviest = max(at.children, key=lambda child: child.time)
        if heaviest.time < _MOST * at.time:
            break
        at = heaviest
    layer = max((*at.children, at), key=lambda branch: branch.own if branch is at else branch.time)
    itself = layer is at and bool(at.children)
    time = layer.own if itself else layer.time
    part = f"{share(time, root.time)} of the time: {_seconds(time)} of {_seconds(root.time)}"
    if not itself:
        return f"{_layer_phrase(layer)} takes {part}"
    return f"the code of {_layer_name(layer)} outside its submodules takes {part}"


def _layer_phrase(branch: LayerNode) -> str:
    name = _layer_name(branch)
    return name if not branch.path or "layer" in name else f"the layer {name}"


def _layer_name(branch: LayerNode) -> str:
    """Return the name of a layer for a sentence; a bare number is followed by its class."""
    path = clean(branch.path)
    kind = f" ({clean(branch.kind)})" if path.rpartition(".")[2].isdecimal() else ""
    return keep_ending(path, _LONGEST) + kind or "the model"


_LONGEST = 60


def _gains_sentence(root: LayerNode) -> str:
    """Describe the layers that exceed their roofline bound by most."""
    placed = [(branch, place) for branch in _deepest(root) if (place := branch.roofline_place)]
    best = sorted(placed, key=lambda item: -item[1].to_win)[:_GAINS]
    names = [
        f"{_layer_name(branch)}: {_seconds(place.to_win)} ({_roof_share(place)})"
        for branch, place in best
        if place.to_win
    ]
    return f"most time to gain, by the roofline of this machine: {'; '.join(names)}" if names else ""


def _roof_share(place: RooflinePosition) -> str:
    if place.bound == "neither":
        return f"{_percent(place)} of the machine's peak"
    return f"{place.bound}-bound, {_percent(place)} of the roofline"


def _deepest(branch: LayerNode) -> Iterable[LayerNode]:
    """Return the deepest layers that have a place on the roofline."""
    below = [one for child in branch.children for one in _deepest(child)]
    return below or ([branch] if branch.roofline_place else [])


def _overhead_sentence(result: Result) -> str:
    ratio, free = (result.number(metric, "layers") for metric in ("pass_overhead", "unattributed"))
    if ratio is None or free is None:
        return ""
    cost = f"slowed the call by {ratio - 1:.0%}, which is subtracted" if ratio > _SLOWER else _FREE
    sentence = f"measuring the layers {cost}"
    if any(doubt.code == "unattributed" for doubt in result.doubts):  # which says the share
        return sentence
    where = "the watched layers" if result.job.observation.layers else "any layer"
    return f"{sentence}; {free:.1%} of the time is outside {where}"


_SLOWER, _FREE = 1.005, "did not slow the call measurably"

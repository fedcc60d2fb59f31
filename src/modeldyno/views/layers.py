"""Where the time of a call goes, layer by layer: a sentence, a tree, and the layers with most time to win."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.core.attribution import Placed, placed
from modeldyno.core.block import Align, Block, Column, Notice, Severity, Table, clean, shorten
from modeldyno.core.inspection import HERE
from modeldyno.core.measurement import Distribution
from modeldyno.core.units import RATE, SECONDS, format_quantity
from modeldyno.views.modules import follows, parent_of, pattern, ranged
from modeldyno.views.words import count, ending, number, share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy import ndarray

    from modeldyno.core.activity import Layer
    from modeldyno.core.result import Result
    from modeldyno.views.look import Look

TOLD = frozenset({"self_time", "achieved_flops", "pass_overhead", "unattributed"})
"""Metrics that are told here, and in no other table."""
_ROWS, _NAME = 25, 32
"""Rows that are read at a glance, and characters of a layer's name."""
_LIGHT = 0.005
"""Part of the time below which a layer is left out, where nobody asked for a depth."""
_MOST = 0.6
"""A layer that takes this part of the one around it is what that one is about."""
_WINNERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A layer, or several alike, with what they take together."""

    path: str
    """Such as ``encoder.layer.0-11``."""
    label: str
    """What it is called below its parent."""
    kind: str
    count: int = 1
    calls: float = 1.0
    """Of this module and of those in it, in one call of the model."""
    time: float
    """Seconds of a call of the model, children included."""
    own: float
    flops: float = 0.0
    compute: float = 0.0
    """Seconds for its operations at the peak."""
    memory: float = 0.0
    """Seconds for its weights and outputs at the bandwidth."""
    children: tuple[Branch, ...] = ()
    likeness: str
    """Equal for two of one class that have alike children and outputs."""

    @property
    def placed(self) -> Placed | None:
        """Its place on the roofline, where that is known."""
        return placed(self.time, self.compute, self.memory, max(1.0, self.calls))


def layers(result: Result, look: Look) -> Iterator[Block]:
    """Show the layers that were watched."""
    root = tree(result)
    if root is None or not root.time or not root.children:
        return
    some = bool(result.job.observation.layers)
    yield Notice(severity=Severity.NOTE, text=_dearest(replace(root, own=0.0) if some else root))
    yield from _table(root, look)
    if text := _winners(root):
        yield Notice(severity=Severity.NOTE, text=text)
    if text := _trust(result):
        yield Notice(severity=Severity.NOTE, text=text)


# -- the tree -----------------------------------------------------------------------------------------


def tree(result: Result) -> Branch | None:
    """Build the tree of what was watched; alike neighbours are one, with their sum."""
    found = result.activity.layers if result.activity else ()
    if not found or found[0].path:
        return None
    numbers = _numbers(result)
    kinds = {module.path: module.kind for module in result.outline.modules} if result.outline else {}
    known = {layer.path for layer in found}
    families: defaultdict[str | None, list[Branch]] = defaultdict(list)
    alike: dict[object, str] = {}
    for layer in sorted(found, key=lambda layer: -_depth(layer.path)):
        children = tuple(_collapsed(families.pop(layer.path, [])))
        parent = parent_of(layer.path, known)
        named = layer if layer.kind else replace(layer, kind=kinds.get(layer.path, ""))
        branch = _branch(named, parent, numbers, children, alike)
        families[parent].append(branch if layer.path else _whole(branch, result, numbers))
    return families[None][0]


def _branch(
    layer: Layer,
    parent: str | None,
    numbers: Mapping[tuple[str, str], float],
    children: tuple[Branch, ...],
    alike: dict[object, str],
) -> Branch:
    path, label = layer.path, layer.path[len(parent) + 1 :] if parent else layer.path
    key = (layer.kind, layer.output, layer.calls, tuple((child.label, child.likeness) for child in children))
    compute, memory = _bounds(path, numbers)
    branch = Branch(
        path=path,
        label=label,
        kind=layer.kind,
        calls=layer.calls + sum(child.calls for child in children),
        time=numbers.get(("latency", path), 0.0),
        own=numbers.get(("self_time", path), 0.0),
        flops=numbers.get(("flops", path), 0.0),
        compute=compute,
        memory=memory,
        children=children,
        likeness=alike.setdefault(key, str(len(alike))),
    )
    if layer.calls or len(children) != 1:
        return branch
    (child,) = children  # a holder of one thing, such as of a list, says nothing that this does not
    return replace(child, label=f"{label}.{child.label}")


def _whole(root: Branch, result: Result, numbers: Mapping[tuple[str, str], float]) -> Branch:
    """Let the whole take what all its parts take, and have the bound that the analysis has found for it."""
    time = sum(value for (metric, _), value in numbers.items() if metric == "self_time")
    least = _of(result, "roofline_latency", HERE) if _runs_here(result) else 0.0
    peak = _of(result, "peak_flops", HERE)
    macs = _of(result, "causal_macs") or _of(result, "macs")
    compute = min(least, 2 * macs / peak) if peak else 0.0
    memory = least if compute < _ALL * least else 0.0
    return replace(root, time=time, compute=compute, memory=memory, flops=_of(result, "flops"))


_ALL = 0.999


def _bounds(path: str, numbers: Mapping[tuple[str, str], float]) -> tuple[float, float]:
    """Give the seconds for the products of a layer, and for its weights and outputs, each moved once."""
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
    """Give the numbers of each path, and the peaks of this machine where the model ran on it."""
    found = {(m.metric, m.scope): m.value for m in result.measurements if m.metric in _WANTED}
    typical = _typical([found[key] for key in found if key[0] == "self_time"])
    numbers = {key: _mean(value, typical) for key, value in found.items()}
    if _runs_here(result):
        for metric in ("peak_flops", "peak_bandwidth"):
            numbers[metric, ""] = _of(result, metric, HERE)
    return numbers


def _typical(owns: Sequence[float | Distribution]) -> ndarray:
    """Choose the middle half of the calls, by their time as a whole: none of them with a hiccup."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    samples = [own.samples() for own in owns if isinstance(own, Distribution)]
    most = max(map(len, samples), default=0)  # a layer that one of several processes did not call has fewer
    order = np.argsort(sum((each for each in samples if len(each) == most), np.zeros(most)), kind="stable")
    return order[most // 4 : most - most // 4]


def _mean(value: float | Distribution, chosen: ndarray) -> float:
    """Give a number that adds up over layers: the mean of the same calls for each."""
    if not isinstance(value, Distribution):
        return value
    samples = value.samples()
    fits = len(chosen) and len(samples) > chosen.max()
    return float(samples[chosen].mean()) if fits else value.statistic("p50")


def _of(result: Result, metric: str, scope: str = "") -> float:
    found = result.find(metric, scope)
    return 0.0 if found is None else number(found)[0]


def _runs_here(result: Result) -> bool:
    """Whether it ran on what the peaks of `here` were measured on: the processor."""
    return str(result.environment.conditions.get("device", "cpu")).startswith("cpu")


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0


def _collapsed(branches: Sequence[Branch]) -> Iterator[Branch]:
    """Make one of numbered neighbours that are alike, and of alike ones whose number is further up."""
    groups: dict[object, list[Branch]] = {}
    for place, branch in enumerate(branches):
        before = branches[place - 1]
        if place and follows(before, branch):
            key = next(key for key, group in groups.items() if group[-1] is before)
        else:
            inner = pattern(branch.label)
            key = place if inner == branch.label or inner.endswith("*") else (inner, branch.likeness)
        groups.setdefault(key, []).append(branch)
    for group in groups.values():
        label = ranged([one.label for one in group])
        path = group[0].path.removesuffix(group[0].label) + label
        yield _added(group, group[0].path, path, label) if len(group) > 1 else group[0]


def _added(alike: Sequence[Branch], old: str, new: str, label: str = "") -> Branch:
    first = alike[0]
    return replace(
        first,
        path=new + first.path[len(old) :],
        label=label or first.label,
        count=sum(one.count for one in alike),
        calls=sum(one.calls for one in alike),
        time=sum(one.time for one in alike),
        own=sum(one.own for one in alike),
        flops=sum(one.flops for one in alike),
        compute=sum(one.compute for one in alike),
        memory=sum(one.memory for one in alike),
        children=tuple(
            _added(parts, old, new) for parts in zip(*(one.children for one in alike), strict=True)
        ),
        likeness=f"{first.likeness}x{len(alike)}",
    )


# -- the table ----------------------------------------------------------------------------------------


def _table(root: Branch, look: Look) -> Iterator[Block]:
    everything = list(_walk(root))
    rows = [
        (level, branch)
        for level, branch in everything
        if look.depth is not None or branch.time >= _LIGHT * root.time
    ]
    depth = _readable([level for level, _ in rows]) if look.depth is None else look.depth
    shown = [(level, branch) for level, branch in rows if level <= depth]
    cut = 0 if look.depth is not None else max(0, len(shown) - _ROWS)
    shown = shown[: len(shown) - cut]
    roofline = any(branch.placed for _, branch in shown)
    titles = ["layer", "time>", "share>", "own>", *(["FLOP/s>", "bound by>"] if roofline else [])]
    yield Table(
        title="Layers: means of the middle half of the calls, freed of the cost of watching",
        columns=tuple(
            Column(title=title.removesuffix(">"), align=Align.RIGHT if title.endswith(">") else Align.LEFT)
            for title in titles
        ),
        rows=tuple(_row(level, branch, root, roofline=roofline) for level, branch in shown),
    )
    beyond = dict.fromkeys(b.placed.bound for _, b in shown if b.placed and b.placed.share > _ROOF)
    for bound in beyond:
        yield Notice(severity=Severity.NOTE, text=f"over 100 % of the roof: {_BEYOND[bound]}")
    if hidden := len(everything) - len(shown):
        why = f"lighter than {_LIGHT:.1%} or deeper" if look.depth is None else "deeper"
        text = f"left out: {count(hidden, 'layer')}, {why}; `show --get latency.p50@PATH` gives any"
        yield Notice(severity=Severity.NOTE, text=text)


def _walk(branch: Branch, level: int = 0) -> Iterator[tuple[int, Branch]]:
    yield level, branch
    for child in branch.children:
        yield from _walk(child, level + 1)


def _readable(levels: Sequence[int]) -> int:
    """Give the depth to which the tree is read at a glance; one level is always shown."""
    deepest = max(levels)
    return next(
        (d for d in range(deepest, 1, -1) if sum(level <= d for level in levels) <= _ROWS), min(1, deepest)
    )


def _row(level: int, branch: Branch, root: Branch, *, roofline: bool) -> tuple[str, ...]:
    times = (
        _seconds(branch.time),
        share(branch.time, root.time),
        _seconds(branch.own) if branch.own else "—",
    )
    return _name(level, branch), *times, *(_on_roof(branch) if roofline else ())


def _on_roof(branch: Branch) -> tuple[str, str]:
    place = branch.placed
    rate = format_quantity(branch.flops / branch.time, RATE, 3) if branch.flops and branch.time else "—"
    return rate.removesuffix("/s").strip(), f"{place.bound} {_percent(place)}" if place else "—"


def _percent(place: Placed) -> str:
    return f"{place.share:.0%}" if place.share >= _PERCENT else "<1%"


_PERCENT = 0.005
_ROOF = 1.005
"""Share of a bound from which on it shows as more than all of it."""
_BEYOND = {
    "memory": "the data came from a cache, which is faster than the memory whose bandwidth is the roof",
    "compute": "it was faster than what was measured as the peak of this machine",
}


def _seconds(value: float) -> str:
    return format_quantity(value, SECONDS, 3)


def _name(level: int, branch: Branch) -> str:
    """Name a layer, a dot for each level; a class that leaves no room is left out."""
    dots, label = "· " * level, clean(branch.label)
    kind = clean(f"{branch.count} x {branch.kind}" if branch.count > 1 else branch.kind)
    room = _NAME - len(dots)
    if not label:
        return shorten(kind or "the whole", room)
    named = label if kind in {"", label.rstrip("_0123456789")} else f"{label} ({kind})"
    return dots + (named if len(named) <= room else ending(label, room))


# -- sentences ----------------------------------------------------------------------------------------


def _dearest(root: Branch) -> str:
    """Say which layer takes most, where there is a choice: not the one around everything."""
    at = root
    while at.children:
        heaviest = max(at.children, key=lambda child: child.time)
        if heaviest.time < _MOST * at.time:
            break
        at = heaviest
    found = max((*at.children, at), key=lambda each: each.own if each is at else each.time)
    itself = " itself" if found is at and at.children else ""
    time = found.own if itself else found.time
    part = share(time, root.time)
    return f"{_called(found)}{itself} takes {part} of the time: {_seconds(time)} of {_seconds(root.time)}"


def _called(branch: Branch) -> str:
    """Name a layer in a sentence; a mere number says nothing without its class."""
    path = clean(branch.path)
    kind = f" ({clean(branch.kind)})" if path.rpartition(".")[2].isdecimal() else ""
    return ending(path, _LONGEST) + kind or "the whole"


_LONGEST = 60


def _winners(root: Branch) -> str:
    """Name the layers that take longest beyond what this machine would need at its peaks."""
    found = [(branch, place) for branch in _finest(root) if (place := branch.placed)]
    best = sorted(found, key=lambda item: -item[1].to_win)[:_WINNERS]
    named = [
        f"{_called(branch)}: {_seconds(place.to_win)} ({_said(place)})"
        for branch, place in best
        if place.to_win
    ]
    return f"most time to win, by the roofline of this machine: {'; '.join(named)}" if named else ""


def _said(place: Placed) -> str:
    if place.bound == "neither":
        return f"far from both roofs, at {_percent(place)} of the nearer one"
    return f"{place.bound}-bound, at {_percent(place)} of the roof"


def _finest(branch: Branch) -> Iterable[Branch]:
    """Give the deepest layers that stand on the roofline."""
    below = [one for child in branch.children for one in _finest(child)]
    return below or ([branch] if branch.placed else [])


def _trust(result: Result) -> str:
    overhead, alone = (result.find(metric, "layers") for metric in ("pass_overhead", "unattributed"))
    if overhead is None or alone is None:
        return ""
    none = "none of the layers that were watched" if result.job.observation.layers else "no layer"
    return (
        f"watching made a call take {number(overhead)[0]:.2f} times as long, which is taken off; "
        f"{number(alone)[0]:.1%} of the time is spent in {none}"
    )

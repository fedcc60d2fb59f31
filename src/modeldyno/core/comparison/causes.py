"""Where a change comes from: the parts of two models side by side, what each contributes, and a rest.

Parts are disjoint, so that their differences add up: of a module, what it takes without the modules in it.
What no part accounts for (the time between calls of operators, what was measured in another process) is the
rest, which has a name of its own and is never shared out.

Times vary. Parts that are other than they were, or whose difference is beyond its interval, are named before
those that may as well be noise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from modeldyno.core.comparison.comparison import Cause, Change, Outcome, Part
from modeldyno.core.comparison.module_alignment import Node, align, folded, parent_of
from modeldyno.core.metrics.measurement import Distribution, Interval
from modeldyno.core.result.trace_data import Happening
from modeldyno.core.static.graph import Role
from modeldyno.core.trace.allocations import GIVEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from modeldyno.core.comparison.module_alignment import Pair
    from modeldyno.core.result.result import Result
    from modeldyno.core.result.static_data import Held

LAYERS, OPERATORS, KERNELS, STAGES, PLACES = "layers", "operators", "kernels", "stages", "places"
"""What the parts of a cause may be; a place is a module and what it holds there."""
Amount = tuple[float, float, float]
"""A number, and the ends between which it lies; of a count these are the same."""
Amounts = dict[str, Amount]
"""Path of a module to what it takes by itself."""
MATERIAL = 0.1
"""Part of the change from which on a contribution is named before larger ones that may be noise."""
MOST = 200
"""Parts that a document holds of one cause; what the others contribute is in the rest."""
_MOVED = {Outcome.BETTER, Outcome.WORSE}
_COUNTS = frozenset({"flops", "weight_bytes"})
"""What an analysis knows of each module, its children included; the other counts move with these."""
_GIVEN = {*map(str, GIVEN), str(Role.WEIGHT), str(Role.INPUT)}


def causes(baseline: Result, candidate: Result, changes: Iterable[Change]) -> tuple[Cause, ...]:
    """Explain the changes that are better or worse, as far as the two Results tell of their parts."""
    moved = [change for change in changes if change.outcome in _MOVED and not change.query.scope]
    pairs = align(_nodes(baseline), _nodes(candidate))
    found: list[Cause] = []
    metrics: set[str] = set()
    for change in moved:
        if (
            change.query.metric not in metrics
            and change.baseline is not None
            and change.candidate is not None
        ):
            metrics.add(change.query.metric)
            found += _explained(baseline, candidate, change, pairs)
    return tuple(found)


def _explained(baseline: Result, candidate: Result, change: Change, pairs: Sequence[Pair]) -> Iterator[Cause]:
    metric = change.query.metric
    total = (change.candidate or 0.0) - (change.baseline or 0.0)
    made: list[tuple[str, Sequence[Part]]] = []
    if metric == "latency":
        made.append((LAYERS, _of_modules(pairs, _own_times(baseline), _own_times(candidate))))
        made.append((OPERATORS, _of_names(baseline, candidate, Happening.OPERATOR)))
        made.append((KERNELS, _of_names(baseline, candidate, Happening.KERNEL)))
    elif metric in _COUNTS:
        made.append((LAYERS, _of_modules(pairs, _own(baseline, metric), _own(candidate, metric))))
    elif metric == "load_time":
        made.append((STAGES, _of_stages(baseline, candidate, metric)))
    elif metric in _HOLDING:
        held = [_HOLDING[metric](result) for result in (baseline, candidate)]
        made.append((PLACES, _of_places(pairs, *held)))
    for by, parts in made:
        if ranked := sorted((part for part in parts if part.difference), key=_rank(total)):
            yield Cause(query=change.query, by=by, total=total, parts=_most(ranked))


def _rank(total: float) -> Callable[[Part], tuple[bool, float, str]]:
    """Sort what contributes most to the change first, and what works against it last.

    What is known to contribute, and not next to nothing, goes before all that may be noise.
    """
    sign = 1 if total >= 0 else -1

    def rank(part: Part) -> tuple[bool, float, str]:
        gain = sign * part.difference
        known = (part.sure or part.changed) and gain >= MATERIAL * abs(total)
        return not known, -gain, part.scope

    return rank


def _most(ranked: Sequence[Part]) -> tuple[Part, ...]:
    """Keep the largest either way, in their order."""
    if len(ranked) <= MOST:
        return tuple(ranked)
    kept = set(map(id, sorted(ranked, key=lambda part: -abs(part.difference))[:MOST]))
    return tuple(part for part in ranked if id(part) in kept)


# --- modules -----------------------------------------------------------------------------------------


def _nodes(result: Result) -> tuple[Node, ...]:
    """Give the modules in the order of their calls; of one that was not watched, as it was analysed."""
    kinds = {module.path: module.kind for module in result.outline.modules} if result.outline else {}
    watched = result.activity.layers if result.activity else ()
    seen = {
        layer.path: Node(layer.path, layer.kind or kinds.get(layer.path, ""), layer.output, layer.calls)
        for layer in watched
    }
    rest = {path: Node(path, kind) for path, kind in kinds.items() if path not in seen}
    return tuple((seen | rest).values())


def _of_modules(pairs: Sequence[Pair], before: Amounts, after: Amounts) -> list[Part]:
    """Compare what modules take by themselves; nothing where one of the two tells nothing."""
    if not before or not after:
        return []
    return [_of_group(group, before, after) for group in folded(pairs)]


def _of_group(group: Sequence[Pair], before: Amounts, after: Amounts) -> Part:
    """Sum up what is told together, under the name of the first."""
    old, new = group[0]
    here = _sum(before.get(one.path, _NOTHING) for one, _ in group if one)
    there = _sum(after.get(other.path, _NOTHING) for _, other in group if other)
    exact = here[1] == here[2] and there[1] == there[2]
    return Part(
        scope=(new or old or _WHOLE).path,
        kind=": ".join(filter(None, (_kind(old, new), _loose(group[1:])))),
        baseline=here[0],
        candidate=there[0],
        interval=None if exact else Interval(low=there[1] - here[2], high=there[2] - here[1]),
        changed=any(_changed(*pair) for pair in group),
    )


def _sum(amounts: Iterable[Amount]) -> Amount:
    """Add up; the ends are as far out as all can be together."""
    value, low, high = (sum(column) for column in zip(_NOTHING, *amounts, strict=True))
    return value, low, high


_NOTHING: Amount = (0.0, 0.0, 0.0)
_WHOLE = Node("")


def _changed(old: Node | None, new: Node | None) -> bool:
    return not old or not new or (old.kind, old.output, old.calls) != (new.kind, new.output, new.calls)


def _kind(old: Node | None, new: Node | None) -> str:
    """Name the class, or what it was before and is now."""
    if old and new and old.kind and new.kind and old.kind != new.kind:
        return f"{old.kind} -> {new.kind}"
    return (new and new.kind) or (old and old.kind) or ""


def _loose(more: Sequence[Pair]) -> str:
    """Count what is told along with a module."""
    new, gone = sum(new is not None for _, new in more), sum(old is not None for old, _ in more)
    return ", ".join(f"{count} {word}" for count, word in ((new, "new"), (gone, "gone")) if count)


def _own_times(result: Result) -> Amounts:
    """Give the seconds of each module without those in it: the lower quartile of the calls.

    A call that was held up does not touch it, nor does a process that had a bad minute.
    """
    found: Amounts = {}
    for m in result.measurements:
        if m.metric == "self_time" and isinstance(m.value, Distribution):
            span = m.value.interval(_QUARTILE)
            assert span is not None
            found[m.scope] = m.value.statistic(_QUARTILE), span.low, span.high
    return found


_QUARTILE = "p25"


def _own(result: Result, metric: str) -> Amounts:
    """Take from what each module costs in all what the modules right within it cost."""
    modules = {module.path for module in result.outline.modules} if result.outline else set()
    whole = {
        m.scope: float(m.value)
        for m in result.measurements
        if m.metric == metric
        and (m.scope in modules or not m.scope)
        and not isinstance(m.value, Distribution)
    }
    if whole.keys() <= {""}:
        return {}
    own = dict(whole)
    for path, size in whole.items():
        if path and (parent := _parent(path, modules, whole)) is not None:
            own[parent] -= size
    return {path: (size, size, size) for path, size in own.items()}


def _parent(path: str, modules: set[str], known: Mapping[str, float]) -> str | None:
    """Give the nearest module around it whose cost is known."""
    around = path
    while around:
        around = parent_of(around, modules)
        if around in known:
            return around
    return None


# --- operators, stages, places ------------------------------------------------------------------------


def _of_names(baseline: Result, candidate: Result, kind: Happening) -> list[Part]:
    """Compare the time of all calls of each operator or kernel."""
    before, after = (_by_name(result, kind) for result in (baseline, candidate))
    return _side_by_side(before, after, str(kind)) if before and after else []


def _by_name(result: Result, kind: Happening) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in result.activity.executed if result.activity else ():
        if each.kind is kind:
            found[each.name] += each.device_time if kind is Happening.KERNEL else each.self_time  # type: ignore[assignment]
    return found


def _of_stages(baseline: Result, candidate: Result, metric: str) -> list[Part]:
    before, after = (
        {
            m.scope: float(m.value)
            for m in result.measurements
            if m.metric == metric and m.scope and not isinstance(m.value, Distribution)
        }
        for result in (baseline, candidate)
    )
    return _side_by_side(before, after, "stage") if before and after else []


def _side_by_side(before: Mapping[str, float], after: Mapping[str, float], kind: str) -> list[Part]:
    return [
        Part(scope=name, kind=kind, baseline=before.get(name, 0.0), candidate=after.get(name, 0.0))
        for name in {**before, **after}
    ]


def _measured(result: Result) -> Sequence[Held]:
    return result.activity.held if result.activity else ()


def _predicted(result: Result) -> Sequence[Held]:
    return result.outline.peak if result.outline else ()


def _working(held: Callable[[Result], Sequence[Held]]) -> Callable[[Result], Sequence[Held]]:
    """Leave out what a call is given: weights and inputs."""
    return lambda result: [each for each in held(result) if each.role not in _GIVEN]


_HOLDING: dict[str, Callable[[Result], Sequence[Held]]] = {
    "process_memory": _measured,
    "device_memory": _measured,
    "allocated_peak": _working(_measured),
    "memory_peak": _predicted,
    "activation_peak": _working(_predicted),
}
"""Metric to what lies in memory at its peak."""


def _of_places(pairs: Sequence[Pair], before: Sequence[Held], after: Sequence[Held]) -> list[Part]:
    """Compare what modules hold, role by role; nothing where one of the two tells nothing."""
    if not before or not after:
        return []
    became = {old.path: new.path for old, new in pairs if old and new}
    sizes: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for each in before:
        sizes[became.get(each.scope, each.scope), each.role][0] += each.bytes
    for each in after:
        sizes[each.scope, each.role][1] += each.bytes
    return [
        Part(scope=scope, kind=role, baseline=old, candidate=new)
        for (scope, role), (old, new) in sizes.items()
    ]

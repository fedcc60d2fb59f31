"""Explain a change by the parts of the two models: what each part contributes, and what remains.

Parts are disjoint, so that their differences add up: a module counts without the modules inside it. What no
part explains (the time between operator calls, what was measured in another process) is the remainder, which
is reported as such and never distributed.

Times vary. Parts that changed, or whose difference is beyond its interval, come before those that may be
noise.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import Distribution, Interval
from modeldyno.base.result.trace_data import EventKind
from modeldyno.comparison.change.comparison import Cause, CausePart, Change, ChangeVerdict
from modeldyno.comparison.change.module_alignment import AlignedModule, align, group_unmatched, parent_of
from modeldyno.engine.trace.layer_times import RESOLVED, is_resolved
from modeldyno.engine.trace.memory_category import GIVEN
from modeldyno.engine.trace.memory_diff import held_changes
from modeldyno.engine.trace.regions import region_operators
from modeldyno.models.static.graph import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from modeldyno.base.metrics.metric import Query
    from modeldyno.base.result.result import Result
    from modeldyno.base.result.static_data import MemoryItem
    from modeldyno.base.result.trace_data import ExecutedOp
    from modeldyno.comparison.change.module_alignment import Pair

LAYERS, OPERATORS, KERNELS, STAGES, PLACES = "layers", "operators", "kernels", "stages", "places"
"""Kinds of parts; a place is a module and what it holds in memory there."""
Amount = tuple[float, float, float]
"""A number and its interval; for a count all three are the same."""
Amounts = dict[str, Amount]
"""Path of a module to its own amount, without the modules inside it."""
MATERIAL = 0.1
"""Share of the change from which on a sure contribution comes before larger ones that may be noise."""
MOST = 200
"""Most parts of a cause in a document; the others are in the remainder."""
_MOVED = {ChangeVerdict.BETTER, ChangeVerdict.WORSE}
_COUNTS = frozenset({"flops", "weight_bytes"})
"""Metrics known per module, children included; the other counts move with these."""
_GIVEN_ROLES = {*map(str, GIVEN), str(Role.WEIGHT), str(Role.INPUT)}


def find_causes(baseline: Result, candidate: Result, changes: Iterable[Change]) -> tuple[Cause, ...]:
    """Explain the changes for better or worse, as far as the two Results know their parts."""
    changed = [change for change in changes if change.outcome in _MOVED]
    pairs = align(_nodes(baseline), _nodes(candidate))
    results: list[Cause] = []
    explained: set[tuple[str, str]] = set()
    for change in changed:
        query = change.query
        if (
            (query.metric, query.scope) not in explained
            and change.baseline is not None
            and change.candidate is not None
        ):
            explained.add((query.metric, query.scope))
            results += _causes_of_change(baseline, candidate, change, pairs)
    return tuple(results)


def _causes_of_change(
    baseline: Result, candidate: Result, change: Change, pairs: Sequence[Pair]
) -> Iterator[Cause]:
    metric = change.query.metric
    total = (change.candidate or 0.0) - (change.baseline or 0.0)
    part_lists: list[tuple[str, Sequence[CausePart]]] = []
    if change.query.scope:  # of a region of code, whose parts are the operators in it
        part_lists.append((OPERATORS, _compare_region_ops(baseline, candidate, change.query)))
    elif metric == "latency":
        part_lists.append((LAYERS, _compare_modules(pairs, _own_times(baseline), _own_times(candidate))))
        part_lists.append((OPERATORS, _compare_ops(baseline, candidate, EventKind.OPERATOR)))
        part_lists.append((KERNELS, _compare_ops(baseline, candidate, EventKind.KERNEL)))
    elif metric in _COUNTS:
        part_lists.append(
            (LAYERS, _compare_modules(pairs, _own_counts(baseline, metric), _own_counts(candidate, metric)))
        )
    elif metric == "load_time":
        part_lists.append((STAGES, _compare_stages(baseline, candidate, metric)))
    elif metric in _MEMORY_AT_PEAK:
        memory = [_MEMORY_AT_PEAK[metric](result) for result in (baseline, candidate)]
        part_lists.append((PLACES, _compare_memory(pairs, *memory)))
    for by, parts in part_lists:
        if ranked := sorted((part for part in parts if part.difference), key=_contribution_key(total)):
            yield Cause(query=change.query, by=by, total=total, parts=_largest_parts(ranked))


def _contribution_key(total: float) -> Callable[[CausePart], tuple[bool, float, str]]:
    """Return the sort key of parts: contributions first, largest first, then what works against the change.

    Sure contributions of some size come before those that may be noise.
    """
    sign = 1 if total >= 0 else -1

    def rank(part: CausePart) -> tuple[bool, float, str]:
        contribution = sign * part.difference
        sure = (part.sure or part.changed) and contribution >= MATERIAL * abs(total)
        return not sure, -contribution, part.scope

    return rank


def _largest_parts(ranked: Sequence[CausePart]) -> tuple[CausePart, ...]:
    """Keep the largest parts in either direction, in their order."""
    if len(ranked) <= MOST:
        return tuple(ranked)
    largest = set(map(id, sorted(ranked, key=lambda part: -abs(part.difference))[:MOST]))
    return tuple(part for part in ranked if id(part) in largest)


# --- modules -----------------------------------------------------------------------------------------


def _nodes(result: Result) -> tuple[AlignedModule, ...]:
    """Return the modules in the order of their calls; those without a trace as the analysis found them."""
    kinds = {module.path: module.kind for module in result.outline.modules} if result.outline else {}
    watched = result.activity.layers if result.activity else ()
    traced = {
        layer.path: AlignedModule(
            layer.path, layer.kind or kinds.get(layer.path, ""), layer.output, layer.calls
        )
        for layer in watched
    }
    untraced = {path: AlignedModule(path, kind) for path, kind in kinds.items() if path not in traced}
    return tuple((traced | untraced).values())


def _compare_modules(pairs: Sequence[Pair], before: Amounts, after: Amounts) -> list[CausePart]:
    """Compare the own amounts of modules; empty if one side has none."""
    if not before or not after:
        return []
    return [_group_part(group, before, after) for group in group_unmatched(pairs)]


def _group_part(group: Sequence[Pair], before: Amounts, after: Amounts) -> CausePart:
    """Sum up a group of modules, under the name of the first."""
    old, new = group[0]
    baseline = _sum_amounts(before.get(one.path, _ZERO) for one, _ in group if one)
    candidate = _sum_amounts(after.get(other.path, _ZERO) for _, other in group if other)
    exact = baseline[1] == baseline[2] and candidate[1] == candidate[2]
    return CausePart(
        scope=(new or old or _WHOLE).path,
        kind=": ".join(filter(None, (_class_change(old, new), _count_new_and_gone(group[1:])))),
        baseline=baseline[0],
        candidate=candidate[0],
        interval=None if exact else Interval(low=candidate[1] - baseline[2], high=candidate[2] - baseline[1]),
        changed=any(_has_changed(*pair) for pair in group),
    )


def _sum_amounts(amounts: Iterable[Amount]) -> Amount:
    """Add up amounts; the interval is the sum of the intervals."""
    value, low, high = (sum(column) for column in zip(_ZERO, *amounts, strict=True))
    return value, low, high


_ZERO: Amount = (0.0, 0.0, 0.0)
_WHOLE = AlignedModule("")


def _has_changed(old: AlignedModule | None, new: AlignedModule | None) -> bool:
    return not old or not new or (old.kind, old.output, old.calls) != (new.kind, new.output, new.calls)


def _class_change(old: AlignedModule | None, new: AlignedModule | None) -> str:
    """Return the class, or `old -> new` if it changed."""
    if old and new and old.kind and new.kind and old.kind != new.kind:
        return f"{old.kind} -> {new.kind}"
    return (new and new.kind) or (old and old.kind) or ""


def _count_new_and_gone(more: Sequence[Pair]) -> str:
    """Count the new and the gone modules of a group."""
    new, gone = sum(new is not None for _, new in more), sum(old is not None for old, _ in more)
    return ", ".join(f"{count} {word}" for count, word in ((new, "new"), (gone, "gone")) if count)


def _own_times(result: Result) -> Amounts:
    """Return the own seconds of each module: the lower quartile of its calls.

    The quartile ignores calls that were held up and processes that were disturbed. A time that the clock does
    not resolve is 0, in an interval up to what it would resolve.
    """
    times: Amounts = {}
    for measurement in result.measurements:
        if measurement.metric == "self_time" and isinstance(measurement.value, Distribution):
            span = measurement.value.interval(_QUARTILE)
            assert span is not None
            seconds, tick = measurement.value.statistic(_QUARTILE), measurement.value.clock_resolution
            times[measurement.scope] = (
                (seconds, span.low, span.high)
                if is_resolved(seconds, tick)
                else (0.0, 0.0, max(span.high, RESOLVED * tick))
            )
    return times


_QUARTILE = "p25"


def _own_counts(result: Result, metric: str) -> Amounts:
    """Subtract from each module's cost the cost of the modules directly inside it."""
    modules = {module.path for module in result.outline.modules} if result.outline else set()
    inclusive = {
        m.scope: float(m.value)
        for m in result.measurements
        if m.metric == metric
        and (m.scope in modules or not m.scope)
        and not isinstance(m.value, Distribution)
    }
    if inclusive.keys() <= {""}:
        return {}
    own = dict(inclusive)
    for path, size in inclusive.items():
        if path and (parent := _nearest_costed(path, modules, inclusive)) is not None:
            own[parent] -= size
    return {path: (size, size, size) for path, size in own.items()}


def _nearest_costed(path: str, modules: set[str], costs: Mapping[str, float]) -> str | None:
    """Return the nearest enclosing module with a known cost."""
    enclosing = path
    while enclosing:
        enclosing = parent_of(enclosing, modules)
        if enclosing in costs:
            return enclosing
    return None


# --- operators, stages, places ------------------------------------------------------------------------


def _compare_ops(baseline: Result, candidate: Result, kind: EventKind) -> list[CausePart]:
    """Compare the total time of each operator or kernel that the clock resolves in both."""
    before, after = (_seconds_by_op(result, kind) for result in (baseline, candidate))
    unresolved = _unresolved_ops(baseline, kind) | _unresolved_ops(candidate, kind)
    parts = _pair_up(before, after, str(kind)) if before and after else []
    return [part for part in parts if part.scope not in unresolved]


def _seconds_by_op(result: Result, kind: EventKind) -> Counter[str]:
    seconds: Counter[str] = Counter()
    for op in result.activity.executed if result.activity else ():
        if op.kind is kind:
            seconds[op.name] += op.device_time if kind is EventKind.KERNEL else op.self_time  # type: ignore[assignment]
    return seconds


def _unresolved_ops(result: Result, kind: EventKind) -> set[str]:
    """Return the operators with calls that take less time than the clock of the trace resolves."""
    trace = result.activity
    return {
        op.name
        for op in (trace.executed if trace else ())
        if op.kind is kind and trace and not is_resolved(op.total_time, op.calls * trace.tick)
    }


def _compare_region_ops(baseline: Result, candidate: Result, query: Query) -> list[CausePart]:
    """Compare the time, or the calls, of each operator of a region; empty for any other metric."""
    if query.metric not in _OF_OPERATORS:
        return []
    amount = _OF_OPERATORS[query.metric]
    before, after = (
        {
            name: sum(map(amount, rows))
            for name, rows in region_operators(result.activity.executed).get(query.scope, {}).items()
        }
        if result.activity
        else {}
        for result in (baseline, candidate)
    )
    return _pair_up(before, after, str(EventKind.OPERATOR)) if before and after else []


_OF_OPERATORS: dict[str, Callable[[ExecutedOp], float]] = {
    "latency": lambda row: row.self_time,
    "operator_calls": lambda row: row.calls,
}
"""Metric of a region to what each operator adds to it."""


def _compare_stages(baseline: Result, candidate: Result, metric: str) -> list[CausePart]:
    before, after = (
        {
            m.scope: float(m.value)
            for m in result.measurements
            if m.metric == metric and m.scope and not isinstance(m.value, Distribution)
        }
        for result in (baseline, candidate)
    )
    return _pair_up(before, after, "stage") if before and after else []


def _pair_up(before: Mapping[str, float], after: Mapping[str, float], kind: str) -> list[CausePart]:
    return [
        CausePart(scope=name, kind=kind, baseline=before.get(name, 0.0), candidate=after.get(name, 0.0))
        for name in {**before, **after}
    ]


def _measured_memory(result: Result) -> Sequence[MemoryItem]:
    return result.activity.held if result.activity else ()


def _predicted_memory(result: Result) -> Sequence[MemoryItem]:
    return result.outline.peak if result.outline else ()


def _without_given(
    held: Callable[[Result], Sequence[MemoryItem]],
) -> Callable[[Result], Sequence[MemoryItem]]:
    """Leave out weights and inputs."""
    return lambda result: [item for item in held(result) if item.role not in _GIVEN_ROLES]


_MEMORY_AT_PEAK: dict[str, Callable[[Result], Sequence[MemoryItem]]] = {
    "process_memory": _measured_memory,
    "device_memory": _measured_memory,
    "allocated_peak": _without_given(_measured_memory),
    "memory_peak": _predicted_memory,
    "activation_peak": _without_given(_predicted_memory),
}
"""Metric to what is in memory at its peak."""


def _compare_memory(
    pairs: Sequence[Pair], before: Sequence[MemoryItem], after: Sequence[MemoryItem]
) -> list[CausePart]:
    """Compare what modules hold in memory, by role; empty if one side is unknown."""
    if not before or not after:
        return []
    new_paths = {old.path: new.path for old, new in pairs if old and new}
    return [
        CausePart(
            scope=change.scope, kind=change.role, baseline=float(change.before), candidate=float(change.after)
        )
        for change in held_changes(before, after, new_paths)
    ]

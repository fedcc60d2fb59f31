"""Operators that ran in a call: the slowest ones, their modules, and redundant copies and waits."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Block, Table, clean, make_table, note
from modeldyno.base.result.trace_data import EventKind, ExecutedOp
from modeldyno.base.stats.units import BYTES, SECONDS, format_quantity
from modeldyno.base.views.text import count, keep_ending, share, shorten_text
from modeldyno.engine.trace.line_times import OUTSIDE
from modeldyno.engine.trace.op_events import WITHIN
from modeldyno.profiling.views.result.module_tree import name_range, pattern
from modeldyno.profiling.views.result.regions import is_region_profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.base.result.result import Result
    from modeldyno.base.result.trace_data import RedundantOp

_COSTLIEST, _WASTES = 8, 8
_NAME, _KIND = 34, 30
_SHOWS = 1.005
"""Slowdown from which on it is reported; below it, noise is larger."""
WHOLE = "(the model itself)"
_OTHERS = {
    EventKind.KERNEL: "Kernels",
    EventKind.TRANSFER: "Transfers",
    EventKind.SYNCHRONISATION: "Waits for a device",
    EventKind.RANGE: "Ranges marked in the model's code",
}

Group = tuple[str, str, list[ExecutedOp]]
"""Module path, operator name, and the rows of that name there."""


_NO_OPERATORS = (
    "none of torch ran here, so --ops has nothing to list: what NumPy, pandas and Python compute is no "
    "operator of torch. If a model should run, look whether the script calls it; the table of lines has the "
    "time of all Python"
)


def operations(result: Result) -> Iterator[Block]:
    """Lay out the operators that the ops probe recorded; nothing without them."""
    executed = result.activity.executed if result.activity else ()
    regions = is_region_profile(result)
    place = "region" if regions else "module"
    if executed:
        yield note(_operators_sentence(result, executed), code="operators")
        operators = [row for row in executed if row.kind is EventKind.OPERATOR]
        yield from _table("Slowest operators", _grouped(operators, lambda _row: ""), full=regions)
        if any(row.scope for row in operators):
            by_place = [_of_region(row) for row in operators] if regions else operators
            yield from _table(f"Slowest operators by {place}", _grouped(by_place, _place), place)
        within = [row for row in operators if WITHIN in row.scope] if regions else []
        yield from _table("Slowest operators by module", _grouped(within, _place), "module")
        for kind, title in _OTHERS.items():
            rows = [row for row in executed if row.kind is kind]
            yield from _table(title, _grouped(rows, _place), place)
        yield from _line_table([_of_region(row) for row in executed if row.kind is EventKind.LINE])
    yield from redundant_ops_blocks(result)
    for artifact in result.artifacts:
        if artifact.name == "trace":
            yield note(f"the trace is in {shorten_text(artifact.path)}; open it at ui.perfetto.dev")


def _line_table(rows: Sequence[ExecutedOp]) -> Iterator[Table]:
    """Tabulate the lines with most wall time of a call, and last what of it is outside operators."""
    if not rows:
        return
    groups = _grouped(rows, lambda row: row.scope)
    wall = {(place, name): sum(row.total_time for row in group) for place, name, group in groups}
    lines = sorted((key for key in wall if key[1] != OUTSIDE), key=lambda key: -wall[key])
    whole = sum(wall[key] for key in lines)
    calls = {(place, name): sum(row.calls for row in group) for place, name, group in groups}
    own = {(place, name): sum(row.self_time for row in group) for place, name, group in groups}
    listed = lines[:_COSTLIEST]
    more = f", {len(listed)} of {len(lines):,}" if len(lines) > len(listed) else ""
    yield make_table(
        f"Wall time by line of code{more}",
        ("region", "line", "calls>", "operators>", "wall time>", "share>"),
        (
            (
                keep_ending(clean(key[0]), _NAME),
                keep_ending(clean(key[1]), _NAME),
                _number(calls[key]) if calls[key] else "—",
                format_quantity(own[key], SECONDS, 3) if calls[key] else "—",
                format_quantity(wall[key], SECONDS, 3),
                share(wall[key], whole),
            )
            for key in (*listed, *(key for key in wall if key[1] == OUTSIDE))
        ),
    )


def _of_region(row: ExecutedOp) -> ExecutedOp:
    """Return the row of a region, whichever module in it ran the operator."""
    return replace(row, scope=row.scope.partition(WITHIN)[0])


def operator_time_clause(result: Result) -> str:
    """Return a clause on the time of the operators of a call, for the verdict."""
    executed = result.activity.executed if result.activity else ()
    if not executed:
        return ""
    runs = count(round(_calls(executed)), "operator")
    return f"spends {format_quantity(_time_of_all(executed), SECONDS, 3)} in {runs} of a call"


def _operators_sentence(result: Result, executed: Sequence[ExecutedOp]) -> str:
    """Describe how many operators a call runs, their time, and the most expensive one."""
    total, on_device = _time_of_all(executed), _device_time(executed) > 0
    if not _calls(executed) and is_region_profile(result):
        return _NO_OPERATORS
    call = "one call of each recorded region" if is_region_profile(result) else "one call"
    text = f"{call} runs {count(round(_calls(executed)), 'operator')}"
    groups = _grouped([row for row in executed if row.kind is EventKind.OPERATOR], lambda _row: "")
    if total:
        place = "on the device" if on_device else "of operator time"
        text += f", which take {format_quantity(total, SECONDS, 3)} {place}"
    if total and groups:
        costs = {name: sum(map(_cost(on_device), rows)) for _, name, rows in groups}
        costliest = max(costs, key=costs.__getitem__)
        text += f"; {shorten_text(costliest, _KIND)} has {share(costs[costliest], total)}"
    ratio = result.number("pass_overhead", "ops")
    if ratio is not None:
        cost = f"slowed the call by {ratio - 1:.0%}" if ratio > _SHOWS else "did not slow the call measurably"
        text += f"; recording them {cost}"
    return text


def _calls(executed: Sequence[ExecutedOp]) -> float:
    return sum(row.calls for row in executed if row.kind is EventKind.OPERATOR)


def _device_time(executed: Sequence[ExecutedOp]) -> float:
    """Sum the device time of kernels and transfers; the operators that launched them have it, too."""
    return sum(row.device_time for row in executed if row.kind in {EventKind.KERNEL, EventKind.TRANSFER})


def _time_of_all(executed: Sequence[ExecutedOp]) -> float:
    own = (row.self_time for row in executed if row.kind is EventKind.OPERATOR)
    return _device_time(executed) or sum(own)


def _cost(on_device: bool) -> Callable[[ExecutedOp], float]:
    return (lambda row: row.device_time) if on_device else (lambda row: row.self_time)


def _place(row: ExecutedOp) -> str:
    return pattern(row.scope)


def _grouped(rows: Sequence[ExecutedOp], place: Callable[[ExecutedOp], str]) -> list[Group]:
    """Group rows by place and name, the most expensive first; modules that differ by number are merged."""
    groups: defaultdict[tuple[str, str], list[ExecutedOp]] = defaultdict(list)
    for row in rows:
        groups[place(row), row.name].append(row)
    named_groups = [
        (name_range([row.scope for row in group]) if place(group[0]) else "", name, group)
        for (_, name), group in groups.items()
    ]
    return sorted(
        named_groups, key=lambda group: -sum(max(row.self_time, row.device_time) for row in group[2])
    )


def _table(
    title: str, groups: Sequence[Group], place: str = "module", *, full: bool = False
) -> Iterator[Table]:
    """Tabulate the slowest groups; in full with the total time and the memory of each."""
    if not groups:
        return
    every = [row for _, _, rows in groups for row in rows]
    device = any(row.device_time for row in every)
    total = sum(map(_cost(device), every))
    titles = (
        f"{place}?", "name", "calls>", "own time>", "device>?", *(("total>", "memory>") if full else ()),
        "share>",
    )  # fmt: skip
    listed = groups[:_COSTLIEST]
    placed = any(place for place, _, _ in groups)
    yield make_table(
        f"{title}{f', {len(listed)} of {len(groups):,}' if len(groups) > len(listed) else ''}",
        titles,
        (_cells(group, total, placed=placed, device=device, full=full) for group in listed),
    )


def _cells(group: Group, total: float, *, placed: bool, device: bool, full: bool) -> tuple[str, ...]:
    place, name, rows = group
    own, on_device = sum(row.self_time for row in rows), sum(row.device_time for row in rows)
    allocated = sum(row.allocated for row in rows)
    whole = format_quantity(sum(row.total_time for row in rows), SECONDS, 3)
    memory = format_quantity(allocated, BYTES, 3) if allocated else "—"
    return (
        (keep_ending(clean(place), _NAME) or WHOLE) if placed else "",
        shorten_text(name, _KIND),
        _number(sum(row.calls for row in rows)),
        format_quantity(own, SECONDS, 3),
        format_quantity(on_device, SECONDS, 3) if device else "",
        *((whole, memory) if full else ()),
        share(on_device if device else own, total),
    )


def _number(value: float) -> str:
    """Format the number of calls per call of the model."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


# --- redundant operations ------------------------------------------------------------------------

_NONE_FOUND = "no unnecessary copies, casts, transfers or waits were found"
_TITLES = {False: "Unnecessary copies and waits", True: "What the code could do without"}
"""Of a model, and of regions of code."""


def redundant_ops_clause(result: Result) -> str:
    """Return a clause on the cost of unnecessary copies, casts, transfers and waits, and the worst place."""
    wastes = result.activity.wastes if result.activity else None
    time = sum(waste.time for waste in wastes or ())
    if not wastes or not time:
        return ""
    costs: defaultdict[tuple[str, str], float] = defaultdict(float)
    for waste in wastes:
        costs[waste.name, pattern(waste.scope)] += waste.time
    name, scope = max(costs, key=costs.__getitem__)
    place = f" in {keep_ending(clean(scope), _NAME)}" if scope else ""
    lead = "" if len(costs) == 1 else "most of it "
    what = (
        "what it could do without takes" if is_region_profile(result) else "unnecessary copies and waits take"
    )
    return f"{what} {format_quantity(time, SECONDS, 3)} of a call, {lead}{shorten_text(name, _KIND)}{place}"


def _runs_nothing(result: Result) -> bool:
    """Whether no operator ran, so that nothing can be said of copies."""
    executed = result.activity.executed if result.activity else ()
    return not any(row.kind is EventKind.OPERATOR for row in executed)


def redundant_ops_blocks(result: Result) -> Iterator[Block]:
    """Lay out the unnecessary copies, casts, transfers and waits."""
    wastes = result.activity.wastes if result.activity else None
    if wastes is None:
        return
    if not wastes:
        if not (is_region_profile(result) and _runs_nothing(result)):
            yield note(_NONE_FOUND)
        return
    groups: defaultdict[tuple[str, ...], list[RedundantOp]] = defaultdict(list)
    for waste in wastes:
        key = (waste.kind, waste.name, pattern(waste.scope), waste.line, pattern(waste.reason))
        groups[key].append(waste)
    rows = sorted(groups.values(), key=lambda group: -sum(waste.time for waste in group))
    total = sum(waste.time for group in rows for waste in group)
    listed = rows[:_WASTES]
    part = f", {len(listed)} of {len(rows):,}" if len(rows) > len(listed) else ""
    yield make_table(
        f"{_TITLES[is_region_profile(result)]}: {format_quantity(total, SECONDS, 3)} of a call{part}",
        ("in", "what", "calls>", "time>", "bytes>", "why"),
        map(_waste_row, listed),
    )


def _waste_row(group: Sequence[RedundantOp]) -> tuple[str, ...]:
    first = group[0]
    return (
        keep_ending(clean(name_range([waste.scope for waste in group])), _NAME) or WHOLE,
        f"{first.kind}, {shorten_text(first.name, _KIND)}",
        _number(sum(waste.calls for waste in group)),
        format_quantity(sum(waste.time for waste in group), SECONDS, 3),
        format_quantity(sum(waste.bytes for waste in group), BYTES, 3),
        shorten_text(f"{first.line}: {first.reason}" if first.line else first.reason),
    )

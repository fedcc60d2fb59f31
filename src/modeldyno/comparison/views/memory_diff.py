"""Compare two memory snapshots at the peak of a call: what was added and removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Block, Notice, make_table, note
from modeldyno.base.stats.units import BYTES, format_quantity
from modeldyno.base.views.text import count, shorten_name
from modeldyno.engine.trace.memory_diff import memory_change
from modeldyno.profiling.views.result.memory import curve, group_held, levels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.result.result import Result
    from modeldyno.engine.trace.memory_diff import HeldChange

_CHANGED = 12

Group = tuple[str, int, int]
"""Name of a group of held memory, its bytes before and after."""


def memory_blocks(baseline: Result, candidate: Result, names: tuple[str, str]) -> Iterator[Block]:
    """Lay out how the memory at the peak differs; nothing if it does not, or if one has no snapshot of it."""
    if not all(result.activity and result.activity.held for result in (baseline, candidate)):
        return
    if any(change.difference for change in memory_change(baseline, candidate).held):
        yield from memory_table_and_curves(baseline, candidate, names)


def memory_table_and_curves(baseline: Result, candidate: Result, names: tuple[str, str]) -> Iterator[Block]:
    """Tabulate the memory at both peaks, and draw it over the time of a call.

    Raises:
        RunFailed: one of the two holds no snapshot of memory.
    """
    total, groups = _groups(baseline, candidate)
    yield make_table(
        "Memory at the measured peak",
        ("what", *(f"{name}>" for name in names), "change>"),
        map(_row, _rows_shown(total, groups)),
    )
    yield from _curve_notices(baseline, candidate, names)


def memory_sentence(baseline: Result, candidate: Result) -> str:
    """Describe the change of the peak and its largest part.

    Raises:
        RunFailed: one of the two holds no snapshot of memory.
    """
    total, groups = _groups(baseline, candidate)
    name = shorten_name(candidate.name) or "The model"
    _, before, after = total
    now, change = format_quantity(after, BYTES, 3), _growth(total)
    if not any(map(_growth, groups)):
        return f"{name} holds the same at its peak as before: {now}."
    if not change:
        return f"{name} holds as much at its peak as before, {now}, but with different contents."
    most = max(groups, key=lambda group: _growth(group) if change > 0 else -_growth(group))
    word = "more" if change > 0 else "less"
    size = f"{_size(abs(change))} {word} at its peak than before, {now} against {_size(before)}"
    return f"{name} holds {size}; most of that is {most[0]} ({_signed(_growth(most))})."


def _groups(baseline: Result, candidate: Result) -> tuple[Group, list[Group]]:
    """Return the whole memory at the peak, and its groups, the largest change first."""
    held = memory_change(baseline, candidate).held
    groups = [(name, *_sums(group)) for name, group in group_held(held)]
    groups.sort(key=lambda group: -abs(_growth(group)))
    return ("total", *_sums(held)), groups


def _sums(held: Sequence[HeldChange]) -> tuple[int, int]:
    return sum(part.before for part in held), sum(part.after for part in held)


def _growth(group: Group) -> int:
    _, before, after = group
    return after - before


def _rows_shown(total: Group, groups: Sequence[Group]) -> Iterator[Group]:
    """Yield the sum, the groups that differ most, and the rest as one."""
    changed = [group for group in groups if _growth(group)]
    alike = [group for group in groups if not _growth(group)]
    yield total
    yield from changed[:_CHANGED]
    if others := changed[_CHANGED:]:
        yield _summed(f"{len(others)} more", others)
    if alike:
        names = alike[0][0] if len(alike) == 1 else count(len(alike), "place")
        yield _summed(f"{names}, unchanged", alike)


def _summed(name: str, groups: Sequence[Group]) -> Group:
    return name, sum(before for _, before, _ in groups), sum(after for _, _, after in groups)


def _row(group: Group) -> tuple[str, ...]:
    name, before, after = group
    word = "" if (before and after) or before == after else " (new)" if after else " (gone)"
    return name, _size(before), _size(after), f"{_signed(after - before)}{word}"


def _size(value: float) -> str:
    return format_quantity(value, BYTES, 3) if value else "—"


def _signed(value: int) -> str:
    return f"{'+' if value > 0 else '-'}{_size(abs(value))}" if value else "none"


# --- memory over time ----------------------------------------------------------------------------


def _curve_notices(baseline: Result, candidate: Result, names: tuple[str, str]) -> Iterator[Notice]:
    """Draw the bytes in use over the time of a call, both runs on one scale."""
    timelines = [result.activity.course if result.activity else None for result in (baseline, candidate)]
    top = max((level for course in timelines if course is not None for level in levels(course)), default=0.0)
    for name, course in zip(names, timelines, strict=True):
        if course is not None and (drawn := curve(course, top)):
            yield note(f"over time, {name}: {drawn}")

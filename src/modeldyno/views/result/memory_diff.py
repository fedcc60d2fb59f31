"""Compare two memory snapshots at the peak of a call: what was added, removed, and how the runs differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.report.blocks import Align, Block, Column, Notice, Severity, Table, clean, shorten
from modeldyno.core.stats.units import BYTES, format_quantity
from modeldyno.core.trace.memory_diff import memory_change
from modeldyno.views.result.memory import curve, group_held, levels
from modeldyno.views.text import NAME_LIMIT, TEXT_LIMIT, count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.core.result.result import Result
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.core.trace.memory_diff import HeldChange

_CHANGED, _VALUE = 12, 30

Group = tuple[str, int, int]
"""Name of a group of held memory, its bytes before and after."""


def memory_diff_blocks(baseline: Result, candidate: Result) -> tuple[Block, ...]:
    """Lay out how the memory at the peak differs.

    Raises:
        RunFailed: one of the two holds no snapshot of memory.
    """
    held = memory_change(baseline, candidate).held
    groups = [(name, *_sums(group)) for name, group in group_held(held)]
    groups.sort(key=lambda group: -abs(_growth(group)))
    whole = ("total", *_sums(held))
    return (
        Notice(severity=Severity.VERDICT, text=_sentence(candidate, whole, groups)),
        *_differences_notice(baseline, candidate),
        Table(
            title="Memory at the measured peak",
            columns=tuple(
                Column(title=title, align=Align.RIGHT if place else Align.LEFT)
                for place, title in enumerate(("what", "before", "after", "change"))
            ),
            rows=tuple(map(_row, _rows_shown(whole, groups))),
        ),
        *_curve_notices(baseline, candidate),
    )


def _sums(held: Sequence[HeldChange]) -> tuple[int, int]:
    return sum(part.before for part in held), sum(part.after for part in held)


def _growth(group: Group) -> int:
    _, before, after = group
    return after - before


def _sentence(candidate: Result, whole: Group, groups: Sequence[Group]) -> str:
    """Describe the change of the peak and its largest part."""
    name = shorten(clean(candidate.name), NAME_LIMIT) or "The model"
    _, before, after = whole
    now, change = format_quantity(after, BYTES, 3), _growth(whole)
    if not any(map(_growth, groups)):
        return f"{name} holds the same at its peak as before: {now}."
    if not change:
        return f"{name} holds as much at its peak as before, {now}, but with different contents."
    most = max(groups, key=lambda group: _growth(group) if change > 0 else -_growth(group))
    word = "more" if change > 0 else "less"
    size = f"{_size(abs(change))} {word} at its peak than before, {now} against {_size(before)}"
    return f"{name} holds {size}; most of that is {most[0]} ({_signed(_growth(most))})."


def _rows_shown(whole: Group, groups: Sequence[Group]) -> Iterator[Group]:
    """Yield the sum, the groups that differ most, and the rest as one."""
    changed = [group for group in groups if _growth(group)]
    alike = [group for group in groups if not _growth(group)]
    yield whole
    yield from changed[:_CHANGED]
    if rest := changed[_CHANGED:]:
        yield _summed(f"{len(rest)} more", rest)
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


# --- other differences between the runs ----------------------------------------------------------


def _differences_notice(baseline: Result, candidate: Result) -> Iterator[Notice]:
    """Name how the two runs differ: model, knobs, inputs, machine."""
    old, new = _facts(baseline), _facts(candidate)
    differences = [
        f"{name} {_value_text(old.get(name))} -> {_value_text(new.get(name))}"
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]
    if differences:
        text = f"other differences: {', '.join(differences)}"
        yield Notice(severity=Severity.NOTE, text=shorten(text, TEXT_LIMIT))


def _facts(result: Result) -> Mapping[str, object]:
    """Return the facts that may affect the memory of a call, by name."""
    job, model = result.job, result.model
    return {
        "model": result.name,
        "content": model.digest.removeprefix("sha256:")[:12] if model else None,
        "mode": str(job.inspection.mode),
        "optimizer": job.inspection.optimizer if result.find("step_time") else None,
        "backend": job.backend,
        **job.config,
        **{spec.name or "input": _shape(spec) for spec in result.inputs},
        **result.environment.hardware,
        **result.environment.software,
    }


def _shape(spec: InputSpec) -> str:
    return f"{'x'.join(map(str, spec.shape or ()))} {spec.dtype}"


def _value_text(value: object) -> str:
    return "none" if value is None else shorten(clean(str(value)), _VALUE)


# --- memory over time ----------------------------------------------------------------------------


def _curve_notices(baseline: Result, candidate: Result) -> Iterator[Notice]:
    """Draw the bytes in use over the time of a call, both runs on one scale."""
    timelines = [result.activity.course if result.activity else None for result in (baseline, candidate)]
    top = max((level for course in timelines if course is not None for level in levels(course)), default=0.0)
    for word, course in zip(("before", "after"), timelines, strict=True):
        if course is not None and (drawn := curve(course, top)):
            yield Notice(severity=Severity.NOTE, text=f"over time, {word}: {drawn}")

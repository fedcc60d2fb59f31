"""Measured memory of a call or training step: peak contents, predicted sizes, time of the stages."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, TypeVar

from modeldyno.base.job.static_options import Mode
from modeldyno.base.report.blocks import Block, Notice, Table, clean, make_table, note, shorten
from modeldyno.base.stats.statistics import unpack_samples
from modeldyno.base.stats.units import BYTES, SECONDS, format_quantity
from modeldyno.base.views.text import (
    count,
    draw_bars,
    explain_mark,
    format_known,
    format_statistic,
    keep_ending,
    marked_median,
    number,
    share,
)
from modeldyno.engine.trace.memory_category import GIVEN, ROOM, Category
from modeldyno.profiling.views.result.module_tree import name_range, pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.base.result.result import Result
    from modeldyno.base.result.trace_data import MemoryTimeline, TraceReport

_STAGES = ("copy", "forward", "backward", "optimizer")
_MEASURED = "measured"
_NAME, _HELD, _WIDE = 38, 6, 32
BEFORE = GIVEN | {Category.OPTIMIZER}
"""Categories that are allocated before a call begins."""


def memory(result: Result) -> Iterator[Block]:
    """Lay out the measured memory and training steps, if there are any."""
    yield from sizes(result)
    if result.activity is not None and result.activity.held:
        yield from _curve_notice(result.activity)
    yield from contents(result)
    yield from allocations(result)


def sizes(result: Result) -> Iterator[Block]:
    """Lay out the numbers: training steps, measured and predicted sizes, the peak."""
    yield from _steps(result)
    yield from _numbers(result)
    if result.activity is not None and result.activity.held:
        yield from _sentence(result, result.activity)


def contents(result: Result) -> Iterator[Table]:
    """Tabulate the contents of memory at the peak."""
    if result.activity is not None and result.activity.held:
        yield _contents(result, result.activity)


def allocations(result: Result) -> Iterator[Table]:
    """Tabulate the largest allocations of a call: what made each, when, and how long it lived."""
    if result.activity is None or not result.activity.allocations:
        return
    yield make_table(
        f"The largest allocations of a {call_or_step(result)}, with the time from its beginning",
        ("module", "operator", "of", "size>", "made>", "freed>", "lived>"),
        (
            (
                shorten(each.scope or "(none)", _NAME),
                shorten(each.operator or "(none)", _NAME),
                shorten(each.category, _NAME),
                format_quantity(each.bytes, BYTES, 3),
                format_quantity(each.made, SECONDS, 3),
                "never" if each.freed is None else format_quantity(each.freed, SECONDS, 3),
                "" if each.freed is None else format_quantity(each.freed - each.made, SECONDS, 3),
            )
            for each in result.activity.allocations
        ),
    )


def training_step_clause(result: Result) -> str:
    """Return a clause on the time of a training step, or on the peak of a call if nothing else is known."""
    step, peak = result.distribution("step_time"), result.number("allocated_peak")
    if peak is not None and not result.find("step_time") and not result.find("parameters"):
        size = format_quantity(peak, BYTES, 3)
        return f"takes {size} at the peak of a call, in addition to weights and inputs"
    if step is None:
        return ""
    optimizer = clean(result.job.inspection.optimizer)
    optimizer_text = "without an optimiser" if optimizer == "none" else f"with {optimizer}"
    about = "about " if step.missing("p50") else ""
    median, span = format_statistic(step, "p50")
    interval = f", 95 % interval {span}" if span and not about else ""
    backend = clean(result.job.backend)
    return f"takes {about}{median} (median{interval}) for a training step {optimizer_text} on {backend}"


def largest_batch_clause(result: Result) -> str:
    """Return a clause on the largest batch, if measured; empty if a training step was timed, too."""
    batch = result.number("largest_batch", _MEASURED)
    if batch is None or result.find("step_time"):
        return ""
    does = "makes training steps" if result.job.inspection.mode is Mode.TRAIN else "runs"
    samples = count(round(batch), "sample")
    limit = _within(result).removeprefix("largest batch")
    return f"{does} with batches of up to {samples}{limit} on {clean(result.job.backend)}"


# --- training ------------------------------------------------------------------------------------


def _steps(result: Result) -> Iterator[Table]:
    """Tabulate the stages of a training step with their time and peak memory."""
    whole = result.distribution("step_time")
    if whole is None:
        return
    stages = {stage: result.distribution("step_time", stage) for stage in ("", *_STAGES)}
    rows = [
        (
            stage or "a whole step",
            *marked_median(times),
            share(times.statistic("p50"), whole.statistic("p50")),
            format_known(result.number("allocated_peak", stage), BYTES),
        )
        for stage, times in stages.items()
        if times is not None
    ]
    beyond = "; peak memory without weights, inputs and optimiser state"
    title = f"A training step{beyond if result.find('allocated_peak') else ''}"
    titles = ("stage", "median>", "95 % interval", "share>", "peak memory>?")
    yield make_table(explain_mark(title, (row[1] for row in rows)), titles, rows)


# --- the numbers ---------------------------------------------------------------------------------


def _numbers(result: Result) -> Iterator[Block]:
    """Tabulate measured against predicted memory."""
    of = call_or_step(result)
    rows = list(_compared(result))
    single = (
        ("reserved but unused by the allocator", "fragmentation"),
        (f"growth per {of}", "memory_growth"),
        ("reserved by the allocator", "allocator_reserved"),
    )
    rows += [
        (name, format_quantity(number(measurement)[0], measurement.row.unit, 3), "", "")
        for name, metric in single
        if (measurement := result.find(metric))
    ]
    if rows and (process := result.distribution("process_memory")):
        most = format_quantity(process.statistic("max"), BYTES, 3)
        rows.append(("whole process, above its baseline", most, "", ""))
    if rows:
        yield make_table(
            f"Memory of a {'training ' if of == 'step' else ''}{of}",
            ("what", "measured>", "predicted>", "ratio>"),
            rows,
        )
    if predicted := _predicted_batch(result):
        room = format_quantity(float(predicted.scope.removeprefix(ROOM)), BYTES, 3)
        yield note(
            f"the largest batch is predicted for {room}, the limit less the process itself, for weights, "
            f"inputs{', state' if of == 'step' else ''} and activations together"
        )


def _predicted_batch(result: Result) -> Measurement | None:
    """Return the predicted largest batch for the memory in which one was searched."""
    batches = (m for m in result.measurements if m.metric == "largest_batch" and m.scope.startswith(ROOM))
    return next((m for m in batches if m.scope.removeprefix(ROOM).isdecimal()), None)


def _compared(result: Result) -> Iterator[tuple[str, str, str, str]]:
    if result.find("allocated_peak"):
        held = result.activity.held if result.activity else ()
        for category, metric in ((Category.WEIGHTS, "weight_bytes"), (Category.INPUTS, "input_bytes")):
            if size := sum(part.bytes for part in held if part.role == category):
                yield _row(str(category), size, result.find(metric))
    for name, metric, scope, predicted in (
        ("at the peak, in addition", "allocated_peak", "", "activation_peak"),
        ("gradients of parameters", "gradient_bytes", _MEASURED, "gradient_bytes"),
        ("optimiser state", "optimizer_bytes", _MEASURED, "optimizer_bytes"),
        (_within(result), "largest_batch", _MEASURED, "largest_batch"),
    ):
        if measurement := result.find(metric, scope):
            prediction = (_predicted_batch(result) if metric == "largest_batch" else None) or result.find(
                predicted
            )
            yield _row(name, number(measurement)[0], prediction, unit=measurement.row.unit)


def _within(result: Result) -> str:
    limit = result.job.inspection.memory or result.job.plan.memory_limit
    return f"largest batch within {format_quantity(limit, BYTES, None)}" if limit else "largest batch"


def _row(
    name: str, measured: float, predicted: Measurement | None, unit: str = BYTES
) -> tuple[str, str, str, str]:
    def as_bytes(value: float) -> str:
        return format_quantity(value, unit, 3) if unit == BYTES else f"{value:,.0f}"

    if predicted is None:
        return name, as_bytes(measured), "—", "—"
    prediction = number(predicted)[0]
    return name, as_bytes(measured), as_bytes(prediction), share(measured, prediction)


# --- the peak ------------------------------------------------------------------------------------


class Holding(Protocol):
    """Memory that one module holds in one role."""

    @property
    def scope(self) -> str:
        """Path of the module."""

    @property
    def role(self) -> str:
        """The category."""


H = TypeVar("H", bound=Holding)


def group_held(held: Iterable[H]) -> list[tuple[str, list[H]]]:
    """Group held memory by module pattern and role; memory allocated before the call by role alone."""
    groups: defaultdict[tuple[str, str], list[H]] = defaultdict(list)
    for part in held:
        apart = part.role in {Category.ACTIVATIONS, Category.WORKSPACE}
        groups[pattern(part.scope) if apart else "", part.role].append(part)
    return [
        (_group_name(clean(name_range([part.scope for part in group])) if place else "", role), group)
        for (place, role), group in groups.items()
    ]


def _groups(activity: TraceReport) -> list[tuple[str, str, int]]:
    """Return the groups of held memory as name, category and bytes, the largest first."""
    groups = [
        (name, group[0].role, sum(part.bytes for part in group)) for name, group in group_held(activity.held)
    ]
    return sorted(groups, key=lambda row: -row[2])


def _group_name(scope: str, role: str) -> str:
    if role in {Category.ACTIVATIONS, Category.WORKSPACE}:
        verb = "output" if role == Category.ACTIVATIONS else "workspace"
        return f"{verb} of {keep_ending(scope, _NAME)}" if scope else f"{verb} outside of any module"
    named: dict[str, str] = {
        Category.GRADIENTS: "gradients of parameters",
        Category.OPTIMIZER: "optimiser state",
    }
    return named.get(role) or clean(role)


def _sentence(result: Result, activity: TraceReport) -> Iterator[Notice]:
    """Describe the largest part of the peak."""
    peak = result.number("allocated_peak")
    made = [group for group in _groups(activity) if group[1] not in BEFORE]
    if not peak or not made:
        return
    name, _, size = made[0]
    total = _added_bytes(made)
    where = f", in {keep_ending(clean(activity.held_in), _NAME)}" if activity.held_in else ""
    yield note(f"at the peak{where}, {share(size, total)} of {format_quantity(peak, BYTES, 3)} is {name}")


def _added_bytes(groups: Iterable[tuple[str, str, int]]) -> int:
    """Sum the bytes that the call itself allocated: the base of all shares."""
    return sum(size for _, role, size in groups if role not in BEFORE)


def call_or_step(result: Result) -> str:
    """Return what the memory belongs to: ``call`` or ``step``."""
    return "step" if result.job.inspection.mode is Mode.TRAIN else "call"


def _contents(result: Result, activity: TraceReport) -> Table:
    groups = _groups(activity)
    total = _added_bytes(groups)

    def row(name: str, few: Sequence[tuple[str, str, int]]) -> tuple[str, str, str]:
        size, own = sum(bytes_ for _, _, bytes_ in few), _added_bytes(few)
        return name, format_quantity(size, BYTES, 3), share(own, total) if own else "—"

    rows = [row(group[0], [group]) for group in groups[:_HELD]]
    if others := groups[_HELD:]:
        rows.append(row(f"{len(others)} more", others))
    where = f", in {keep_ending(clean(activity.held_in), _NAME)}" if activity.held_in else ""
    return make_table(
        f"Memory at the measured peak{where}; shares of what the {call_or_step(result)} itself allocated",
        ("what", "bytes>", "share>"),
        rows,
    )


# --- memory over time ----------------------------------------------------------------------------


def _curve_notice(activity: TraceReport) -> Iterator[Notice]:
    """Draw the bytes that the call allocated over its time."""
    if activity.course is not None and (drawn := curve(activity.course)):
        yield note(f"in use over time: {drawn}")


def levels(course: MemoryTimeline) -> list[float]:
    """Return the bytes in use at each moment, without those allocated before the call."""
    lines = [unpack_samples(line) for name, line in course.levels.items() if name not in BEFORE]
    return [float(sum(column)) for column in zip(*lines, strict=True)]


def curve(course: MemoryTimeline, top: float = 0.0) -> str:
    """Draw memory over time as a sparkline with its peak and duration; empty if there is none.

    `top` is the number of bytes at full height, if more than the peak.
    """
    times, in_use = unpack_samples(course.times), levels(course)
    most, last = max(in_use, default=0.0), float(times[-1]) if len(times) else 0.0
    if not most or not last:
        return ""
    tops, full = [0.0] * _WIDE, max(most, top)
    for time, level, until in zip(times, in_use, (*times[1:], last), strict=True):
        for place in range(_column(time, last), _column(until, last) + 1):
            tops[place] = max(tops[place], level)
    bars, size = draw_bars(tops, 0.0, full), format_quantity(most, BYTES, 3)
    return shorten(f"{bars} up to {size} in {format_quantity(last, SECONDS, 2)}", 78)


def sparkline(values: Sequence[float]) -> str:
    """Draw values one after the other, of many the highest of each stretch; empty if all are 0."""
    columns = min(_WIDE, len(values))
    edges = [place * len(values) // columns for place in range(columns + 1)] if columns else []
    tops = [max(values[begin:end]) for begin, end in pairwise(edges)]
    return draw_bars(tops, 0.0, max(tops)) if any(tops) else ""


def _column(time: float, last: float) -> int:
    return min(_WIDE - 1, int(time / last * _WIDE))

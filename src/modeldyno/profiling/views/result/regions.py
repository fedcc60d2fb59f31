"""Named regions of code: total time, time of one call, and memory of one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Notice, Table, clean, make_table, note
from modeldyno.base.stats.units import BYTES, JOULES, SECONDS, WATTS, format_quantity
from modeldyno.base.views.text import UNCERTIFIED, count, figure, format_known, keep_ending, number, share
from modeldyno.engine.trace import regions as trace_regions
from modeldyno.profiling.views.result.memory import sparkline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.base.result.result import Result

_NAME, _SHORT_NAME = 24, 15
"""Most characters of a region's name, cut from the left; in the table with most columns."""
_SLOW_FIRST = 3.0
"""By how much the first call must exceed the mean of the others for a note."""
_CALL = ("mean", "min", "p50", "p95", "p99", "max")
_MARKS = f"{UNCERTIFIED} marks a percentile with too few independent calls to be certified."
_MEMORY = ("allocated", "freed", "allocated_peak")


def is_region_profile(result: Result) -> bool:
    """Whether a Result is about regions of code."""
    return trace_regions.PROBE in result.job.probes


def region_time_clause(result: Result) -> str:
    """Return a clause on the region with most of the time."""
    own = {m.scope: number(m)[0] for m in _measurements(result, "total_self_time")}
    if not own:
        return "called no code that is marked with profiled"
    total = sum(own.values())
    name = max(own, key=lambda name: own[name])
    parts = count(len(own), "region of code", "regions of code")
    most = f", {share(own[name], total)} of it in {_short_name(name)} itself" if len(own) > 1 else ""
    return f"spent {format_quantity(total, SECONDS, 3)} in {parts}{most}"


def regions(result: Result) -> Iterator[Table | Notice]:
    """Lay out the tables: total time, time of one call, memory of one call."""
    own = _measurements(result, "total_self_time")
    total = sum(number(m)[0] for m in own)
    names = [m.scope for m in own]
    if not names:
        return
    yield make_table(
        "Total time",
        ("region", "calls>", "total>", "self>", "share>"),
        [(_short_name(name), *_in_all(result, name, total)) for name in names],
    )
    yield make_table(
        "Time of one call",
        ("region", "first>", *(f"{name}>" for name in _CALL)),
        [
            (
                _short_name(name, _SHORT_NAME),
                format_known(result.number("first_call", name), SECONDS),
                *_one_call(result, name),
            )
            for name in names
        ],
    )
    yield from _slow_first_call(result, names)
    if any(cell.startswith(UNCERTIFIED) for name in names for cell in _one_call(result, name)):
        yield note(_MARKS)
    if rows := [row for name in names for row in _memory(result, name)]:
        yield make_table("Memory of one call", ("region", "where", "allocated>", "freed>", "peak>"), rows)
    yield from _energy(result, names)


def _energy(result: Result, names: Sequence[str]) -> Iterator[Table | Notice]:
    """Lay out the energy of one call by region and device."""
    rows = []
    for m in _measurements(result, "energy_drawn"):
        name, device = trace_regions.split_region_scope(m.scope)
        total, calls = result.number("total_time", name), result.number("calls", name)
        watts = 0.0 if calls is None or total is None else number(m)[0] * calls / total
        cells = format_quantity(number(m)[0], JOULES, 3), format_quantity(watts, WATTS, 3)
        rows.append((names.index(name), (_short_name(name), clean(device), *cells)))
    if rows:
        table_rows = [row for _, row in sorted(rows)]
        yield make_table("Energy of one call", ("region", "device", "energy>", "power>"), table_rows)
        yield note(
            "Energy and power are those of the whole device, its idle floor and other programs included."
        )


def _in_all(result: Result, name: str, overall: float) -> tuple[str, ...]:
    calls, total, own = (
        result.number(metric, name) or 0.0 for metric in ("calls", "total_time", "total_self_time")
    )
    times = (format_quantity(seconds, SECONDS, 3) for seconds in (total, own))
    return f"{calls:,.0f}", *times, share(own, overall)


def _one_call(result: Result, name: str) -> tuple[str, ...]:
    value = result.distribution("latency", name)
    assert value is not None
    return tuple(
        f"{UNCERTIFIED if value.missing(statistic) else ''}"
        f"{format_quantity(value.statistic(statistic), SECONDS, 3)}"
        for statistic in _CALL
    )


def _slow_first_call(result: Result, names: Sequence[str]) -> Iterator[Notice]:
    """Say what the first call adds to the mean, of the region where that is most."""
    excess = {name: (first, later) for name in names for first, later in _first_and_rest(result, name)}
    if excess:
        name = max(excess, key=lambda name: excess[name][0] - excess[name][1])
        first, later = (format_quantity(seconds, SECONDS, 3) for seconds in excess[name])
        yield note(
            f"the first call of {_short_name(name)} took {first}, the others {later} on average: what it "
            "sets up is in the mean and the maximum, and hardly in the median"
        )


def _first_and_rest(result: Result, name: str) -> Iterator[tuple[float, float]]:
    """Yield the first call and the mean of the others in seconds, if it took much longer than they did."""
    once, latency = result.number("first_call", name), result.distribution("latency", name)
    if once is not None and latency is not None and len(latency) > 1:
        later = (latency.statistic("mean") * len(latency) - once) / (len(latency) - 1)
        if once > _SLOW_FIRST * later > 0:
            yield once, later


def _memory(result: Result, name: str) -> Iterator[tuple[str, ...]]:
    places = (trace_regions.split_region_scope(m.scope) for m in _measurements(result, "allocated"))
    for place in (place for owner, place in places if owner == name):
        scope = trace_regions.region_memory_scope(name, place)
        sizes = (result.number(metric, scope) for metric in _MEMORY)
        texts = (format_known(None if size is None else round(size), BYTES) for size in sizes)
        yield _short_name(name), place, *texts


def _measurements(result: Result, metric: str) -> list[Measurement]:
    return [m for m in result.measurements if m.metric == metric]


def _short_name(name: str, limit: int = _NAME) -> str:
    return keep_ending(clean(name), limit)


# --- a watched block --------------------------------------------------------------------------------


def is_watched_block(result: Result) -> bool:
    """Whether a Result is about a block that was watched."""
    return trace_regions.WATCHED in result.job.probes


def watch_clause(result: Result) -> str:
    """Return a clause on the time, the memory and the processor of the block."""
    total, memory = result.number("total_time"), result.distribution("process_memory")
    cores = figure(result, "cpu_utilization")
    took = "" if total is None else f"took {format_quantity(total, SECONDS, 3)}"
    used = f" on {cores}" if cores else ""
    most = "" if memory is None else format_quantity(memory.statistic("max"), BYTES, 3)
    grew = f" and up to {most} of memory" if most else ""
    return f"{took}{used}{grew}" or "was watched, and nothing was seen"


def memory_course(result: Result) -> Iterator[Notice]:
    """Draw the memory of the process tree above that at the beginning."""
    memory = result.distribution("process_memory")
    if memory is not None and memory.statistic("max"):
        drawn = sparkline([float(size) for size in memory.samples()])
        yield note(f"memory above that at the beginning, over time: {drawn}")

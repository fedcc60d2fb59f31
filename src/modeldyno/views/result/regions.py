"""Named regions of code: total time, time of one call, and memory of one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.metrics.measurement import Distribution, Measurement
from modeldyno.core.report.blocks import Notice, Table, clean, make_columns, note
from modeldyno.core.stats.units import BYTES, JOULES, SECONDS, WATTS, format_quantity
from modeldyno.core.trace import regions as trace_regions
from modeldyno.views.result.memory import sparkline
from modeldyno.views.text import count, format_measurement, keep_ending, number, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.result.result import Result

_NAME, _SHORT_NAME = 24, 15
"""Most characters of a region's name, cut from the left; in the table with most columns."""
_SLOW_FIRST = 3.0
"""By how much the first call must exceed the mean of the others for a note."""
_CALL = ("mean", "min", "p50", "p95", "p99", "max")
_DASHES = "— marks a percentile with too few independent calls to be certified; the JSON output has them all."
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
    parts = count(len(own), "marked region of code", "marked regions of code")
    most = f", {share(own[name], total)} of it in {_short_name(name)} itself" if len(own) > 1 else ""
    return f"spent {format_quantity(total, SECONDS, 3)} in {parts}{most}"


def regions(result: Result) -> Iterator[Table | Notice]:
    """Lay out the tables: total time, time of one call, memory of one call."""
    own = _measurements(result, "total_self_time")
    total = sum(number(m)[0] for m in own)
    names = [m.scope for m in own]
    if not names:
        return
    yield _table(
        "Total time",
        ("region", "calls>", "total>", "self>", "share>"),
        [(_short_name(name), *_in_all(result, name, total)) for name in names],
    )
    yield _table(
        "Time of one call",
        ("region", "first>", *(f"{name}>" for name in _CALL)),
        [
            (_short_name(name, _SHORT_NAME), _first_call(result, name), *_one_call(result, name))
            for name in names
        ],
    )
    yield from _slow_first_call(result, names)
    if any(("—" in _one_call(result, name)) for name in names):
        yield note(_DASHES)
    if rows := [row for name in names for row in _memory(result, name)]:
        yield _table("Memory of one call", ("region", "where", "allocated>", "freed>", "peak>"), rows)
    yield from _energy(result, names)


def _energy(result: Result, names: Sequence[str]) -> Iterator[Table | Notice]:
    """Lay out the energy of one call by region and device."""
    rows = []
    for m in _measurements(result, "energy_drawn"):
        name, device = trace_regions.split_region_scope(m.scope)
        total, calls = result.find("total_time", name), result.find("calls", name)
        watts = number(m)[0] * number(calls)[0] / number(total)[0] if calls and total else 0.0
        cells = format_quantity(number(m)[0], JOULES, 3), format_quantity(watts, WATTS, 3)
        rows.append((names.index(name), (_short_name(name), clean(device), *cells)))
    if rows:
        table_rows = [row for _, row in sorted(rows)]
        yield _table("Energy of one call", ("region", "device", "energy>", "power>"), table_rows)
        yield note(
            "Energy and power are those of the whole device, its idle floor and other programs included."
        )


def _in_all(result: Result, name: str, overall: float) -> tuple[str, ...]:
    calls, total, own = (
        number(measurement)[0] if (measurement := result.find(metric, name)) is not None else 0.0
        for metric in ("calls", "total_time", "total_self_time")
    )
    times = (format_quantity(seconds, SECONDS, 3) for seconds in (total, own))
    return f"{calls:,.0f}", *times, share(own, overall)


def _one_call(result: Result, name: str) -> tuple[str, ...]:
    latency = result.find("latency", name)
    assert latency is not None
    value = latency.value
    assert isinstance(value, Distribution)
    return tuple(
        "—" if value.missing(statistic) else format_quantity(value.statistic(statistic), SECONDS, 3)
        for statistic in _CALL
    )


def _first_call(result: Result, name: str) -> str:
    first = result.find("first_call", name)
    return "—" if first is None else format_quantity(number(first)[0], SECONDS, 3)


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
    first, latency = result.find("first_call", name), result.find("latency", name)
    if first is None or latency is None or not isinstance(latency.value, Distribution):
        return
    calls, once = len(latency.value), number(first)[0]
    if calls > 1:
        later = (latency.value.statistic("mean") * calls - once) / (calls - 1)
        if once > _SLOW_FIRST * later > 0:
            yield once, later


def _memory(result: Result, name: str) -> Iterator[tuple[str, ...]]:
    places = (trace_regions.split_region_scope(m.scope) for m in _measurements(result, "allocated"))
    for place in (place for owner, place in places if owner == name):
        measurements = (
            result.find(metric, trace_regions.region_memory_scope(name, place)) for metric in _MEMORY
        )
        sizes = ("—" if m is None else format_quantity(round(number(m)[0]), BYTES, 3) for m in measurements)
        yield _short_name(name), place, *sizes


def _measurements(result: Result, metric: str) -> list[Measurement]:
    return [m for m in result.measurements if m.metric == metric]


def _short_name(name: str, limit: int = _NAME) -> str:
    return keep_ending(clean(name), limit)


def _table(title: str, titles: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    return Table(title=title, columns=make_columns(*titles), rows=tuple(rows))


# --- a watched block --------------------------------------------------------------------------------


def is_watched_block(result: Result) -> bool:
    """Whether a Result is about a block that was watched."""
    return trace_regions.WATCHED in result.job.probes


def watch_clause(result: Result) -> str:
    """Return a clause on the time, the memory and the processor of the block."""
    total, memory, cores = (
        result.find(metric) for metric in ("total_time", "process_memory", "cpu_utilization")
    )
    took = "" if total is None else f"took {format_quantity(number(total)[0], SECONDS, 3)}"
    used = "" if cores is None else f" on {format_measurement(cores)}"
    grew = ""
    if memory is not None and isinstance(memory.value, Distribution):
        grew = f" and up to {format_quantity(memory.value.statistic('max'), BYTES, 3)} of memory"
    return f"{took}{used}{grew}" or "was watched, and nothing was seen"


def memory_course(result: Result) -> Iterator[Notice]:
    """Draw the memory of the process tree above that at the beginning."""
    memory = result.find("process_memory")
    if memory is not None and isinstance(memory.value, Distribution) and memory.value.statistic("max"):
        drawn = sparkline([float(size) for size in memory.value.samples()])
        yield note(f"memory above that at the beginning, over time: {drawn}")

"""A block of code that was watched: how long it took, its memory over time, and its processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.report.blocks import Notice, Severity
from modeldyno.core.stats.units import BYTES, SECONDS, format_quantity
from modeldyno.core.trace import regions as trace_regions
from modeldyno.views.result.memory import sparkline
from modeldyno.views.text import format_measurement, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.result.result import Result


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
        yield Notice(severity=Severity.NOTE, text=f"memory above that at the beginning, over time: {drawn}")

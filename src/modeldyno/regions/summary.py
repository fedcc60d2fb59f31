"""Turn recorded calls of regions into a Result and into text."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.clock import perf_counter_ns
from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.result.trace_data import EventKind, TraceReport
from modeldyno.engine.environment import machine
from modeldyno.engine.runtime.events import empty_result
from modeldyno.engine.trace import regions as trace_regions
from modeldyno.engine.trace.code_findings import find_in_code
from modeldyno.engine.trace.dataflow import sum_calls, sum_lines
from modeldyno.engine.trace.line_times import OUTSIDE, growing_lines, in_region, line_rows, loader_findings
from modeldyno.engine.trace.op_events import sum_occurrences
from modeldyno.engine.trace.redundant_ops import find_redundant_ops
from modeldyno.profiling import views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modeldyno.base.result.result import Result
    from modeldyno.base.result.trace_data import ExecutedOp, RedundantOp
    from modeldyno.engine.trace.regions import RegionTally
    from modeldyno.regions.operators import RegionOperators

_CALLS = 2001
_LEAST_REPEATS = 8
"""Times that a line of a whole script must have done what it could do without: once is no waste."""


def result_of(
    tallies: Mapping[str, RegionTally],
    *,
    name: str | None,
    slowed: float | None,
    operators: Mapping[str, RegionOperators],
    energy_period: float,
    new_recorder: Callable[[], Any],
) -> Result:
    """Return a Result whose scopes are the regions.

    Args:
        tallies: the recorded calls by region.
        name: name of the Result; by default that of the script.
        slowed: by how much tracemalloc slowed the program down; None if it was off.
        operators: those of the calls that were recorded, by region.
        energy_period: most seconds between two updates of a counter of energy.
        new_recorder: makes a recorder, to measure what recording a call costs.
    """
    recorded = [region for region in operators.values() if region.kept]
    executed = [row for region in recorded for row in sum_occurrences(region.watched())]
    flows = {
        name: region.flow for name, region in operators.items() if region.kept and region.flow is not None
    }
    executed += [row for name, flow in flows.items() if operators[name].whole for row in sum_calls(flow)]
    lines = [
        row for name, region in operators.items() if region.kept for row in _lines(name, region, executed)
    ]
    wastes = [waste for name, region in operators.items() if region.kept for waste in _findings(name, region)]
    any_ran = any(row.kind is EventKind.OPERATOR for row in executed)
    kept = sum(region.kept for region in recorded)
    traced = [trace_regions.operators_doubt(kept)] if recorded and any_ran else []
    return replace(
        empty_result(script_job(trace_regions.PROBE, name)),
        environment=machine.describe_environment(()),
        measurements=(
            *trace_regions.region_measurements(tallies, _clock_properties()),
            *trace_regions.operator_measurements(executed),
        ),
        activity=TraceReport(
            executed=(
                *sorted(executed, key=lambda row: -max(row.self_time, row.device_time)),
                *sorted(lines, key=lambda row: (row.name == OUTSIDE, -row.total_time)),
            ),
            wastes=tuple(sorted(wastes, key=lambda waste: -waste.time)) if flows or wastes else None,
        )
        if executed or lines
        else None,
        doubts=(
            *trace_regions.region_doubts(
                tallies, cost=0.0 if slowed else recording_cost(new_recorder()), slowed=slowed
            ),
            *traced,
            *trace_regions.energy_doubts(tallies, energy_period),
        ),
    )


def _lines(name: str, region: RegionOperators, executed: Sequence[ExecutedOp]) -> tuple[ExecutedOp, ...]:
    """Return the wall time of a call of a region by line, with the time of the operators of each line."""
    busy = sum(
        max(row.self_time, row.device_time)
        for row in executed
        if row.kind is EventKind.OPERATOR and in_region(row, name)
    )
    followed = () if region.flow is None else sum_lines(region.flow)
    return tuple(line_rows(name, region.lines, followed, busy))


def _findings(name: str, region: RegionOperators) -> Iterator[RedundantOp]:
    """Yield what the code of a region could do without."""
    yield from loader_findings(name, region.lines)
    lines = set()
    if region.flow is not None:
        least = _LEAST_REPEATS if region.whole else 1
        needless = (waste for waste in find_redundant_ops(region.flow) if waste.calls >= least)
        for finding in (*needless, *find_in_code(region.flow, whole=region.whole)):
            if finding.line:
                lines.add(finding.line)
                yield finding if finding.scope else replace(finding, scope=name)
    for file, path in region.files.items():
        with suppress(OSError, UnicodeError):
            source = Path(path).read_text(encoding="utf-8")
            grown = growing_lines(name, region.lines, file, source)
            yield from (finding for finding in grown if finding.line not in lines)


def script_job(probe: str, name: str | None) -> Job:
    """Return the Job of a Result about this program's own code."""
    script = Path(sys.argv[0] if sys.argv and sys.argv[0] not in {"", "-c"} else trace_regions.PROMPT)
    return Job(
        model=ModelRef(scheme=trace_regions.SCRIPT, locator=str(script)),
        backend="python",
        probes=(probe,),
        name=name or script.name,
    )


def render_text(result: Result) -> str:
    """Render a Result in 80 columns, without the last block, which describes how a model was measured."""
    return plugins.terminal().text(views.blocks(result)[:-1])


def recording_cost(recorder: Any) -> float:
    """Measure what recording a call costs: the median difference of empty calls, in seconds."""

    def empty_call() -> None:
        """Do nothing."""

    recorded_call = recorder(empty_call)
    recorder.enable()
    return max(0.0, _median_time(recorded_call) - _median_time(empty_call)) * 1e-9


def _median_time(function: object) -> float:
    assert callable(function)
    times = []
    for _ in range(_CALLS):
        begin = perf_counter_ns()
        function()
        times.append(perf_counter_ns() - begin)
    return float(sorted(times)[_CALLS // 2])


def _clock_properties() -> dict[str, float]:
    """Measure the smallest step of the clock and the cost of reading it, in seconds."""
    stamps = [perf_counter_ns() for _ in range(_CALLS)]
    steps = sorted(b - a for a, b in pairwise(stamps))
    smallest = next((step for step in steps if step > 0), 1)
    return {"clock_resolution": smallest * 1e-9, "timer_cost": steps[len(steps) // 2] * 1e-9}

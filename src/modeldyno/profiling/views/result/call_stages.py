"""A call end to end: the time of each stage, from the raw data to what is made of the outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.metric import CALL_SCOPES, END_TO_END
from modeldyno.base.report.blocks import Table, make_table
from modeldyno.base.views.text import about, explain_mark, format_statistic, marked_median, median_text, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.metrics.measurement import Distribution
    from modeldyno.base.result.result import Result


def call_stages(result: Result) -> Iterator[tuple[str, Distribution]]:
    """Yield the scope and the times of each stage of a call in order, and of all of them at last."""
    for scope in CALL_SCOPES:
        times = result.distribution("latency", scope)
        if times is not None:
            yield str(scope), times


def mean_call_stages(result: Result) -> dict[str, float]:
    """Return the mean seconds of each stage of a call; empty if they were not measured."""
    stages = dict(call_stages(result))
    return {scope: times.statistic("mean") for scope, times in stages.items() if scope != END_TO_END}


def end_to_end_clause(result: Result) -> str:
    """Return a clause on the time of a call end to end, and on its longest stage; empty if not measured."""
    end_to_end, means = dict(call_stages(result)).get(END_TO_END), mean_call_stages(result)
    if end_to_end is None or not means:
        return ""
    longest = max(means, key=means.__getitem__)
    part = share(means[longest], end_to_end.statistic("mean"))
    return f"takes {median_text(end_to_end)} (median) end to end, on average {part} of it in {longest}"


def call_stage_table(result: Result) -> Iterator[Table]:
    """Tabulate the stages of a call with their share of its mean time."""
    stages = dict(call_stages(result))
    if END_TO_END not in stages:
        return
    total = stages[END_TO_END].statistic("mean")
    rows = [
        (
            scope,
            *marked_median(times),
            about(times, "p99") if times.certified("p99") is None else format_statistic(times, "p99")[0],
            share(times.statistic("mean"), total),
        )
        for scope, times in stages.items()
    ]
    title = explain_mark(
        "A call end to end: latency@STAGE, and the share of the mean", (row[1] for row in rows)
    )
    yield make_table(title, ("stage", "median>", "95 % interval", "p99>", "share>"), rows)

"""Say in which line of the user's code calls wait that are mostly on no processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.report.blocks import Notice, note
from modeldyno.base.stats.units import SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.result.result import Result

_MOST = 3
"""Most lines that are named."""


def waiting(result: Result) -> Iterator[Notice]:
    """Yield the lines in which calls wait, the longest first; nothing if they compute."""
    times = {
        each.scope: each.value
        for each in result.measurements
        if each.metric == "wait_time" and not isinstance(each.value, Distribution)
    }
    lines = sorted(times, key=times.__getitem__, reverse=True)[:_MOST]
    if lines:
        named = ", ".join(f"{format_quantity(times[line], SECONDS, 3)} in {line}" for line in lines)
        yield note(
            f"of each call {named}; it sleeps there, or waits for a lock, a disk or an answer", code="waiting"
        )

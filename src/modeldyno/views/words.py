"""Words and figures that the views share."""

from __future__ import annotations

from modeldyno.core.measurement import Distribution, Interval, Measurement
from modeldyno.core.result import FailureKind
from modeldyno.core.units import format_estimate, format_quantity

NAME_LIMIT, TEXT_LIMIT, LOG_LINES = 60, 600, 12
"""Characters of a name and of a sentence, and lines of a log, that a report shows."""
KINDS = {
    FailureKind.OOM: "out of memory",
    FailureKind.CRASH: "crash",
    FailureKind.EXIT: "the process ended",
    FailureKind.TIMEOUT: "time-out",
    FailureKind.ERROR: "error",
    FailureKind.INVALID_OUTPUT: "invalid output",
}
"""What went wrong, for people."""
NOISE = {
    "foreign_cpu": "others",
    "steal": "stolen",
    "context_switches": "context switches",
    "preemptions": "preemptions",
}
"""Metrics that are evidence of noise, and no results of the model."""


def estimate(value: float | None, interval: Interval | None, unit: str) -> tuple[str, str]:
    """Show an estimate and its interval; what has no interval gets three digits."""
    if interval is None:
        return "" if value is None else format_quantity(value, unit, 3), ""
    return format_estimate(value, interval.low, interval.high, unit)


def number(found: Measurement) -> tuple[float, Interval | None]:
    """Give the one number of a measurement; the mean stands for a distribution."""
    if isinstance(found.value, Distribution):
        return found.value.statistic("mean"), found.value.interval("mean")
    return found.value, found.interval


def plain(found: Measurement) -> str:
    """Show a measurement without its interval."""
    value, interval = number(found)
    return estimate(value, interval, found.row.unit)[0]


def count(number: int, noun: str, plural: str = "") -> str:
    """Count things by their noun: ``1 call``, ``2,400 calls``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def joined(*parts: str) -> str:
    """List what there is."""
    return ", ".join(filter(None, parts))


def moment(created: str) -> str:
    """Show a time of UTC to the second."""
    return created[:19].replace("T", " ") + " UTC"

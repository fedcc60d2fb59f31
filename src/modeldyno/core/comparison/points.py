"""Changes of a share, which is itself in percent, in percentage points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.stats.units import FRACTION, format_percent

if TYPE_CHECKING:
    from modeldyno.core.comparison.comparison import Change


def in_points(change: Change) -> bool:
    """Return whether a change is shown in points: that of a share with a baseline above 0."""
    return change.query.unit == FRACTION and bool(change.baseline)


def points(ratio: float, change: Change) -> str:
    """Format a relative change of a share in percentage points, without its sign."""
    return format_percent(abs(ratio) * (change.baseline or 0.0)).removesuffix("%")


def signed_points(ratio: float, change: Change) -> str:
    """Format it with its sign."""
    return f"{'+' if ratio > 0 else '-' if ratio else ''}{points(ratio, change)}"


def difference_in_points(change: Change) -> str:
    """Format the difference of a share with its interval: ``-1.0 points (-1.7 to -0.3)``."""
    span = change.interval
    size = f"{signed_points(change.difference or 0.0, change)} points"
    ends = [signed_points(end, change) for end in (span.low, span.high)] if span else []
    return f"{size} ({' to '.join(ends)})" if len(set(ends)) > 1 else size

"""``@profiled`` and ``with profiled("name"):`` for a program's own code; ``modeldyno run`` turns them on."""

from __future__ import annotations

from modeldyno.core.trace.regions import Schedule
from modeldyno.regions.recorder import MOST_REGIONS, OTHERS, Profiled, RegionMark, check_time, profiled

__all__ = ["MOST_REGIONS", "OTHERS", "Profiled", "RegionMark", "Schedule", "check_time", "profiled"]

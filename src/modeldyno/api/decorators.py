"""``@profiled`` and ``with profiled("name"):`` for a program's own code; the command ``run`` has them on."""

from __future__ import annotations

from modeldyno.regions.recorder import MOST_REGIONS, OTHERS, Mark, Profiled, profiled

__all__ = ["MOST_REGIONS", "OTHERS", "Mark", "Profiled", "profiled"]

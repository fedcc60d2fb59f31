"""Profile named regions of a program's own code: marked by `profiled`, recorded call by call.

Frames are open calls, meters measure their memory, the recorder decorates and counts. They import only the
standard library and little of `base`, so that marking functions costs little import time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from modeldyno.engine.trace.memory_diff import MemoryChange as MemoryChange
    from modeldyno.engine.trace.memory_diff import memory_change as memory_change
    from modeldyno.engine.trace.regions import Schedule as Schedule
    from modeldyno.regions.recorder import check_time as check_time
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "engine.trace.regions": "Schedule",
            "engine.trace.memory_diff": "MemoryChange memory_change",
            "regions.recorder": "check_time",
        },
    )

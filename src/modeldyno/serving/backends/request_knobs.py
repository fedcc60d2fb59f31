"""Knobs of how requests are sent, the same for a running server and for one that is started."""

from __future__ import annotations

from modeldyno.base.job.knob import Knob
from modeldyno.engine.interfaces.request_target import COMPRESSIONS
from modeldyno.serving.backends.shared_regions import SHARED_MEMORY, SYSTEM, SYSTEM_BOTH

COMPRESSION_KNOB = Knob(
    name="compression",
    choices=COMPRESSIONS,
    sentence="Compress requests before the load, and accept compressed answers.",
)
SHARED_MEMORY_KNOB = Knob(
    name=SHARED_MEMORY,
    choices=(SYSTEM, SYSTEM_BOTH),
    sentence="Inputs, or outputs as well, in shared memory of this machine.",
)

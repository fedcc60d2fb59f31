"""The stages of a call end to end: what is made of raw data, the model's own part, what is made of outputs.

Each is a scope of the metric ``latency``, and so is their sum: ``latency.p50@preprocess``,
``latency.p99@end_to_end``.
"""

from __future__ import annotations

from enum import StrEnum


class CallStage(StrEnum):
    """A stage of a call, in the order in which they follow each other."""

    PREPROCESS = "preprocess"
    """The user's function makes the inputs."""
    COPY = "copy"
    """The backend takes the inputs over, and copies them to the device."""
    COMPUTE = "compute"
    """The model's own call."""
    COPY_BACK = "copy_back"
    """The outputs become arrays on the host."""
    POSTPROCESS = "postprocess"
    """The user's function takes the outputs."""


END_TO_END = "end_to_end"
"""Scope of the sum of all stages."""
CALL_SCOPES = (*CallStage, END_TO_END)
"""Scopes of the latency that are no models, modules or regions of code."""

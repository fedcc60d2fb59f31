"""The probe ``static``: what a model weighs, without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.measurement import Measurement
from modeldyno.core.weight import tally
from modeldyno.ports import Pass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.plan import Plan
    from modeldyno.ports import Subject

needs = None
pass_ = Pass.SECOND


def measure(subject: Subject, plan: Plan) -> Iterator[Measurement]:
    """Give parameters, buffers, bytes by dtype and the size on disk, as far as they can be known."""
    del plan
    if subject.model.weights is not None:
        yield from tally(subject.model.weights())
    if subject.model.file_bytes is not None:
        yield Measurement(metric="file_bytes", value=subject.model.file_bytes)

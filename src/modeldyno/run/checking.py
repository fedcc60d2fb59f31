"""What is looked at beside the times: whether a probe can be served, and what the model returned."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from modeldyno import outputs
from modeldyno.core.doubt import Doubt
from modeldyno.core.measurement import observed
from modeldyno.core.result import Doubted, Event, Failed, Failure, FailureKind, Found
from modeldyno.errors import RequestError
from modeldyno.ports import CanCall, HasAllocator, Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.job import Job
    from modeldyno.ports import Model, Probe, Subject
    from modeldyno.run.opening import Opened
    from modeldyno.run.stage import Stage

_CHECKING = 1.0
"""Seconds of calls that looking at the outputs may take."""


def checked(opened: Opened, where: str, stage: Stage) -> Iterator[Event]:
    """Look at what every payload gives, as far as a second of calls goes; the first in any case.

    What a server answers under load is looked at by whoever put it there.
    """
    if not isinstance(opened.session, CanCall):
        return
    begin = perf_counter()
    with stage(where):
        for call in opened.calls:
            yield from faults(opened.session, call(), where)
            if perf_counter() - begin > _CHECKING:
                break
    if isinstance(opened.session, HasAllocator):
        yield Found(measurement=observed("allocator_reserved", opened.session.peak_reserved()))


def faults(session: Session, output: Any, where: str) -> list[Event]:
    """Say what is wrong with what a call returned."""
    try:
        arrays = session.arrays(output)
    except ValueError as error:
        if isinstance(session, CanCall):
            raise
        return [Doubted(doubt=replace(_REFUSED, seen=f"{_REFUSED.seen}: {error}"))]
    if not arrays:
        return [Doubted(doubt=_UNCHECKED)]
    return [
        Failed(failure=Failure(where=where, kind=FailureKind.INVALID_OUTPUT, message=message))
        for message in outputs.faults(arrays)
    ]


_REFUSED = Doubt(
    code="failed-requests",
    seen="the very first request was not answered well",
    advice="read the rate of errors beside the latency",
)
_UNCHECKED = Doubt(
    code="unchecked-output",
    seen="what the model returned holds no arrays, so it was not checked for NaN",
    advice="nothing, if it is meant to return nothing",
)


def check_known(model: Model) -> None:
    """Refuse to look at what tells nothing of itself."""
    if model.weights is None and model.graph is None and model.file_bytes is None:
        raise RequestError(
            f"'{model.identity.name}' is code that nothing is known of before it runs; profile it instead."
        )


def check_needs(probes: dict[str, Probe], subject: Subject, job: Job) -> None:
    """Refuse probes that ask for what the session does not have."""
    for name, probe in probes.items():
        if probe.needs is not None and not isinstance(subject.session, probe.needs):
            wanted = (probe.needs.__doc__ or probe.needs.__name__).partition("\n")[0].rstrip(".")
            raise RequestError(
                f"The probe '{name}' needs {wanted[:1].lower()}{wanted[1:]}; the backend '{job.backend}' "
                "gives none."
            )


def forgiven(found: Iterator[Event]) -> Iterator[Event]:
    """Look at a model as far as that goes: what can be measured is measured all the same."""
    try:
        yield from found
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason not to run the model
        yield Doubted(
            doubt=Doubt(
                code="not-analysed",
                seen=str(error) or type(error).__name__,
                advice="nothing, if only times and memory are wanted; else see `modeldyno inspect`",
            )
        )

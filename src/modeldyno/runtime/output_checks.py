"""What is looked at beside the times: whether a probe can be served, and what the model returned."""

from __future__ import annotations

from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import observed
from modeldyno.core.result.result import Doubted, Event, Failed, Failure, FailureKind, Found
from modeldyno.errors import RequestError
from modeldyno.interfaces import CanCall, HasAllocator, Session
from modeldyno.runtime.output_watch import LOOKS, Looks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.spec.job import Job
    from modeldyno.interfaces import Model, Probe, Subject
    from modeldyno.runtime.events import Stage
    from modeldyno.runtime.session_setup import Opened

_CHECKING = 1.0
"""Seconds of calls that looking at the output of each payload once may take."""
_REPEATING = 0.5
"""Seconds after which no payload is looked at again."""


def checked(opened: Opened, where: str, stage: Stage) -> Iterator[Event]:
    """Look at what every payload gives, and then at those again: see `modeldyno.runtime.output_watch`.

    Each is checked once as far as a second of calls goes, the first in any case. What a server answers
    under load is looked at by whoever put it there.
    """
    if not isinstance(opened.session, CanCall):
        return
    looks = Looks(first=dict(opened.looks.first))
    with stage(where):
        try:
            _look(opened, looks)
        except RequestError as error:  # it is too late to refuse what others have measured
            yield _invalid(where, str(error).rstrip("."))
    yield from (_invalid(where, sentence) for sentence in looks.sentences())
    yield from map(_doubted, looks.doubts())
    if looks.calls:
        yield Found(measurement=observed("checked_calls", opened.looks.calls + looks.calls))
    if isinstance(opened.session, HasAllocator):
        yield Found(measurement=observed("allocator_reserved", opened.session.peak_reserved()))


def _look(opened: Opened, looks: Looks) -> None:
    """Call again and again, and look at what comes, until it is enough or takes too long."""
    begin = perf_counter()
    for number in count():
        spent = perf_counter() - begin
        again = number >= len(opened.calls)
        if number and (spent > _CHECKING or (again and (number >= LOOKS or spent > _REPEATING))):
            return
        payload = number % len(opened.calls)
        arrays = opened.session.arrays(opened.calls[payload]())
        if not arrays and again:
            return
        if arrays:
            looks.add(payload, arrays)


def faults(session: Session, output: Any, where: str, looks: Looks) -> list[Event]:
    """Say what is wrong with what the first call returned, and remember it.

    Raises:
        RequestError: it is no output, but something that has yet to be run.
    """
    try:
        arrays = session.arrays(output)
    except ValueError as error:
        if isinstance(session, CanCall):
            raise
        return [Doubted(doubt=first_request_failed(str(error)))]
    if not arrays:
        return [Doubted(doubt=_UNCHECKED)]
    looks.add(0, arrays)
    return [_invalid(where, sentence) for sentence in looks.sentences()]


def _invalid(where: str, message: str) -> Failed:
    return Failed(failure=Failure(where=where, kind=FailureKind.INVALID_OUTPUT, message=message))


def _doubted(doubt: Doubt) -> Doubted:
    return Doubted(doubt=doubt)


def first_request_failed(why: str) -> Doubt:
    """Doubt a server or a client whose first request failed; those of the load may not."""
    return Doubt(
        code="failed-requests",
        seen=f"the very first request was not answered well: {why}",
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

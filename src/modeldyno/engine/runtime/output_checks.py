"""Check what a model returns, and whether a session can serve the probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import perf_counter
from modeldyno.base.errors import ProbeUnsupported, RequestError
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import observed_number
from modeldyno.base.result.result import Event, Failure, FailureKind
from modeldyno.engine.data.batches import Payload
from modeldyno.engine.data.outputs import Sketch, sketch_output
from modeldyno.engine.interfaces.session import LocalSession, Session
from modeldyno.engine.runtime.output_content import (
    MOST_BYTES,
    coarse_output,
    constant_output,
    repeated_rows,
    reverse_rows,
    rows_repeat,
)
from modeldyno.engine.runtime.output_watch import LOOKS, LOOKS_OF_SHORT, OutputChecks, are_alike
from modeldyno.models.interface import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.job import Job
    from modeldyno.engine.interfaces.probe import Probe, ProbeContext
    from modeldyno.engine.runtime.events import RunStage

_FIRST_PASS_TIME = 1.0
"""Seconds of calls for checking the output of each payload once."""
_REPEAT_TIME = 0.5
"""Seconds after which no payload is checked a second time."""
_SHORT_TIME = 0.15
"""The same once the usual number of calls has been checked."""
_COPIES = 4
"""Fresh copies of inputs that tell a model that changes them from a random one, which does so in 0.4 %."""
_UNCHECKED = Doubt(
    code="unchecked-output",
    seen="what the model returned holds no arrays, so it was not checked for NaN",
    advice="nothing, if the model is meant to return nothing",
)


def check_outputs(opened: OpenedModel, where: str, stage: RunStage) -> Iterator[Event]:
    """Check the output of every payload, then repeat: see `modeldyno.engine.runtime.output_watch`.

    Each is checked once within a second of calls, the first in any case. A server's answers under load are
    checked by the load generator.
    """
    if not isinstance(opened.session, LocalSession):
        return
    checks = OutputChecks(first=dict(opened.checks.first))
    with stage(where):
        try:
            _check_repeatedly(opened, checks)
        except RequestError as error:  # too late to refuse: other probes have measured
            yield _invalid_output(where, str(error).rstrip("."))
    yield from (_invalid_output(where, sentence) for sentence in checks.sentences())
    changed = checks.vary and _changes_inputs(opened)
    yield from checks.doubts(changed_inputs=changed)
    yield from _input_doubts(opened, checks)
    if checks.calls:
        yield observed_number("checked_calls", opened.checks.calls + checks.calls)
    if (reserved := opened.session.peak_reserved()) is not None:
        yield observed_number("allocator_reserved", reserved)


def _changes_inputs(opened: OpenedModel) -> bool:
    """Return whether a call changes its inputs in place.

    It does if the inputs of the first call are not what they were, or if each of several fresh copies of them
    gives its output at first and another one when used again.
    """
    before, first, session = opened.first_inputs, opened.checks.first.get(0), opened.session
    if before is None or first is None or not isinstance(session, LocalSession):
        return False
    feed = opened.payload.feeds[0]
    try:
        if not are_alike(before, sketch_output(feed)):
            return True
        for _ in range(_COPIES if feed else 0):
            call = session.prepare(feed)
            fresh, again = (sketch_output(session.arrays(call())) for _ in range(2))
            if not are_alike(first, fresh) or are_alike(first, again):
                return False
    except Exception:  # noqa: BLE001 - whatever the model raises now, it is not known to change inputs
        return False
    return bool(feed)


def _input_doubts(opened: OpenedModel, checks: OutputChecks) -> Iterator[Doubt]:
    """Yield doubts about outputs that do not follow the inputs: all are alike, or their rows repeat."""
    yield from constant_output(opened.payload.feeds, checks.first)
    session = opened.session
    if not isinstance(session, LocalSession) or not opened.payload.feeds:
        return
    feed, output = opened.payload.feeds[0], checks.whole
    try:
        if not session.converted and not _is_narrow(opened.model):
            yield from coarse_output(feed, output)
        if repeated_rows(feed, output):
            moved = session.arrays(session.prepare(reverse_rows(feed))())
            yield from rows_repeat(feed, output, moved)
    except Exception:  # noqa: BLE001 - a model may refuse rows in another order
        return


def _is_narrow(model: Model) -> bool:
    """Return whether weights of a model have fewer bits than float32, so that its outputs may have."""
    return model.weights is not None and any(
        weight.dtype not in {"float32", "float64"} for weight in model.weights() if weight.parameter
    )


def _check_repeatedly(opened: OpenedModel, checks: OutputChecks) -> None:
    """Call repeatedly and check the outputs until there are enough or it takes too long."""
    begin = perf_counter()
    for number in count():
        spent = perf_counter() - begin
        again = number >= len(opened.calls)
        longest = _REPEAT_TIME if number < LOOKS else _SHORT_TIME
        if number and (spent > _FIRST_PASS_TIME or (again and (number >= LOOKS_OF_SHORT or spent > longest))):
            return
        round_, place = divmod(number, len(opened.calls))
        # Backwards every other time: what the call before returned is not that of equal inputs then.
        payload = len(opened.calls) - 1 - place if round_ % 2 else place
        arrays = opened.session.arrays(opened.calls[payload]())
        if not arrays and again:
            return
        if arrays:
            checks.add(payload, arrays)
        if not payload and sum(array.nbytes for array in arrays.values()) <= MOST_BYTES:
            checks.whole = {name: array.copy() for name, array in arrays.items()}


def find_output_faults(session: Session, output: Any, where: str, checks: OutputChecks) -> list[Event]:
    """Check the output of the first call and remember it; return an event for each fault.

    Raises:
        RequestError: the output is lazy, that is, has yet to be computed.
    """
    try:
        arrays = session.arrays(output)
    except ValueError as error:
        if isinstance(session, LocalSession):
            raise
        return [first_request_failed(str(error))]
    if not arrays:
        return [_UNCHECKED]
    checks.add(0, arrays)
    return [_invalid_output(where, sentence) for sentence in checks.sentences()]


def _invalid_output(where: str, message: str) -> Failure:
    return Failure(where=where, kind=FailureKind.INVALID_OUTPUT, message=message)


def first_request_failed(why: str) -> Doubt:
    """Return the doubt for a server or client whose first request failed; those of the load may succeed."""
    return Doubt(
        code="failed-requests",
        seen=f"the first request failed: {why}",
        advice="check the error rate along with the latency",
    )


def check_known(model: Model) -> None:
    """Refuse to inspect a model that has neither weights, a graph nor a file."""
    if model.weights is None and model.graph is None and model.file_bytes is None:
        raise RequestError(
            f"Nothing is known of the code '{model.identity.name}' before it runs; profile it instead."
        )


def check_needs(probes: dict[str, Probe], subject: ProbeContext, job: Job) -> None:
    """Refuse probes that need what the session does not offer."""
    for name, probe in probes.items():
        if probe.needs is not None and not isinstance(subject.session, probe.needs):
            need = (probe.needs.__doc__ or probe.needs.__name__).partition("\n")[0].rstrip(".")
            raise ProbeUnsupported(
                f"The probe '{name}' needs {need[:1].lower()}{need[1:]}; the backend '{job.backend}' "
                "does not offer that.",
                name,
            )


def tolerate_errors(stream: Iterator[Event]) -> Iterator[Event]:
    """Pass on the events of an analysis, turning an error into a doubt so that the model is measured."""
    try:
        yield from stream
    except Exception as error:  # noqa: BLE001 - no failure of the analysis may prevent the measurement
        yield Doubt(
            code="not-analysed",
            seen=str(error) or type(error).__name__,
            advice="nothing, if you need only times and memory; otherwise run `modeldyno inspect`",
        )


@dataclass(slots=True)
class OpenedModel:
    """A model made ready to call."""

    session: Session
    payload: Payload
    calls: tuple[Callable[[], Any], ...]
    model: Model
    """The model, with the input sizes that it accepted."""
    events: list[Event] = field(default_factory=list)
    checks: OutputChecks = field(default_factory=OutputChecks)
    """What the first call returned."""
    first_inputs: Sketch | None = None
    """Its inputs, as they were before it."""
    prompt_tokens: int = -1
    """Tokens of the prompts of the first request, as the server counts them; -1 if unknown."""
    template_tokens: int = 0
    """Tokens that the server adds to each prompt, by which the texts are shorter."""

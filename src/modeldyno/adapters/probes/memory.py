"""The probe ``memory``: what a call or a training step takes from the allocator, and what it holds then."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import observed
from modeldyno.core.result.result import Progressed
from modeldyno.core.spec.static_options import Mode
from modeldyno.core.trace.allocations import Category, blocks, seen
from modeldyno.interfaces import CanCall, CanTrain, HasMemory, Pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.core.metrics.measurement import Measurement
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.result.trace_data import Activity
    from modeldyno.core.trace.allocations import Recorded
    from modeldyno.interfaces import Subject

needs = CanCall
pass_ = Pass.SECOND
CALLS = 8
"""Calls to watch, for what they leave behind; fewer where they take longer than the plan allows."""

_PROCESS_ONLY = Doubt(
    code="process-memory-only",
    seen="this backend does not tell what its allocator does, so nothing is known of single calls",
    advice="read process_memory, which is measured from outside; or run the model by the backend torch",
)


def measure(subject: Subject, plan: Plan) -> Iterator[Measurement | Doubt | Activity]:
    """Watch a few calls, or training steps, of the same payload; tell the peak, its contents and growth."""
    session: object = subject.session  # which has capabilities that its type does not tell
    if subject.inspection.mode is Mode.TRAIN:
        if not isinstance(session, CanTrain):
            yield _PROCESS_ONLY
            return
        with session.training(subject.feeds, subject.inspection.optimizer) as training:
            calls = _watched(training.watched, subject, plan)
        yield from seen(calls)
        yield from _state(calls[-1])
    elif isinstance(session, HasMemory):
        with session.allocations(subject.feeds[0]) as call:
            calls = _watched(call, subject, plan)
        yield from seen(calls)
    else:
        yield _PROCESS_ONLY


def _watched(call: Callable[[], Recorded], subject: Subject, plan: Plan) -> list[Recorded]:
    """Make the calls; one in any case, which takes longer, as the watch is set up."""
    found = [call()]
    begin = perf_counter()
    while len(found) < CALLS and perf_counter() - begin < plan.max_time and not subject.interrupted():
        subject.watch(Progressed(stage="memory", runs=len(found)))
        found.append(call())
    return found


def _state(call: Recorded) -> Iterator[Measurement]:
    """Give what training holds beside activations, as the allocator gave it out."""
    gradients = sum(block.bytes for block in blocks(call) if block.category is Category.GRADIENTS)
    state = sum(held.bytes for held in call.before if held.role == Category.OPTIMIZER)
    yield observed("gradient_bytes", gradients, scope=MEASURED)
    yield observed("optimizer_bytes", state, scope=MEASURED)


MEASURED = "measured"
"""The scope of a number that has been predicted, too."""

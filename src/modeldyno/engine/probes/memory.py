"""The probe ``memory``: peak, contents and growth of allocated memory in a call or training step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.clock import perf_counter
from modeldyno.base.job.static_options import Mode
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import observed_number
from modeldyno.base.result.result import Progressed
from modeldyno.engine.interfaces.probe import Pass
from modeldyno.engine.interfaces.session import CanTrain, HasMemory, LocalSession
from modeldyno.engine.trace.allocations import allocation_measurements, pair_memory_blocks
from modeldyno.engine.trace.memory_category import Category

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.base.result.trace_data import TraceReport
    from modeldyno.engine.interfaces.probe import ProbeContext
    from modeldyno.engine.trace.allocations import AllocationRecord

needs = LocalSession
pass_ = Pass.SECOND
CALLS = 8
"""Calls to record, to see what they leave behind; fewer if they take longer than the plan allows."""

_PROCESS_ONLY = Doubt(
    code="process-memory-only",
    seen="this backend does not report its allocations, so the memory of single calls is unknown",
    advice="read process_memory, which is measured from outside, or run the model with the backend torch",
)


def measure(subject: ProbeContext, plan: Plan) -> Iterator[Measurement | Doubt | TraceReport]:
    """Record a few calls, or training steps, with one payload; yield the peak, its contents and growth."""
    session: object = subject.session  # whose type does not show all of its capabilities
    if subject.inspection.mode is Mode.TRAIN:
        if not isinstance(session, CanTrain):
            yield _PROCESS_ONLY
            return
        with session.training(subject.feeds, subject.inspection.optimizer) as training:
            calls = _record_calls(training.watched, subject, plan)
        yield from allocation_measurements(calls)
        yield from _training_state(calls[-1])
    elif isinstance(session, HasMemory):
        with session.allocations(subject.feeds[0]) as call:
            calls = _record_calls(call, subject, plan)
        yield from allocation_measurements(calls)
    else:
        yield _PROCESS_ONLY


def _record_calls(
    call: Callable[[], AllocationRecord], subject: ProbeContext, plan: Plan
) -> list[AllocationRecord]:
    """Record the calls; at least one, which takes longer, as it sets the recording up."""
    recorded = [call()]
    begin = perf_counter()
    while len(recorded) < CALLS and perf_counter() - begin < plan.max_time and not subject.interrupted():
        subject.watch(Progressed(stage="memory", runs=len(recorded)))
        recorded.append(call())
    return recorded


def _training_state(call: AllocationRecord) -> Iterator[Measurement]:
    """Yield the bytes of gradients and optimiser state, as the allocator reported them."""
    gradients = sum(block.bytes for block in pair_memory_blocks(call) if block.category is Category.GRADIENTS)
    state = sum(held.bytes for held in call.before if held.role == Category.OPTIMIZER)
    yield observed_number("gradient_bytes", gradients, scope=MEASURED)
    yield observed_number("optimizer_bytes", state, scope=MEASURED)


MEASURED = "measured"
"""Scope of measured values of metrics that are also predicted."""

"""The probe ``largest-batch``: the largest batch that runs, in inference or training.

On a device the search runs into the device's out-of-memory error. On the CPU memory is never exhausted: the
peak of each batch is compared with a stated limit, and a batch that would exceed it, extrapolated from the
peaks so far, is not tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

import psutil

from modeldyno.base.clock import perf_counter
from modeldyno.base.errors import RequestError, is_out_of_memory
from modeldyno.base.job.static_options import Mode
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Measurement, observed_number
from modeldyno.base.result.result import Progressed
from modeldyno.base.stats.units import BYTES, format_quantity
from modeldyno.engine.data.batches import build_payloads
from modeldyno.engine.environment import machine
from modeldyno.engine.interfaces.probe import Pass
from modeldyno.engine.interfaces.session import CanTrain, HasMemory
from modeldyno.engine.probes import static
from modeldyno.engine.trace.allocations import find_allocated_peak
from modeldyno.engine.trace.memory_category import ROOM, Category

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.engine.interfaces.probe import ProbeContext
    from modeldyno.engine.trace.allocations import AllocationRecord

needs = HasMemory
pass_ = Pass.SECOND
MOST = 1 << 20
"""Largest batch that is tried."""
MEASURED = "measured"
"""Scope of measured values of metrics that are also predicted."""
_DRAWING_FACTOR = 3
"""Memory for drawing the inputs, as a multiple of their bytes: they are drawn in float64 first."""
_SAFE_SHARE = 0.9
"""Share of the available memory that trials may take on the CPU."""


def measure(subject: ProbeContext, plan: Plan) -> Iterator[Measurement | Doubt]:
    """Double the batch until it does not fit, then search for the largest that does.

    Raises:
        RequestError: there is no memory limit, or the model's batch size cannot be chosen.
    """
    begin = perf_counter()
    trials = BatchTrials(
        run=lambda batch: _total_bytes(
            _record_run(subject, plan, batch),
            limits_process=not (_has_device_memory(subject) or subject.inspection.memory),
        ),
        limit=_memory_limit(subject, plan),
        time_is_up=lambda: subject.interrupted() or perf_counter() - begin >= plan.max_time,
        report=lambda tried: subject.watch(Progressed(stage="largest-batch", runs=tried)),
    )
    fits, fails = search_largest(trials.fit, trials.between, MOST)
    if fits:
        yield observed_number("largest_batch", fits, scope=MEASURED)
        yield from _predicted(subject, plan, trials.limit)
    yield from _search_doubts(trials, fits, fails)


def _predicted(subject: ProbeContext, plan: Plan, limit: float) -> Iterator[Measurement]:
    """Yield the largest batch predicted by static analysis for the same memory, if both are known."""
    if subject.model.graph is None or limit == inf or subject.interrupted():
        return
    room = int(limit)
    static_subject = replace(subject, inspection=replace(subject.inspection, memory=room, modules=False))
    try:
        for entry in static.measure(static_subject, plan):
            if isinstance(entry, Measurement) and (entry.metric, entry.scope) == (
                "largest_batch",
                "",
            ):
                yield replace(entry, scope=f"{ROOM}{room}")
    except Exception:  # noqa: BLE001 - the measurement stands without a prediction
        return


def _search_doubts(trials: BatchTrials, fits: int, fails: int | None) -> Iterator[Doubt]:
    """Yield a doubt if the search did not end between a batch that runs and the next one that does not."""
    if trials.cut:
        yield Doubt(
            code="time-limit",
            seen=f"the search for largest_batch ran out of time: {fits:,} runs, "
            + ("no larger batch was tried" if fails is None else f"{fails:,} does not"),
            advice="give it more time with `max_time`",
        )
    elif not fits:
        yield Doubt(
            code="largest-batch",
            seen=f"not even a batch of 1 runs{_describe_shortage(trials)}",
            advice="raise `memory_limit`, or make the input smaller with `inputs`",
        )
    elif fails is None:
        yield Doubt(
            code="largest-batch",
            seen=f"a batch of {fits:,} runs, and no larger one was tried",
            advice="read it as a lower bound",
        )


def _describe_shortage(trials: BatchTrials) -> str:
    """Describe what a batch of 1 takes and what is available."""
    if 1 not in trials.totals:
        return ": it ran out of memory"
    took, room = (format_quantity(size, BYTES, 3) for size in (trials.totals[1], trials.limit))
    return f": it takes {took}, and {room} is available besides the process itself"


def search_largest(
    fit: Callable[[int], bool | None], between: Callable[[int, int], int], most: int
) -> tuple[int, int | None]:
    """Return the largest size from 1 to `most` that fits, or 0, and the smallest known not to fit, if any.

    Args:
        fit: tells whether a size fits; None if it was not tried and the search shall stop.
        between: chooses the next size between one that fits and one that does not.
        most: the largest size to try.
    """
    good, bad = 0, most + 1
    size = 1
    while bad - good > 1:
        fits = fit(size)
        if fits is None:
            break
        good, bad = (size, bad) if fits else (good, size)
        size = min(2 * good, most) if bad > most else between(good, bad)
    return good, bad if bad <= most else None


@dataclass(slots=True, kw_only=True)
class BatchTrials:
    """The batches tried so far, with their memory."""

    run: Callable[[int], int]
    """Runs a batch and returns the bytes that it took in total."""
    limit: float
    time_is_up: Callable[[], bool]
    report: Callable[[int], None] = field(default=lambda _tried: None)
    totals: dict[int, int] = field(default_factory=dict)
    """Batch size to the bytes that it took."""
    cut: bool = False
    """Whether the time was up before the search ended."""

    def fit(self, batch: int) -> bool | None:
        """Check whether a batch runs within the limit; None if the time is up."""
        if self.totals and self.time_is_up():
            self.cut = True
            return None
        if self.expected(batch) > self.limit:
            return False
        try:
            self.totals[batch] = self.run(batch)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return False
        self.report(len(self.totals))
        return self.totals[batch] <= self.limit

    def expected(self, batch: int) -> float:
        """Extrapolate the bytes of a batch from the two largest smaller ones; 0 if there are none.

        A single one is scaled in proportion, which overestimates: weights do not grow.
        """
        nearest, nearest_bytes, slope = self._line(batch)
        return nearest_bytes + slope * (batch - nearest)

    def between(self, good: int, bad: int) -> int:
        """Return the size at which the extrapolation meets the limit, or the midpoint without a limit."""
        nearest, nearest_bytes, slope = self._line(bad)
        if self.limit == inf or slope <= 0:
            return (good + bad) // 2
        return max(good + 1, min(bad - 1, nearest + int((self.limit - nearest_bytes) / slope)))

    def _line(self, batch: int) -> tuple[int, float, float]:
        """Return the largest smaller batch, its bytes, and the bytes per additional sample."""
        below = sorted(tried for tried in self.totals if tried < batch)[-2:]
        if not below:
            return 0, 0.0, 0.0
        nearest, nearest_bytes = below[-1], self.totals[below[-1]]
        first = below[0]
        if first == nearest:
            return nearest, nearest_bytes, nearest_bytes / nearest
        return nearest, nearest_bytes, (nearest_bytes - self.totals[first]) / (nearest - first)


def _record_run(subject: ProbeContext, plan: Plan, batch: int) -> AllocationRecord:
    """Record the allocations of one call, or one training step, with a batch."""
    session: object = subject.session  # whose type does not show all of its capabilities
    payload = build_payloads(
        subject.model, subject.inputs, batch_size=batch, seed=plan.seed, sizes=subject.sizes
    )
    if subject.inspection.mode is Mode.TRAIN:
        if not isinstance(session, CanTrain):
            raise RequestError("This backend cannot train; use `mode=inference`.")
        with session.training(payload.feeds[:1], subject.inspection.optimizer) as training:
            return training.watched()
    assert isinstance(session, HasMemory)
    with session.allocations(payload.feeds[0]) as call:
        return call()


def _has_device_memory(subject: ProbeContext) -> bool:
    """Check whether the model runs on a device with its own memory, which raises an error when it is full."""
    return subject.session is not None and subject.session.peak_reserved() is not None


def _total_bytes(call: AllocationRecord, *, limits_process: bool) -> int:
    """Sum the bytes of a call at its peak, with weights, inputs and the optimiser's state.

    If the limit is for the process, add the memory for drawing the inputs.
    """
    input_bytes = sum(held.bytes for held in call.before if held.role == Category.INPUTS)
    held = sum(held.bytes for held in call.before)
    return find_allocated_peak(call).bytes + held + (_DRAWING_FACTOR * input_bytes if limits_process else 0)


def _memory_limit(subject: ProbeContext, plan: Plan) -> float:
    """Return the bytes that a batch may take in total; infinity if the device has its own memory."""
    stated = subject.inspection.memory
    if _has_device_memory(subject):
        return stated or inf
    if not (stated or plan.memory_limit):
        raise RequestError(
            "The largest batch on this device needs a limit, so that the machine's memory is "
            "never exhausted; set one, such as `memory_limit=4GiB`."
        )
    process = psutil.Process().memory_info().rss
    available = (plan.memory_limit or _SAFE_SHARE * machine.memory_limit()) * _SAFE_SHARE - process
    if subject.inspection.mode is Mode.INFERENCE:
        available += _weight_bytes(subject)  # which the process already holds
    if available <= 0:
        raise RequestError(
            f"The process takes {format_quantity(process, BYTES, 3)} before any batch; raise `memory_limit`."
        )
    return min(available, stated or available)


def _weight_bytes(subject: ProbeContext) -> int:
    session: object = subject.session
    assert isinstance(session, HasMemory)
    with session.allocations(subject.feeds[0]) as call:
        return sum(held.bytes for held in call().before if held.role == Category.WEIGHTS)

"""The probe ``largest-batch``: the largest batch that runs, in inference or in training.

On a device the device itself says when its memory is spent. On the CPU nothing is ever exhausted: each
batch's peak is measured against a stated limit, and a batch of which the peaks so far say that it would
exceed the limit is not tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

import psutil

from modeldyno import data
from modeldyno.adapters.probes import static
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Measurement, observed
from modeldyno.core.result.result import Progressed
from modeldyno.core.spec.static_options import Mode
from modeldyno.core.stats.units import BYTES, format_quantity
from modeldyno.core.trace.allocations import ROOM, Category, peak
from modeldyno.environment import machine
from modeldyno.errors import RequestError
from modeldyno.interfaces import CanTrain, HasAllocator, HasMemory, Pass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.trace.allocations import Recorded
    from modeldyno.interfaces import Subject

needs = HasMemory
pass_ = Pass.SECOND
MOST = 1 << 20
"""Samples of a batch that is tried at most."""
MEASURED = "measured"
"""The scope of a number that has been predicted, too."""
_SPENT = ("out of memory", "can't allocate memory", "failed to allocate", "bad_alloc")
"""What an error says when memory is spent."""


_DRAWN = 3
"""Times the bytes of the inputs that drawing them takes: numbers are random in float64 first."""
_SAFE = 0.9
"""Share of the memory that there is which trials may take on the CPU."""


def measure(subject: Subject, plan: Plan) -> Iterator[Measurement | Doubt]:
    """Double the batch until it does not run, then close in on the largest that does.

    Raises:
        RequestError: there is no limit to hold it against, or the batch of this model cannot be chosen.
    """
    begin = perf_counter()
    trials = Trials(
        run=lambda batch: _total(_run(subject, plan, batch), within=_within(subject)),
        limit=_limit(subject, plan),
        over=lambda: subject.interrupted() or perf_counter() - begin >= plan.max_time,
        told=lambda tried: subject.watch(Progressed(stage="largest-batch", runs=tried)),
    )
    fits, fails = search(trials.fit, trials.between, MOST)
    if fits:
        yield observed("largest_batch", fits, scope=MEASURED)
        yield from _predicted(subject, plan, trials.limit)
    yield from _open(trials, fits, fails)


def _predicted(subject: Subject, plan: Plan, limit: float) -> Iterator[Measurement]:
    """Give what an analysis says of the same room, where there is one to ask and a room to ask for."""
    if subject.model.graph is None or limit == inf or subject.interrupted():
        return
    room = int(limit)
    asked = replace(subject, inspection=replace(subject.inspection, memory=room, modules=False))
    try:
        for found in static.measure(asked, plan):
            if isinstance(found, Measurement) and (found.metric, found.scope) == ("largest_batch", ""):
                yield replace(found, scope=f"{ROOM}{room}")
    except Exception:  # noqa: BLE001 - what cannot be analysed was measured all the same
        return


def _open(trials: Trials, fits: int, fails: int | None) -> Iterator[Doubt]:
    """Doubt an answer where the search did not end at a batch that runs and a next one that does not."""
    if trials.cut:
        yield Doubt(
            code="time-limit",
            seen=f"largest_batch was searched for until the time was up: {fits:,} runs, "
            + ("more was not tried" if fails is None else f"{fails:,} does not"),
            advice="give it more time with --max-time",
        )
    elif not fits:
        yield Doubt(
            code="largest-batch",
            seen=f"not even a batch of 1 runs{_lacking(trials)}",
            advice="give it more with --memory-limit, or make the input smaller with --input",
        )
    elif fails is None:
        yield Doubt(
            code="largest-batch",
            seen=f"a batch of {fits:,} runs, and no larger one was tried",
            advice="read it as at least so many",
        )


def _lacking(trials: Trials) -> str:
    """Say what a batch of 1 took, and what there was; nothing where it did not get so far."""
    if 1 not in trials.totals:
        return ": memory was spent before its end"
    took, room = (format_quantity(size, BYTES, 3) for size in (trials.totals[1], trials.limit))
    return f": it takes {took}, and there is room for {room} beside the process itself"


def search(
    fit: Callable[[int], bool | None], between: Callable[[int, int], int], most: int
) -> tuple[int, int | None]:
    """Give the largest size from 1 to `most` that fits, or 0, and the smallest known not to, if any.

    Args:
        fit: says whether a size does; None where it was not tried, and no more shall be.
        between: chooses the next one to try, between one that fits and one that does not.
        most: the largest to try.
    """
    good, bad = 0, most + 1
    size = 1
    while bad - good > 1:
        answer = fit(size)
        if answer is None:
            break
        good, bad = (size, bad) if answer else (good, size)
        size = min(2 * good, most) if bad > most else between(good, bad)
    return good, bad if bad <= most else None


@dataclass(slots=True, kw_only=True)
class Trials:
    """Batches that were tried."""

    run: Callable[[int], int]
    """Runs a batch, and gives the bytes that it took in all."""
    limit: float
    over: Callable[[], bool]
    """Whether the time is up."""
    told: Callable[[int], None] = field(default=lambda _tried: None)
    totals: dict[int, int] = field(default_factory=dict)
    """Batch to the bytes that it took."""
    cut: bool = False
    """Whether the time was up before the end."""

    def fit(self, batch: int) -> bool | None:
        """Say whether a batch runs within the limit; None where the time is up."""
        if self.totals and self.over():
            self.cut = True
            return None
        if self.expected(batch) > self.limit:
            return False
        try:
            self.totals[batch] = self.run(batch)
        except Exception as error:
            if not is_spent(error):
                raise
            return False
        self.told(len(self.totals))
        return self.totals[batch] <= self.limit

    def expected(self, batch: int) -> float:
        """Give the bytes that a batch would take, by the two largest before it; nothing before the first.

        One alone is scaled up, which is more than enough: weights do not grow.
        """
        near, there, slope = self._line(batch)
        return there + slope * (batch - near)

    def between(self, good: int, bad: int) -> int:
        """Choose where the line through the two largest meets the limit, or the middle without a limit."""
        near, there, slope = self._line(bad)
        if self.limit == inf or slope <= 0:
            return (good + bad) // 2
        return max(good + 1, min(bad - 1, near + int((self.limit - there) / slope)))

    def _line(self, batch: int) -> tuple[int, float, float]:
        """Give the largest batch below, the bytes that it took, and those of each sample more."""
        below = sorted(tried for tried in self.totals if tried < batch)[-2:]
        if not below:
            return 0, 0.0, 0.0
        near, there = below[-1], self.totals[below[-1]]
        first = below[0]
        return near, there, (there - self.totals[first]) / (near - first) if first < near else there / near


def is_spent(error: Exception) -> bool:
    """Say whether an error tells that memory is spent."""
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _SPENT)


def _run(subject: Subject, plan: Plan, batch: int) -> Recorded:
    """Watch one call, or one training step, of a batch."""
    session: object = subject.session  # which has capabilities that its type does not tell
    payload = data.build(subject.model, subject.inputs, batch_size=batch, seed=plan.seed, sizes=subject.sizes)
    if subject.inspection.mode is Mode.TRAIN:
        if not isinstance(session, CanTrain):
            raise RequestError("The backend cannot train; ask for the largest batch with --mode inference.")
        with session.training(payload.feeds[:1], subject.inspection.optimizer) as training:
            return training.watched()
    assert isinstance(session, HasMemory)
    with session.allocations(payload.feeds[0]) as call:
        return call()


def _has_own(subject: Subject) -> bool:
    """Say whether the model runs on a device with memory of its own, which says itself when it is full."""
    session: object = subject.session
    return isinstance(session, HasAllocator)


def _within(subject: Subject) -> bool:
    """Say whether the limit is one of the whole process, payloads included."""
    return not (_has_own(subject) or subject.inspection.memory)


def _total(call: Recorded, *, within: bool) -> int:
    """Add up what a call held at its peak, with weights, inputs and the optimiser's state.

    Within a limit of the process, what drawing a payload takes counts, too.
    """
    drawn = sum(held.bytes for held in call.before if held.role == Category.INPUTS)
    held = sum(held.bytes for held in call.before)
    return peak(call).bytes + held + (_DRAWN * drawn if within else 0)


def _limit(subject: Subject, plan: Plan) -> float:
    """Give the bytes that a batch may take in all; infinite where a device says itself when it is full."""
    stated = subject.inspection.memory
    if _has_own(subject):
        return stated or inf
    if not (stated or plan.memory_limit):
        raise RequestError(
            "The largest batch on this device is measured against a limit, so that the machine's memory is "
            "never spent; give one with --memory-limit, such as 4GiB."
        )
    process = psutil.Process().memory_info().rss
    room = (plan.memory_limit or _SAFE * machine.memory_limit()) * _SAFE - process
    if subject.inspection.mode is Mode.INFERENCE:
        room += _weights(subject)  # which are in the process already
    if room <= 0:
        raise RequestError(
            f"The process takes {format_quantity(process, BYTES, 3)} before any batch; give it more with "
            "--memory-limit."
        )
    return min(room, stated or room)


def _weights(subject: Subject) -> int:
    session: object = subject.session
    assert isinstance(session, HasMemory)
    with session.allocations(subject.feeds[0]) as call:
        return sum(held.bytes for held in call().before if held.role == Category.WEIGHTS)

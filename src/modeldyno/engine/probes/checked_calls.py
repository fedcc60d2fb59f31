"""Checks some calls of a timed pass: with new inputs, with their outputs read, and what goes on after them.

Of calls of a millisecond and more, the checked ones are samples like any other, and cost nothing but the
reading. Shorter ones are made beside the samples, in at most 3 % of the time; if they look as if answers
repeat, a few more are made to be sure.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Self, cast

from modeldyno.base.clock import perf_counter, perf_counter_ns, sleep, thread_seconds
from modeldyno.base.metrics import call_checks
from modeldyno.base.metrics.call_checks import AfterCalls, NewInputTimes, ReadingTimes
from modeldyno.base.stats.statistics import Samples
from modeldyno.engine.data.new_inputs import new_inputs
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.probes.timing_loop import profiler_work, time_one_call
from modeldyno.models.interface import Feed

if TYPE_CHECKING:
    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.engine.interfaces.session import LocalSession

ROUNDS = 8
"""Rounds of checked calls: a known input, a new one, the same again, and a call whose output is read."""
_FIRST_CHUNK = 3
"""Chunks of plain calls before the first round: the very first calls are slow."""
_COST = 0.03
"""Share of the time that checked calls beside the samples may take."""
_LONG = 1e-3
"""Seconds from which on checked calls are samples, too."""
_SMALL = 2**16
"""Bytes of an output up to which it matters that code is cold; reading more takes longer anyway."""
_MOMENT = 0.1
"""Seconds of a call up to which a pass that ended before its first round makes one, of five calls."""
_PATIENCE = 2.0
"""Seconds that rounds may take where answers look repeated."""
_GAP = 1 / 3
"""Share of plain calls among checked ones, at random: a model may do some work in every n-th call."""
_MOST_BYTES = 64 * 2**20
"""Bytes of all new inputs together."""
_PAUSE = (0.005, 0.05)
"""Least and most seconds of a pause in which threads should be idle."""


@dataclass(slots=True)
class CheckedCalls:
    """The checks of one pass; enter it before the pass, and let `times` draw its samples."""

    subject: ProbeContext
    draw: Callable[[int], Samples]
    """Times plain calls."""
    inputs: list[NewInputTimes] = field(default_factory=list)
    readings: list[ReadingTimes] = field(default_factory=list)
    began: float = 0.0
    spent: float = 0.0
    """Seconds of checked calls beside the samples."""
    chunks: int = 0
    typical: float = 0.0
    """Seconds of a plain call in the last chunk."""
    busy: float = 0.0
    """Processor seconds of other threads in a pause before the pass."""
    collected: float = 0.0
    collecting: float = 0.0
    public: dict[str, float] = field(default_factory=dict)
    """The clocks that the model sees, when the pass began."""
    new: list[tuple[Feed, Callable[[], Any]]] = field(default_factory=list)
    """New inputs and calls with them, alive together so that none gets the address of an earlier one."""
    steps: Iterator[float] = field(default_factory=lambda: iter(()))

    def __enter__(self) -> Self:
        """Make new inputs, and watch the garbage collector and other threads."""
        with profiler_work(self.subject):
            self._prepare_new_inputs()
        self.steps = chain.from_iterable(self._round(number) for number in range(ROUNDS))
        self.busy = _threads_in_pause(_PAUSE[0])
        gc.callbacks.append(self._on_collection)
        self.public = _public_clocks()
        self.began = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching, and give the new inputs up."""
        with suppress(ValueError):
            gc.callbacks.remove(self._on_collection)
        self.steps = iter(())
        self.new.clear()

    def _prepare_new_inputs(self) -> None:
        feeds = self.subject.feeds
        size = max(1, sum(array.nbytes for array in feeds[0].values())) if feeds else 1
        if not feeds or _MOST_BYTES // size < call_checks.ENOUGH:
            return
        session = cast("LocalSession", self.subject.session)
        with suppress(Exception):  # a model may refuse what it was not given by its user
            for feed in new_inputs(feeds, self.subject.drawn, min(ROUNDS, _MOST_BYTES // size)):
                self.new.append((feed, session.prepare(feed)))

    def times(self, n: int) -> Samples:
        """Time n calls as `draw` does; some of them, or some beside them, are checked."""
        self.chunks += 1
        if self.chunks > _FIRST_CHUNK and self.typical >= _LONG:
            return self._among(n)
        samples = self.draw(n)
        self.typical = float(sorted(samples)[len(samples) // 2])
        if self.chunks > _FIRST_CHUNK and self.typical < _LONG:
            self._make_round_if_due()
        return samples

    def _among(self, n: int) -> Samples:
        import numpy as np  # slow to import

        seconds: list[float] = []
        while len(seconds) < n:
            checked = None if random.random() < _GAP else next(self.steps, None)
            seconds.append(float(self.draw(1)[0]) if checked is None else checked)
        return np.array(seconds)

    def _make_round_if_due(self) -> None:
        """Make a round of checked calls if there is time for it."""
        begin = perf_counter()
        if self.spent > _COST * (begin - self.began) and not self._wants_more():
            return
        self._make_round()

    def _finish(self) -> None:
        """Make the rounds that a short pass had no time for: one, if that takes a moment, or those wanted."""
        if not self.readings and self.typical < _MOMENT:
            self._make_round()
        while len(self.readings) < ROUNDS and self._wants_more():
            self._make_round()

    def _make_round(self) -> None:
        begin = perf_counter()
        rounds = len(self.readings)
        while len(self.readings) == rounds and next(self.steps, None) is not None:
            pass
        self.spent += perf_counter() - begin

    def _wants_more(self) -> bool:
        """Return whether what was found needs further rounds to be sure of it, whatever they cost."""
        lazy = call_checks.looks_lazy(self.readable())
        if not lazy and not call_checks.looks_repeated(self.inputs):
            return False
        return self.spent < _PATIENCE or len(self.readings) < call_checks.FEWEST

    def readable(self) -> list[ReadingTimes]:
        """Return the readings of outputs that have values."""
        return [reading for reading in self.readings if reading.size]

    def _round(self, number: int) -> Iterator[float]:
        """Make the checked calls of a round, each when it is asked for; yield their seconds.

        Each follows a call whose output was given up and not read: what the allocator does to it is the same.
        The new input is read before all of them, and not just before its first call: what that reading does
        to the caches would be done to one of those that are compared. A new input that the model refuses is
        no evidence, and ends these checks.
        """
        known = self.subject.calls[number % len(self.subject.calls)]
        feed, new = self.new[number] if number < len(self.new) else ({}, None)
        _read_values(feed)
        plain = _seconds_to_call(known)
        yield plain
        if new is not None:
            try:
                first = _seconds_to_call(new)
                yield first
                of_known = _seconds_to_call(known)
                yield of_known
                again = _seconds_to_call(new)
            except Exception:  # noqa: BLE001 - a model may refuse what it was not given by its user
                self.new.clear()
            else:
                times = NewInputTimes(plain=plain, first=first, known=of_known, again=again)
                self.inputs.append(times)
                yield again
        if self.typical < _LONG and self.readings and self.readings[-1].size <= _SMALL:
            self._read(known)  # the code that reads is cold after many calls that nobody reads
        reading = self._read(known)
        self.readings.append(reading)
        yield reading.call + reading.release

    def _read(self, call: Callable[[], Any]) -> ReadingTimes:
        """Make a call, read its output twice, and release it."""
        seconds, output = time_one_call(call)
        outputs = [output]
        del output
        return _read_and_release(cast("LocalSession", self.subject.session), seconds, outputs)

    def _on_collection(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self.collecting = perf_counter()
        else:
            self.collected += perf_counter() - self.collecting

    def doubts(self, median: float) -> Iterator[Doubt]:
        """Yield what the checks have found, with the seconds of the median call."""
        self._finish()
        now, elapsed = _public_clocks(), perf_counter() - self.began
        for name, begin in self.public.items():
            yield from call_checks.replaced_clock(name, now[name] - begin, elapsed)
        pause = min(max(_PAUSE[0], 2 * median), _PAUSE[1])
        after = AfterCalls(
            call=median,
            elapsed=elapsed,
            collected=self.collected,
            threads=_threads_in_pause(pause) - self.busy,
        )
        yield from call_checks.answers_repeat(self.inputs)
        yield from call_checks.lazy_output(self.readable())
        yield from call_checks.deferred_work(after, self.readable())


def _seconds_to_call(call: Callable[[], Any]) -> float:
    """Time a call, and give its output up: one that is kept makes the next call take fresh memory."""
    begin = perf_counter_ns()
    call()
    return (perf_counter_ns() - begin) * 1e-9


def _read_and_release(session: LocalSession, call: float, outputs: list[Any]) -> ReadingTimes:
    """Read the only output of a list twice, then values that are ready, and release the output."""
    try:
        first, arrays = _seconds_of(lambda: _read_values(session.arrays(outputs[0])))
        again = _seconds_of(lambda: _read_values(session.arrays(outputs[0])))[0]
    except Exception:  # noqa: BLE001 - what is wrong with an output is found by the checks of outputs
        return ReadingTimes(call=call)
    size = sum(array.nbytes for array in arrays.values())
    ready = _seconds_to_read(session, arrays)
    del arrays
    release = _seconds_of(outputs.clear)[0]
    return ReadingTimes(call=call, first=first, again=again, ready=ready, release=release, size=size)


def _seconds_to_read(session: LocalSession, arrays: Feed) -> float:
    """Return the seconds of reading values that are ready as an output is read."""
    try:
        return _seconds_of(lambda: _read_values(session.arrays(arrays)))[0]
    except Exception:  # noqa: BLE001 - a backend that takes only arrays of its own
        return _seconds_of(lambda: _read_values(arrays))[0]


def _seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = perf_counter()
    result = work()
    return perf_counter() - begin, result


def _read_values(arrays: Feed) -> Feed:
    """Read every value, without a copy: its memory would count as the model's. Return the arrays."""
    import numpy as np  # slow to import

    for array in arrays.values():
        if array.dtype.kind != "O":
            np.count_nonzero(array)
    return arrays


def _threads_in_pause(seconds: float) -> float:
    """Return the processor seconds that Python's other threads take while this one pauses."""
    before = thread_seconds()
    sleep(seconds)
    return sum(spent - before.get(thread, 0.0) for thread, spent in thread_seconds().items())


def _public_clocks() -> dict[str, float]:
    """Read the clocks that the code of the model sees."""
    return {"time.perf_counter": time.perf_counter(), "time.monotonic": time.monotonic()}

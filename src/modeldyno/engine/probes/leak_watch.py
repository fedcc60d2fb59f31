"""Watches what calls leave behind, while they are timed one by one: it reads between them, and seldom."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isnan, nan
from time import thread_time
from typing import TYPE_CHECKING

from modeldyno.base.clock import perf_counter, sleep
from modeldyno.base.metrics import leak
from modeldyno.base.metrics.leak import ResourceReading
from modeldyno.base.stats.statistics import Samples
from modeldyno.base.system.process_tree import release_free_memory
from modeldyno.engine.environment.resources import read_resources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.metrics.doubt import Doubt

_SHARE = 0.01
"""Largest share of the time that readings take."""
_BLOCKS = 3
_LONGEST_PAUSE = 2.0
"""Seconds without a call, in which others and our own threads may show that a rise is theirs."""


@dataclass(slots=True, kw_only=True)
class LeakWatch:
    """Readings between calls."""

    draw: Callable[[int], Samples]
    """Makes n plain calls, by which a suspicion is confirmed."""
    calls: int = 0
    due: float = 0.0
    """When the next reading may be made."""
    numbers: array[float] = field(default_factory=lambda: array("d"))
    """Of each reading the calls, then the amounts: objects would be among what is counted."""

    def watched(self, draw: Callable[[int], Samples]) -> Callable[[int], Samples]:
        """Return a function that makes n calls as `draw` does, and reads what there is if that is due."""

        def draw_and_read(n: int) -> Samples:
            times = draw(n)
            self.calls += len(times)
            if perf_counter() >= self.due:
                begin = thread_time()  # not wall time: on a busy machine that is mostly of others
                self._read()
                self.due = perf_counter() + (thread_time() - begin) / _SHARE
            return times

        return draw_and_read

    def doubts(self, warmup: int) -> Iterator[Doubt]:
        """Yield a doubt if calls after the warm-up left something behind; a suspicion costs more calls."""
        self._read()
        suspected = leak.suspected_leaks(self._readings(), warmup)
        if suspected:
            yield from leak.leak_doubts(self._confirmed(suspected))

    def _confirmed(self, suspected: Mapping[str, float]) -> dict[str, float]:
        """Return what leaves as much in blocks of calls, after each of which garbage is collected."""
        length = leak.block_length(suspected, self.calls)
        self._make_block(length)
        begin = perf_counter()
        for _ in range(_BLOCKS):
            self._make_block(length)
        seconds = perf_counter() - begin
        rates = leak.confirmed_leaks(self._readings()[-_BLOCKS - 1 :], suspected)
        if not rates:
            return rates
        pause = min(seconds, _LONGEST_PAUSE)
        self._read_clean()  # without what judging the blocks has left
        sleep(pause)
        self._read_clean()
        return leak.without_others(rates, _BLOCKS * length * pause / seconds, *self._readings()[-2:])

    def _make_block(self, length: int) -> None:
        self.calls += len(self.draw(length))
        self._read_clean()

    def _read_clean(self) -> None:
        """Read what there is once garbage is collected."""
        gc.collect()
        release_free_memory()
        self._read()

    def _read(self) -> None:
        amounts = read_resources()
        self.numbers.extend((float(self.calls), *(amounts.get(name, nan) for name in leak.RESOURCES)))

    def _readings(self) -> list[ResourceReading]:
        width = 1 + len(leak.RESOURCES)
        rows = (self.numbers[start : start + width] for start in range(0, len(self.numbers), width))
        return [
            ResourceReading(
                calls=int(calls),
                amounts={name: n for name, n in zip(leak.RESOURCES, amounts, strict=True) if not isnan(n)},
            )
            for calls, *amounts in rows
        ]

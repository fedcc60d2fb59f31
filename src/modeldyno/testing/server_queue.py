"""The work of the ground-truth server: a queue, workers that really wait, and a ledger of what happened."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, count
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

from modeldyno.core.stats.statistics import load_numpy
from modeldyno.loadgen.kernel_timer import timer
from modeldyno.testing.service_model import Service, moment_of, worked

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_BLOCK = 4096
_BILLION = 1_000_000_000
COLUMNS = ("id", "arrival", "start", "first", "end", "batch", "fault")
"""Of the ledger: int64; times in nanoseconds of the monotonic clock; -1 where there is no id or fault."""


class Alarm:
    """Calls back at moments of the monotonic clock, as finely as there is a timer for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use a timer of this loop."""
        self._calendar: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._timer = timer(loop, self._ring)

    def at(self, moment: int, act: Callable[..., None], *what: Any) -> None:
        """Call `act` with `what` at a moment in nanoseconds."""
        heappush(self._calendar, (moment, next(self._order), act, what))
        if self._calendar[0][0] == moment:
            self._timer.set(moment)

    def _ring(self) -> None:
        while self._calendar and self._calendar[0][0] <= monotonic_ns():
            _, _, act, what = heappop(self._calendar)
            act(*what)
        if self._calendar:
            self._timer.set(self._calendar[0][0])


class Job(Protocol):
    """A request at the server; times in nanoseconds."""

    queued: int
    start: int
    batch: int
    stream: int
    """Nanoseconds that its answer takes after the first piece, during which the worker is busy."""

    def begin(self, first: int) -> None:
        """Be told when the first piece is due."""

    def finish(self) -> None:
        """Be answered."""


@dataclass(slots=True, kw_only=True)
class Workers:
    """Takes requests first come, first served."""

    service: Service
    alarm: Alarm
    seed: int = 0
    epoch: int = 0
    """When the first request came, from which stalls count; 0 before."""
    free: int = 0
    waiting: deque[Job] = field(default_factory=deque)
    durations: Iterator[int] = field(default_factory=lambda: iter(()))

    def __post_init__(self) -> None:
        """Have all workers free and the first times drawn: the first requests are not to wait for that."""
        self.free = self.service.workers
        drawn = self._drawn()
        self.durations = chain((next(drawn),), drawn)

    def _drawn(self) -> Iterator[int]:
        rng = load_numpy().random.default_rng(self.seed)
        while True:
            yield from (self.service.durations.draw(rng, _BLOCK) * _BILLION).astype("int64").tolist()

    def take(self, job: Job) -> bool:
        """Let a request wait for a worker; say whether there is room."""
        limit = self.service.limit
        if limit is not None and not self.free and len(self.waiting) >= limit:
            return False
        job.queued = monotonic_ns()
        self.epoch = self.epoch or job.queued
        self.waiting.append(job)
        self._dispatch()
        return True

    def _dispatch(self) -> None:
        """Begin a call wherever a worker is free and a batch is full, or has waited enough."""
        while self.free and self.waiting:
            now = monotonic_ns()
            if len(self.waiting) < self.service.batch:
                ripe = self.waiting[0].queued + round(self.service.delay * _BILLION)
                if now < ripe:
                    self.alarm.at(ripe, self._dispatch)
                    return
            size = min(len(self.waiting), self.service.batch)
            self._begin([self.waiting.popleft() for _ in range(size)], now)

    def _begin(self, jobs: list[Job], now: int) -> None:
        self.free -= 1
        taken = next(self.durations) + round(self.service.each * _BILLION) * (len(jobs) - 1)
        start, first = self._spent(now, taken)
        last = first
        for job in jobs:
            job.start, job.batch = start, len(jobs)
            job.begin(first)
            last = max(last, first + job.stream)
        if last <= now:
            self._finish(jobs)
        else:
            self.alarm.at(last, self._finish, jobs)

    def _spent(self, now: int, taken: int) -> tuple[int, int]:
        """Give when work begins and when so much of it is done, given the stalls."""
        stalls = self.service.stalls
        if not stalls:
            return now, now + taken
        work = worked(stalls, (now - self.epoch) / _BILLION)
        start, end = (moment_of(stalls, work + more) for more in (0.0, taken / _BILLION))
        return self.epoch + round(start * _BILLION), self.epoch + round(end * _BILLION)

    def _finish(self, jobs: list[Job]) -> None:
        self.free += 1
        for job in jobs:
            job.finish()
        self._dispatch()


@dataclass(slots=True, kw_only=True)
class Ledger:
    """What happened to each request, and the counters that a server shows of it."""

    rows: array[int] = field(default_factory=lambda: array("q"))
    """One after the other, each with COLUMNS."""
    count: int = 0
    failed: int = 0
    nanoseconds: Counter[str] = field(default_factory=Counter)
    """Stage to its sum over the requests that were answered well."""
    batches: Counter[int] = field(default_factory=Counter)
    """Size to the number of requests in batches of that size."""
    batch_nanoseconds: Counter[int] = field(default_factory=Counter)
    """Size to the time of their calls."""

    def statistics(self, model: str) -> dict[str, Any]:
        """Write the counters as Triton does."""

        def both(stage: str) -> dict[str, int]:
            return {"count": self.count, "ns": self.nanoseconds[stage]}

        stages = ("success", "queue", "compute_input", "compute_infer", "compute_output")
        none = {"count": 0, "ns": 0}
        inference = {stage: both(stage) for stage in stages} | {
            "fail": {"count": self.failed, "ns": 0}, "cache_hit": none, "cache_miss": none,
        }  # fmt: skip
        batches = [
            {
                "batch_size": size,
                "compute_input": {"count": requests // size, "ns": 0},
                "compute_infer": {"count": requests // size, "ns": self.batch_nanoseconds[size] // size},
                "compute_output": {"count": requests // size, "ns": 0},
            }
            for size, requests in sorted(self.batches.items())
        ]
        return {
            "name": model,
            "version": "1",
            "last_inference": 0,
            "inference_count": self.count,
            "execution_count": sum(requests // size for size, requests in self.batches.items()),
            "inference_stats": inference,
            "batch_stats": batches,
        }

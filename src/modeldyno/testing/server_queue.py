"""The work of the ground-truth server: a queue, workers that take real time, and a ledger of requests."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Protocol

from modeldyno.base.clock import monotonic_ns
from modeldyno.base.stats.statistics import load_numpy
from modeldyno.serving.loadgen.kernel_timer import make_timer
from modeldyno.testing.service_model import Service, moment_of, work_done_by

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_BLOCK = 4096
_NANOSECONDS = 1_000_000_000
COLUMNS = ("id", "arrival", "start", "first", "end", "batch", "fault")
"""Columns of the ledger: int64; times in ns of the monotonic clock; -1 where there is no id or fault."""


class Alarm:
    """Calls functions at moments of the monotonic clock, as precisely as the timer allows."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Create a timer on the event loop."""
        self._calendar: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._timer = make_timer(loop, self._run_due)

    def at(self, moment: int, act: Callable[..., None], *what: Any) -> None:
        """Call `act` with the arguments `what` at a moment in nanoseconds."""
        heappush(self._calendar, (moment, next(self._order), act, what))
        if self._calendar[0][0] == moment:
            self._timer.set(moment)

    def _run_due(self) -> None:
        while self._calendar and self._calendar[0][0] <= monotonic_ns():
            _, _, act, what = heappop(self._calendar)
            act(*what)
        if self._calendar:
            self._timer.set(self._calendar[0][0])


class QueuedRequest(Protocol):
    """A request at the server; times in nanoseconds."""

    arrival: int
    queued: int
    start: int
    batch: int
    stream: int
    """Nanoseconds of its answer after the first piece, during which the worker is busy."""

    def begin(self, first: int) -> None:
        """Note when the first piece is due."""

    def finish(self) -> None:
        """Send the answer."""


@dataclass(slots=True, kw_only=True)
class Workers:
    """Serves requests first come, first served."""

    service: Service
    alarm: Alarm
    seed: int = 0
    epoch: int = 0
    """Time of the first request, from which stalls count; 0 before."""
    free: int = 0
    waiting: deque[QueuedRequest] = field(default_factory=deque)
    durations: Iterator[int] = field(default_factory=lambda: iter(()))

    def __post_init__(self) -> None:
        """Mark all workers free and draw the first times, so that the first requests do not wait for it."""
        self.free = self.service.workers
        durations = self._draw_durations()
        self.durations = chain((next(durations),), durations)

    def _draw_durations(self) -> Iterator[int]:
        rng = load_numpy().random.default_rng(self.seed)
        while True:
            yield from (self.service.durations.draw(rng, _BLOCK) * _NANOSECONDS).astype("int64").tolist()

    def take(self, job: QueuedRequest) -> bool:
        """Queue a request; return whether there is room."""
        limit = self.service.limit
        if limit is not None and not self.free and len(self.waiting) >= limit:
            return False
        job.queued = monotonic_ns()
        self.epoch = self.epoch or job.queued
        self.waiting.append(job)
        self._dispatch()
        return True

    def _dispatch(self) -> None:
        """Start a call whenever a worker is free and a batch is full or has waited long enough."""
        while self.free and self.waiting:
            now = monotonic_ns()
            if len(self.waiting) < self.service.batch:
                due = self.waiting[0].queued + round(self.service.delay * _NANOSECONDS)
                if now < due:
                    self.alarm.at(due, self._dispatch)
                    return
            size = min(len(self.waiting), self.service.batch)
            self._begin([self.waiting.popleft() for _ in range(size)], now)

    def _begin(self, jobs: list[QueuedRequest], now: int) -> None:
        self.free -= 1
        duration = next(self.durations) + round(self.service.each * _NANOSECONDS) * (len(jobs) - 1)
        start, first = self._start_and_end(now, duration)
        last = first
        for job in jobs:
            job.start, job.batch = start, len(jobs)
            job.begin(first)
            last = max(last, first + job.stream)
        if last <= now:
            self._finish(jobs)
        else:
            self.alarm.at(last, self._finish, jobs)

    def _start_and_end(self, now: int, duration: int) -> tuple[int, int]:
        """Return when work begins and when it is done, given the stalls."""
        stalls = self.service.stalls
        if not stalls:
            return now, now + duration
        work = work_done_by(stalls, (now - self.epoch) / _NANOSECONDS)
        start, end = (moment_of(stalls, work + more) for more in (0.0, duration / _NANOSECONDS))
        return self.epoch + round(start * _NANOSECONDS), self.epoch + round(end * _NANOSECONDS)

    def _finish(self, jobs: list[QueuedRequest]) -> None:
        self.free += 1
        for job in jobs:
            job.finish()
        self._dispatch()


@dataclass(slots=True, kw_only=True)
class Ledger:
    """What happened to each request, and the server's counters."""

    rows: array[int] = field(default_factory=lambda: array("q"))
    """Rows of COLUMNS, one after another."""
    count: int = 0
    failed: int = 0
    nanoseconds: Counter[str] = field(default_factory=Counter)
    """Stage to its total over the successful requests."""
    batches: Counter[int] = field(default_factory=Counter)
    """Size to the number of requests in batches of that size."""
    batch_nanoseconds: Counter[int] = field(default_factory=Counter)
    """Size to the time of their calls."""

    def count_call(self, call: QueuedRequest, worked: int, end: int) -> None:
        """Count a successful request whose work was done at ``worked`` and that was answered at ``end``."""
        self.count += 1
        self.batches[call.batch] += 1
        self.batch_nanoseconds[call.batch] += worked - call.start
        sums = self.nanoseconds
        sums["success"] += end - call.arrival
        sums["compute_input"] += call.queued - call.arrival
        sums["queue"] += call.start - call.queued
        sums["compute_infer"] += worked - call.start
        sums["compute_output"] += end - worked

    def count_phases(self, start: int, first: int, worked: int) -> None:
        """Count the time of a generated text up to its first piece, and from there to its last."""
        self.nanoseconds["prefill"] += first - start
        self.nanoseconds["decode"] += worked - first

    def statistics(self, model: str) -> dict[str, Any]:
        """Return the counters in Triton's format."""

        def counter(stage: str) -> dict[str, int]:
            return {"count": self.count, "ns": self.nanoseconds[stage]}

        stages = ("success", "queue", "compute_input", "compute_infer", "compute_output")
        none = {"count": 0, "ns": 0}
        inference = {stage: counter(stage) for stage in stages} | {
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

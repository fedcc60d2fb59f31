"""Simulate a server under load in virtual time, producing the records of a load generator.

A plain queue is computed directly, a million requests per second; batches, limits and timeouts use an event
calendar, about a hundred thousand per second. Both draw the same times from the same seed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.stats.statistics import load_numpy
from modeldyno.serving.load.request_log import COLUMNS, Column, Records
from modeldyno.testing.service_model import Service, moment_of, work_done_by

_EPOCH = 1_000_000_000_000
"""Nanoseconds of the clock at which the load begins, so that no time is 0."""
_BLOCK = 4096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Served:
    """Records of a load, and when the server began each request."""

    records: Records
    start: Column
    """int64, nanoseconds of the same clock: when its call began; equal to `end` if it had no call."""
    batch: Column
    """int32: requests in its call; 0 if it had no call."""

    @property
    def queue(self) -> Column:
        """Seconds that each request waited at the server."""
        seconds: Column = (self.start - self.records.sent) * 1e-9
        return seconds

    @property
    def service(self) -> Column:
        """Seconds that each request was being served."""
        seconds: Column = (self.records.end - self.start) * 1e-9
        return seconds


def simulate(service: Service, load: Load, *, seed: int = 0, requests: int | None = None) -> Served:
    """Put a server under a load until all requests have ended.

    Args:
        service: the server.
        load: ends after its `requests` or `duration` (of the due times); retries and drivers are ignored
            here.
        seed: seed of all random numbers.
        requests: replaces the load's number of requests.
    """
    np = load_numpy()
    arrivals, services = (np.random.default_rng([seed, part]) for part in (0, 1))
    limit = requests or load.requests
    if limit is None and load.duration is None:
        raise RequestError("A simulated load needs a number of requests or a duration.")
    plain = service.limit is None and service.batch == 1
    if load.closed:
        simple = _closed_loop(service, load, services, limit) if plain and not service.stalls else None
        if simple is not None:
            return simple
        services = np.random.default_rng([seed, 1])
        return _to_records(*_EventSimulation(service=service, load=load, rng=services).closed(limit))
    due = due_times(load, arrivals, limit)
    if load.concurrency or not plain:
        return _to_records(*_EventSimulation(service=service, load=load, rng=services).open(due))
    work = work_done_by(service.stalls, due)
    began, done = _queue(work, service.durations.draw(services, due.size), service.workers)
    start, end = moment_of(service.stalls, began), moment_of(service.stalls, done)
    late = end - due > load.timeout
    return _to_records(
        due, due, start, np.where(late, due + load.timeout, end), np.ones(due.size),
        np.where(late, RequestOutcome.TIMEOUT, RequestOutcome.OK),
    )  # fmt: skip


def in_lock_step(
    slots: int, takes: float, seconds: float, *, jitter: float = 0.0, tokens: int = -1, seed: int = 0
) -> Records:
    """Return the records of a closed loop whose slots are all answered at the same times, as of one batch.

    Args:
        slots: requests in flight.
        takes: seconds that an answer takes, on average.
        seconds: for at least so long, and until a window that ends then is drained.
        jitter: standard deviation of the time of a cycle, as a share of it.
        tokens: of each answer; -1 if they are not counted.
        seed: seed of the jitter.
    """
    np = load_numpy()
    cycles = int(seconds / takes) + 6
    lengths = takes * (1 + jitter * np.random.default_rng(seed).standard_normal(cycles))
    ends = np.repeat(np.rint(np.cumsum(lengths) * 1e9).astype(np.int64) + _EPOCH, slots)
    dues = np.concatenate([np.full(slots, _EPOCH), ends[:-slots]])
    columns = {name: np.zeros(ends.size, dtype) for name, dtype in COLUMNS.items()}
    columns |= {"due": dues, "sent": dues, "first": ends, "end": ends}
    columns["tokens"] = np.full(ends.size, tokens, np.int32)
    columns["message"] = (np.arange(ends.size) % slots).astype(np.int32)
    return Records(**columns)


# -- arrivals -----------------------------------------------------------------------------------------


def due_times(load: Load, rng: Any, requests: int | None) -> Column:
    """Return the due times in seconds of an open load: the given number, within its duration."""
    np = load_numpy()
    rate = load.rate or 0.0
    if not rate:
        raise RequestError(f"{load} cannot be simulated: it has no rate.")
    n = requests
    if n is None:
        expected = rate * (load.duration or 0.0)
        n = int(expected + 10 * expected**0.5 + 10)
    if load.arrivals is Arrivals.POISSON:
        passed = np.cumsum(rng.exponential(1.0, n))
    else:
        passed = np.arange(n) // load.burst * float(load.burst)
    due = _ramped(passed, rate, load.ramp)
    return due if load.duration is None else due[due < load.duration]


def _ramped(passed: Column, rate: float, ramp: float) -> Column:
    """Return when each request is due, with the rate growing linearly from 0 during the ramp."""
    np = load_numpy()
    growing = np.sqrt(2 * ramp * passed / rate)
    due: Column = np.where(growing < ramp, growing, ramp / 2 + passed / rate)
    return due


# -- a plain queue ------------------------------------------------------------------------------------


def _queue(arrivals: Column, durations: Column, workers: int) -> tuple[Column, Column]:
    """Return when each request begins and is done, first come, first served."""
    np = load_numpy()
    if workers == 1:
        total = np.cumsum(durations)
        done = total + np.maximum.accumulate(arrivals - total + durations)
        return done - durations, done
    free = [0.0] * workers
    done = np.empty_like(arrivals)
    for index, (arrival, duration) in enumerate(zip(arrivals.tolist(), durations.tolist(), strict=True)):
        done[index] = leave = max(arrival, free[0]) + duration
        heapreplace(free, leave)
    return done - durations, done


def _closed_loop(service: Service, load: Load, rng: Any, requests: int | None) -> Served | None:
    """Simulate a closed loop without stalls; None if a client would have timed out."""
    np = load_numpy()
    slots = load.slots or 1
    next_due = [slot * load.ramp / slots for slot in range(slots)]  # when each slot is free
    free = [0.0] * service.workers
    last = load.duration or float("inf")
    due: list[float] = []
    end: list[float] = []
    times: list[float] = []
    drawn: list[float] = []
    for index in range(requests) if requests is not None else count():
        if index % _BLOCK == 0:
            drawn = service.durations.draw(rng, _BLOCK).tolist()
        arrival = next_due[0]
        if arrival >= last:
            break
        leave = max(arrival, free[0]) + drawn[index % _BLOCK]
        heapreplace(free, leave)
        heapreplace(next_due, leave)
        due.append(arrival)
        end.append(leave)
        times.append(drawn[index % _BLOCK])
    since, until = np.asarray(due), np.asarray(end)
    if until.size and float((until - since).max()) > load.timeout:
        return None
    one = np.ones(since.size)
    return _to_records(since, since, until - np.asarray(times), until, one, one * RequestOutcome.OK)


# -- a calendar of events -----------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _EventSimulation:
    """Event simulation; requests are identified by their index."""

    service: Service
    load: Load
    rng: Any
    calendar: list[tuple[float, int, Callable[..., None], Any]] = field(default_factory=list)
    order: Iterator[int] = field(default_factory=count)
    waiting: deque[int] = field(default_factory=deque)
    """Requests waiting at the server."""
    backlog: deque[int] = field(default_factory=deque)
    """Requests that are due but not sent."""
    free: int = 0
    in_flight: int = 0
    due: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    batch: list[int] = field(default_factory=list)
    outcome: list[int] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    left: float = 0
    """Requests that a closed loop may still send."""

    def closed(self, requests: int | None) -> tuple[Column, ...]:
        """Send from the load's slots, each as soon as it is free."""
        slots = self.load.slots or 1
        self.left = float("inf") if requests is None else requests
        self._run([(slot * self.load.ramp / slots, self._make_due) for slot in range(slots)])
        return self._columns()

    def open(self, due: Column) -> tuple[Column, ...]:
        """Send each request when due, or as soon as the number in flight allows."""
        self._run([(at, self._make_due) for at in due.tolist()])
        return self._columns()

    def _run(self, first: list[tuple[float, Callable[..., None]]]) -> None:
        self.free = self.service.workers
        self.calendar = [(at, next(self.order), act, None) for at, act in first]
        heapify(self.calendar)
        while self.calendar:
            now, _, act, what = heappop(self.calendar)
            act(now, what)

    def _at(self, moment: float, act: Callable[..., None], what: Any) -> None:
        heappush(self.calendar, (moment, next(self.order), act, what))

    def _make_due(self, now: float, _: None = None) -> None:
        """Make a request due."""
        if self.load.closed:
            if self.left <= 0 or now >= (self.load.duration or float("inf")):
                return
            self.left -= 1
        index = len(self.due)
        self.due.append(now)
        for column, nothing in ((self.sent, 0.0), (self.start, 0.0), (self.end, -1.0)):
            column.append(nothing)
        self.batch.append(0)
        self.outcome.append(RequestOutcome.OK)
        if not self.load.closed and self.load.slots and self.in_flight >= self.load.slots:
            self.backlog.append(index)
        else:
            self._send(now, index)

    def _send(self, now: float, index: int) -> None:
        self.sent[index] = now
        self.in_flight += 1
        limit = self.service.limit
        if limit is not None and not self.free and len(self.waiting) >= limit:
            self._answer(now, index, RequestOutcome.REJECTED)
            return
        self._at(now + self.load.timeout, self._time_out, index)
        self.waiting.append(index)
        self._dispatch(now)

    def _dispatch(self, now: float, _: None = None) -> None:
        """Start a call whenever a worker is free and a batch is full or has waited long enough."""
        while self.free and self.waiting:
            if len(self.waiting) < self.service.batch:
                due = self.sent[self.waiting[0]] + self.service.delay
                if now < due:
                    self._at(due, self._dispatch, None)
                    return
            size = min(len(self.waiting), self.service.batch)
            members = [self.waiting.popleft() for _ in range(size)]
            work = work_done_by(self.service.stalls, now)
            begin = float(moment_of(self.service.stalls, work))
            for index in members:
                self.start[index], self.batch[index] = begin, size
            self.free -= 1
            duration = self._duration() + self.service.each * (size - 1)
            self._at(float(moment_of(self.service.stalls, work + duration)), self._finish, members)

    def _duration(self) -> float:
        if not self.durations:
            self.durations = self.service.durations.draw(self.rng, _BLOCK).tolist()[::-1]
        return self.durations.pop()

    def _finish(self, now: float, members: list[int]) -> None:
        self.free += 1
        for index in members:
            self._answer(now, index, RequestOutcome.OK)
        self._dispatch(now)

    def _time_out(self, now: float, index: int) -> None:
        """Time a request out at the client; the server does not notice."""
        self._answer(now, index, RequestOutcome.TIMEOUT)

    def _answer(self, now: float, index: int, outcome: RequestOutcome) -> None:
        if self.end[index] >= 0:
            return
        self.end[index] = now
        self.outcome[index] = outcome
        if not self.batch[index]:
            self.start[index] = now
        self.in_flight -= 1
        if self.load.closed:
            self._make_due(now)
        elif self.backlog:
            self._send(now, self.backlog.popleft())

    def _columns(self) -> tuple[Column, ...]:
        np = load_numpy()
        columns = (self.due, self.sent, self.start, self.end, self.batch, self.outcome)
        return tuple(np.asarray(column) for column in columns)


def _to_records(
    due: Column, sent: Column, start: Column, end: Column, batch: Column, outcome: Column
) -> Served:
    """Convert seconds into records, in the order in which the requests ended."""
    np = load_numpy()
    order = np.argsort(end, kind="stable")
    at = {
        name: np.rint(seconds[order] * 1e9).astype(np.int64) + _EPOCH
        for name, seconds in {"due": due, "sent": sent, "start": start, "end": end}.items()
    }
    start = at.pop("start")
    outcome = outcome[order]
    answered = (outcome == RequestOutcome.OK) | (outcome == RequestOutcome.REJECTED)
    columns = {name: np.zeros(due.size, dtype) for name, dtype in COLUMNS.items()}
    columns |= at | {
        "first": np.where(answered, at["end"], 0),
        "outcome": outcome.astype(np.uint8),
        "tokens": np.full(due.size, -1, np.int32),
    }
    return Served(
        records=Records(**columns), start=np.minimum(start, at["end"]), batch=batch[order].astype(np.int32)
    )

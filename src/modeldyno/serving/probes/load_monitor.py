"""Monitors a running load: draws latencies for the stop rule and takes snapshots of the counters."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import monotonic, monotonic_ns, perf_counter
from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.stop_rule import Stop, measure_until_stable
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.result.result import Event, SecondPassed
from modeldyno.base.stats import statistics
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.base.system.deadline import answered_by
from modeldyno.engine.interfaces.server_stats import CounterReading, RequestStamps, ServerCounters
from modeldyno.engine.interfaces.session import RequestSession, RequestTrace, ThreadSession
from modeldyno.engine.probes import timing_loop
from modeldyno.serving.load.open_bounds import is_on_times, next_look, open_bounds, seconds_to_decide
from modeldyno.serving.load.request_log import MOST, FilteredRecords
from modeldyno.serving.load.request_stages import tracing_step
from modeldyno.serving.load.steady_window import NANO, DriverSums, SteadyWindow
from modeldyno.serving.loadgen.record_spool import RecordSpool
from modeldyno.serving.loadgen.running_load import DriverUsage, RunningLoad
from modeldyno.serving.probes.live_seconds import LiveSeconds

if TYPE_CHECKING:
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.base.metrics.stop_rule import MeasurementProgress, StopRuleResult
    from modeldyno.base.stats.statistics import Samples
    from modeldyno.engine.interfaces.probe import ProbeContext
    from modeldyno.serving.load.request_log import Records
    from modeldyno.serving.loadgen.running_load import LoadEnd, LoadProgress

_WAIT = 0.1
"""Seconds to wait for finished requests at a time."""
_SNAPSHOT_INTERVAL, _YOUNG_SHARE = 0.25, 0.1
"""Seconds between two snapshots of the server's counters; for a young load, this share of its age."""
_MAX_TRIMMED = 0.5
"""Share of the steady window that may be trimmed so that it begins and ends at snapshots."""
_DRAIN = 1.0
"""Seconds of queued work at the end up to which the queue is drained."""
_MOST_RESERVED = 0.5
"""Share of the time limit in which requests in flight may be awaited at most."""
_ANSWERS = 5
"""Answers of a slot, one after the other, that the steady window lasts for if the limits allow it."""
_MOST_ANSWERS = 12
"""Answers, one after the other, for which a load may go on beyond a limit that nobody wished for: some warm
up, and five are measured."""
_SESSIONS, _LONGEST_SESSIONS = 2.5, 300.0
"""Sessions of chats, one after the other, that a load lasts for if nobody wished for a limit, half of one to
warm up; and the most seconds of that."""
_AWAITED = 1.5
"""Slowest answers for which requests in flight are awaited once all bounds are decided."""
_UNLIMITED = 7 * 24 * 3600.0
"""Seconds that a number of requests may take where nobody wished for a limit."""
_STEADY = "steady"
"""The phase of the stop rule that is measured."""
SILENCE, _TRACE_END, _DURATION, _REQUESTS = "no answers", "end of the trace", "duration", "requests"
"""Reasons to stop that only a load has."""
_TIME_LIMIT = str(Stop.TIME_LIMIT)
_GRACE = 2.0
"""Seconds beyond the request timeout after which a silent server is given up."""
_MAX_FAILURES = 20
"""Failures after which a server that never succeeded is given up: at once if all are client errors, else
after the grace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """The counters at one moment."""

    when: int
    account: ServerCounters | None
    usages: tuple[DriverUsage, ...]


@dataclass(slots=True, kw_only=True)
class LoadMonitor:
    """A running load and what was observed of it."""

    driven: RunningLoad
    session: RequestSession | ThreadSession
    load: Load
    tape: RecordSpool
    every: int = 1
    """One in so many answers is drawn: the stop rule takes at most a million."""
    snapshots: list[_Snapshot] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)
    """End times of the requests whose latency was drawn, in blocks."""
    answered: int = 0
    """Successful answers in the range that is drawn from."""
    all_answered: int = 0
    """Successful answers, those of the ramp included."""
    answered_before: int = 0
    """Those of them that came before the steady phase."""
    failed: int = 0
    """Failed requests since the last successful one."""
    wrong: int = 0
    """Those of them that were client errors."""
    counted: int = 0
    """Finished requests of the steady phase, failed ones included."""
    slowest: float = 0.0
    """Seconds of the slowest answer."""
    longest_round: float = 0.0
    """Seconds of the slowest answer with the time that its user thought before it."""
    rounds: float = 0.0
    """Seconds of all answers, with those of their users' thinking."""
    turns: float = 0.0
    """Turns of a chat's session, on average; 0 without such."""
    unasked: float = 0.0
    """When no request was in flight, most recently: a server that nobody asks is not silent."""
    open: tuple[Constraint, ...] = ()
    """Bounds for which the load goes on."""
    judged: bool = False
    """Whether the bounds were judged."""
    look: float = 0.0
    """Seconds of the steady phase at which they are judged again."""
    enough: float = 0.0
    """Seconds of the load when the last of them was decided, and for what was in flight then."""
    limit: float = math.inf
    """Seconds after which the load ends in any case."""
    waiting: int = 0
    """Requests in flight, and those due but not sent."""
    ending: str = ""
    """Why the load ended; empty while it runs."""
    steady: float | None = None
    """When the steady phase began."""
    steady_begin: int | None = None
    """When the last request of the warm-up ended, in nanoseconds of the monotonic clock."""
    messages: int = 1
    """Number of distinct requests."""
    trace: RequestTrace | None = None
    """Traces requests of the steady phase; None if the server traces none."""
    traced: bool = False
    """Whether it has begun."""
    ended_silent: bool = False
    """Whether the server did not answer any more when the load ended."""
    stamps: Sequence[RequestStamps] = ()
    """Those of the traced requests, once the load has ended."""
    live: LiveSeconds = field(default_factory=LiveSeconds)
    watch: Callable[[Event], None] = field(default=lambda _event: None)
    """Receives each second as it has passed."""
    begin: float = field(init=False)
    heard: float = field(init=False)
    """When the last answer arrived."""

    def __post_init__(self) -> None:
        """Set the begin to now."""
        self.begin = self.heard = perf_counter()

    def pace_load(self, subject: ProbeContext, plan: Plan) -> StopRuleResult | None:
        """Draw until the plan is met; None if too few requests were answered."""
        if self.load.requests is not None:
            self.every = math.ceil(self.load.requests / MOST)
        limited = _limit_plan(plan, self.load)
        try:
            return measure_until_stable(
                self.draw,
                plan=self.extend_plan(limited),
                clock=perf_counter,
                interrupted=lambda: bool(self.ending) or subject.interrupted(),
                revise=lambda _: self.extend_plan(limited),
                watch=self.watcher(timing_loop.progress_reporter(subject, "latency")),
            )
        except _NothingAnswered:
            return None

    def extend_plan(self, plan: Plan) -> Plan:
        """Return the plan with times that suit the slowest answer so far, and keep its limit.

        A window of less than a few answers tells no rate, and a duration or a number of requests is measured
        whole, whatever the answers of the warm-up took. While a bound is open, measuring goes on.
        """
        longest = plan.max_time
        decided = () if self.steady_begin is None else self.look_at_bounds(plan)
        still = self.open if self.judged else tuple(filter(is_on_times, plan.bounds))
        if self.load.duration is not None:
            longest = max(longest, self.load.ramp + self.load.duration + 3 * self.slowest)
        elif plan.may_extend:
            some = max(
                _MOST_ANSWERS * self.longest_round,
                seconds_to_decide(still, self.longest_round),
                self.enough,
                self.seconds_of_sessions,
            )
            longest = max(longest, self.load.ramp + some)
            if self.load.requests is not None and self.steady is not None:  # a warm-up has its limit
                longest = _UNLIMITED
        self.limit = longest
        if plan.may_extend and not self.slowest:  # the first answer says what the limit is
            self.limit = max(longest, self.load.timeout + _GRACE)
        sessions = self.seconds_of_sessions * (_SESSIONS - 0.5) / _SESSIONS
        shortest = min(max(plan.min_time, _ANSWERS * self.longest_round, sessions), longest)
        if self.load.requests is not None and self.steady is not None:
            shortest = longest  # all are measured, however soon they are precise
        percentiles = tuple(name for name in plan.percentiles if name not in decided)
        return replace(plan, max_time=longest, min_time=shortest, percentiles=percentiles, bounds=still)

    def look_at_bounds(self, plan: Plan) -> tuple[str, ...]:
        """Judge the bounds again after enough answers; return the percentiles of decided latencies."""
        if not plan.bounds:
            return ()
        begin, end = self.steady_begin or 0, monotonic_ns()
        is_due = self.counted >= plan.min_runs and (end - begin) * NANO >= self.look
        if is_due and (self.open or not self.judged):
            was_open = bool(self.open)
            window = SteadyWindow(records=self.tape, begin=begin, end=end, load=self.load)
            self.judged, self.open = True, open_bounds(window, plan.bounds)
            self.look = next_look(self.open, self.longest_round, window.seconds)
            if was_open and not self.open:
                self.enough = perf_counter() - self.begin + _AWAITED * self.slowest
        latencies = (each for each in plan.bounds if each.query.metric == "latency" and not each.query.scope)
        return tuple(each.percentile or "" for each in latencies) if self.judged and not self.open else ()

    def watcher(self, tell: Callable[[MeasurementProgress], None]) -> Callable[[MeasurementProgress], None]:
        """Return a watcher that takes a snapshot when the steady phase begins."""

        def watch(progress: MeasurementProgress) -> None:
            if progress.phase == _STEADY and self.steady is None:
                self.steady, self.answered_before = perf_counter(), self.answered
                self.begin_trace()
                self.take_snapshot()
                self.steady_begin = int(self.ends[-1][-1]) if self.ends else self.snapshots[-1].when
                if self.load.requests is None and self.load.duration is not None:
                    self.every = max(1, math.ceil(self.rate * self.load.duration / MOST))
            tell(replace(progress, remaining=self.seconds_left(progress.remaining)))

        return watch

    def seconds_left(self, remaining: float | None) -> float | None:
        """Return the seconds that are left, of a number of requests by how fast they have ended so far."""
        if self.load.requests is None or remaining is None:
            return remaining
        if self.steady is None or not self.counted:
            return None
        pace = (perf_counter() - self.steady) / self.counted
        return min(remaining, max(0, self.load.requests - self.counted) * pace)

    def begin_trace(self) -> None:
        """Have the server trace some of the requests from now on, if it can."""
        with suppress(OSError):
            if self.trace is not None:
                self.trace.begin(tracing_step(self.rate, self.messages))
                self.traced = True

    def draw(self, n: int) -> Samples:
        """Wait until n more requests were answered; return their latencies in seconds.

        Return fewer if the load is over; raise _NothingAnswered if none was ever answered.
        """
        import numpy as np  # slow to import

        latencies: list[Samples] = []
        while sum(map(len, latencies)) < n and not self.ending:
            taken = self.driven.take(_WAIT)
            now = perf_counter()
            self._keep(taken)
            successful = taken.records.chosen(taken.records.fine)
            self.count(taken.records, successful, now)
            if len(successful) and now - self.begin > self.load.ramp:
                drawn = slice(-self.answered % self.every, None, self.every)
                latencies.append((successful.end - successful.due)[drawn] * NANO)
                self.ends.append(successful.end[drawn].copy())  # a view would keep the whole block
                self.answered += len(successful)
            self.snapshot_if_due(now)
            self.ending = self.end_reason(now, ended=taken.ended, drawn=any(map(len, latencies)))
        if not self.ends:
            raise _NothingAnswered
        return np.concatenate([statistics.empty_samples(0), *latencies])

    def count(self, ended: Records, successful: Records, now: float) -> None:
        """Count finished and successful requests."""
        if self.steady_begin is not None:
            self.counted += int((ended.due >= self.steady_begin).sum())
        if len(successful):
            self.heard, self.failed, self.wrong = now, 0, 0
            answering = successful.end - successful.sent
            rounds = answering + successful.turn("think_time")
            self.slowest = max(self.slowest, float(answering.max()) * NANO)
            self.longest_round = max(self.longest_round, float(rounds.max()) * NANO)
            self.rounds += float(rounds.sum()) * NANO
            self.all_answered += len(successful)
        else:
            self.failed += int(ended.failed.sum())
            self.wrong += int((ended.outcome == RequestOutcome.CLIENT_ERROR).sum())

    def keep_going(self) -> None:
        """Keep the load running while other models are still measured, and keep its records."""
        taken = self.driven.take(_WAIT)
        self._keep(taken)
        self.answered += int(taken.records.fine.sum())
        self.snapshot_if_due(perf_counter())

    def _keep(self, taken: LoadProgress) -> None:
        """Keep what has arrived, and tell each second that is over."""
        self.waiting = taken.backlog + taken.in_flight
        if not self.waiting and (self.load.sequence is not None or not (self.failed or self.load.closed)):
            self.unasked = perf_counter()  # its clients think, or a trace pauses
        self.tape.add(taken.records)
        for second in self.live.add(taken, monotonic_ns()):
            self.watch(SecondPassed(load=str(self.load), second=second))

    def end_reason(self, now: float, *, ended: bool, drawn: bool) -> str:
        """Return why the load is over; empty while it is not."""
        if ended:
            return _TRACE_END
        if now - max(self.heard, self.unasked) > self.load.timeout + _GRACE or self.is_hopeless(now):
            return SILENCE
        if self.load.requests is not None and self.counted >= self.load.requests:
            return _REQUESTS
        if now - self.begin >= self.limit - self.reserve:
            return _TIME_LIMIT
        drawn = drawn or self.answered > self.answered_before
        if drawn and self.load.duration is not None and self.steady is not None:
            return _DURATION if now - self.steady >= self.load.duration else ""
        return ""

    @property
    def seconds_of_sessions(self) -> float:
        """Seconds that a load of chats takes for some sessions, one after the other; 0 of no chats."""
        if not self.all_answered:
            return 0.0
        return min(_LONGEST_SESSIONS, _SESSIONS * self.turns * self.rounds / self.all_answered)

    @property
    def reserve(self) -> float:
        """Seconds of the limit in which nothing more is sent, so that what is in flight ends within it."""
        return 0.0 if self.load.duration is not None else min(self.slowest, _MOST_RESERVED * self.limit)

    @property
    def patience(self) -> float:
        """Seconds to wait for requests in flight at the end; after a duration at least a usual wait."""
        late = self.load.closed and self.is_silent
        least = max(0.0 if late else _DRAIN, 0.0 if self.load.duration is None else 2 * self.slowest)
        return min(self.load.timeout, max(least, self.begin + self.limit - perf_counter()))

    @property
    def is_silent(self) -> bool:
        """Whether the server has not answered for so long that it hardly answers any more."""
        quiet = perf_counter() - max(self.heard, self.unasked)
        return quiet > max(_DRAIN, 2 * self.slowest)

    def is_hopeless(self, now: float) -> bool:
        """Check whether so many requests failed that the server is given up."""
        requested = self.load.requests
        if self.heard > self.begin:
            return requested is not None and self.failed >= max(requested, _MAX_FAILURES)
        if requested is not None and self.failed >= requested:
            return True
        in_grace = now - self.begin <= _GRACE and self.wrong < self.failed
        return self.failed >= _MAX_FAILURES and not in_grace

    def snapshot_if_due(self, now: float) -> None:
        """Take a snapshot if the last one is old enough."""
        wait = min(_SNAPSHOT_INTERVAL, _YOUNG_SHARE * (now - self.begin)) / NANO
        if not self.snapshots or monotonic_ns() - self.snapshots[-1].when > wait:
            self.take_snapshot()

    def take_snapshot(self) -> None:
        """Read the counters of the server and of the drivers."""
        when = monotonic_ns()
        usages = tuple(self.driven.usage())
        with answered_by(monotonic() + self.begin + self.limit - perf_counter()):
            account = _read_counters(self.session)
        self.snapshots.append(_Snapshot(when=when, account=account, usages=usages))

    @property
    def rate(self) -> float:
        """Answers per second so far."""
        return self.answered / max(perf_counter() - self.begin, _WAIT)

    def describe_silence(self) -> str:
        """Describe that the server stopped answering."""
        answered, waited = self.heard - self.begin, perf_counter() - self.heard
        cancel = self.load.cancel
        given_up = (
            f"; the client itself gave up {cancel.share:.0%} of the requests (`cancel`), and a server may go "
            "on working on those"
            if cancel is not None
            else ""
        )
        return (
            f"the server answered for {format_quantity(answered, SECONDS, 2)}, then no request succeeded for "
            f"{format_quantity(waited, SECONDS, 2)}, and the load was ended{given_up}"
        )

    def stop(self) -> LoadEnd:
        """End the load; wait for requests in flight, but not for a long queue, nor if nothing is measured."""
        self.ended_silent = self.is_silent
        queued = self.steady is None or self.waiting > _DRAIN * self.rate
        drain = max(_DRAIN, 2 * self.slowest) if self.load.closed else _DRAIN
        trace = self.trace if self.traced else None
        with suppress(OSError):  # without stamps, the server's counters remain
            if trace is not None:
                trace.end()
        ending = self.driven.stop(min(drain, self.patience) if queued else self.patience)
        self.tape.add(ending.records)
        with suppress(OSError):
            if trace is not None:
                self.stamps = trace.read()
        return ending

    def window(
        self, paced: StopRuleResult | None, *, since: int, samples: int, unsent: int
    ) -> tuple[SteadyWindow, list[CounterReading]]:
        """Return the steady window, and the readings of the server's counters within it.

        There are no readings if none is near either end. It begins at `since` (nanoseconds of the monotonic
        clock) or later, when other loads are steady, too: in a closed loop with the first request after the
        warm-up, as the next ones may be due seconds later.
        """
        begin = max(since, self.steady_since(paced))
        first, last = self.window_snapshots(begin)
        window = SteadyWindow(
            records=self.tape,
            begin=begin,
            end=self.snapshots[-1].when,
            load=self.load,
            samples=samples,
            clients=_busy_cores(first, last),
            drivers=self._driver_sums(first, last),
            backlog=unsent,
            how=self.distribution_facts(paced, begin),
        )
        has_account = first.account is not None and last.account is not None and first.when >= begin
        return window, self._readings(first, last) if has_account else []

    def _readings(self, first: _Snapshot, last: _Snapshot) -> list[CounterReading]:
        """Return the readings of the counters from one snapshot to another; none if the server began anew."""
        readings = [
            CounterReading(when=snapshot.when, counters=snapshot.account)
            for snapshot in self.snapshots
            if first.when <= snapshot.when <= last.when and snapshot.account is not None
        ]
        counts = [reading.counters.requests for reading in readings]
        return readings if counts == sorted(counts) else []

    def _driver_sums(self, first: _Snapshot, last: _Snapshot) -> tuple[DriverSums, ...]:
        """Return what each driver did from one snapshot to the next, within two of them."""
        snapshots = [each for each in self.snapshots if first.when <= each.when <= last.when and each.usages]
        return tuple(
            DriverSums(
                cpu=tuple(after.cpu - before.cpu for before, after in pairwise(usages)),
                wall=tuple(after.wall - before.wall for before, after in pairwise(usages)),
                sent=tuple(after.sent - before.sent for before, after in pairwise(usages)),
            )
            for usages in zip(*(each.usages for each in snapshots), strict=False)
        )

    def requested_window(self, window: SteadyWindow) -> SteadyWindow:
        """Trim the window to the requested number of requests, if there is one."""
        if self.load.requests is None or self.steady_begin is None:
            return window
        begin = min(window.begin, self.steady_begin)  # a drift may have restarted the steady phase
        return replace(window, begin=begin).first(self.load.requests)

    def steady_since(self, paced: StopRuleResult | None) -> int:
        """Return when the steady phase began, in nanoseconds of the monotonic clock.

        If the warm-up was never over, its later half must serve, unless the server fell silent in it. Where
        nothing was answered, it began with the first request.
        """
        import numpy as np  # slow to import

        if paced is None:
            first = (int(part.due.min()) for part in self.tape.parts() if len(part))
            return min(first, default=self.snapshots[0].when)
        if not paced.warmup_runs:
            return self.snapshots[0].when
        ends = np.concatenate(self.ends)
        if self.steady is None and self.ended_silent:
            return int(ends[-1]) + 1
        return int(ends[min(paced.warmup_runs, len(ends)) - 1])

    def window_snapshots(self, steady: int) -> tuple[_Snapshot, _Snapshot]:
        """Choose the snapshots at both ends of the window, with an account if one is near."""
        last = self.snapshots[-1]
        near = _MAX_TRIMMED * (last.when - steady)
        after = [
            snapshot for snapshot in self.snapshots[:-1] if 0 <= snapshot.when - steady <= near
        ] or self.snapshots[:1]
        first = next((snapshot for snapshot in after if snapshot.account is not None), after[0])
        before = [
            snapshot
            for snapshot in self.snapshots
            if last.when - snapshot.when <= near / 2 and snapshot.when > first.when
        ]
        return first, next((snapshot for snapshot in reversed(before) if snapshot.account is not None), last)

    def distribution_facts(self, paced: StopRuleResult | None, begin: int) -> dict[str, Any]:
        """Return how the window was chosen, as fields of a Distribution."""
        unmet: tuple[str, ...]
        stop, unmet = str(Stop.TIME_LIMIT), ("too few requests were answered",)
        if paced is not None:
            stop, unmet = self.ending or str(paced.stop), paced.unmet
            if self.load.requests is not None:
                unmet = (f"{self.counted:,} of {self.load.requests:,} requests",)
            if self.ending and self.ending != _TIME_LIMIT:
                unmet = ()
            elif self.ending and not unmet:  # the limit was that of the last bound, which was decided
                stop = str(Stop.CONVERGED)
        elif self.ending:
            stop, unmet = self.ending, ()
        first = min((int(part.due.min()) for part in self.tape.parts()), default=begin)
        return {
            "stop": stop,
            "unmet": unmet,
            "warmup_dropped": len(FilteredRecords(records=self.tape, holds=lambda part: part.due < begin)),
            "warmup_time": max(0.0, (begin - first) * NANO),
            "clock": "monotonic_ns",
            **timing_loop.clock_facts(),
        }


class _NothingAnswered(Exception):
    """The load is over and no request was ever answered."""


def _limit_plan(plan: Plan, load: Load) -> Plan:
    """Adapt the plan to a load with a fixed number of requests or duration, whatever the precision.

    The load then decides when to stop, and the plan only sets the maximum time.
    """
    longest = load.longest(plan.max_time)
    if load.duration is None and load.requests is None:
        return replace(plan, max_time=longest)
    return replace(plan, min_time=longest, max_time=longest, max_runs=sys.maxsize, percentiles=(), bounds=())


def _read_counters(session: RequestSession | ThreadSession) -> ServerCounters | None:
    if not session.has_statistics:
        return None
    try:
        return session.account()
    except (OSError, ValueError):  # the server may be too busy, or may not know
        return None


def _busy_cores(first: _Snapshot, last: _Snapshot) -> tuple[float, ...]:
    """Return the number of cores that each driver kept busy between two snapshots."""
    return tuple(
        (after.cpu - before.cpu) / wall if (wall := after.wall - before.wall) > 0 else 0.0
        for before, after in zip(first.usages, last.usages, strict=False)
    )

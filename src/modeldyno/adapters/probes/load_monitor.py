"""A load on its way: drawn from by the rule that decides when enough is known, and looked at meanwhile."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, replace
from time import monotonic_ns, perf_counter
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.probes import timing_loop
from modeldyno.core.load.load_analysis import NANO, Window
from modeldyno.core.load.request_log import MOST, Chosen, Outcome
from modeldyno.core.load.server_stats import Account
from modeldyno.core.metrics.stop_rule import Stop, pace
from modeldyno.core.spec.load_spec import Load
from modeldyno.core.stats import statistics
from modeldyno.core.stats.units import SECONDS, format_quantity
from modeldyno.interfaces import CanDrive, CanSend, HasServerStats
from modeldyno.loadgen import Driving, Usage
from modeldyno.loadgen.record_spool import Tape

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.load.request_log import Records
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.metrics.stop_rule import Paced, Progress
    from modeldyno.core.stats.statistics import Samples
    from modeldyno.interfaces import Subject
    from modeldyno.loadgen import Ending

_WAIT = 0.1
"""Seconds between two looks at what has ended."""
_LOOK, _YOUNG = 0.25, 0.1
"""Seconds between two looks at the server's counters; less, as a share of its age, while a load is young."""
_LOST = 0.5
"""Share of the steady window that may be given up for looks at the counters at both of its ends."""
_DRAIN = 1.0
"""Seconds of the server's work that may be waiting at the end, to be waited for."""
_STEADY = "steady"
"""The phase of pacing that is measured."""
SILENCE, _TRACE_END, _DURATION, _REQUESTS = "no answers", "end of the trace", "duration", "requests"
"""Reasons to stop that a call within a process does not have."""
_TIME_LIMIT = str(Stop.TIME_LIMIT)
_GRACE = 2.0
"""Seconds beyond the timeout of a request after which a server that answers nothing is given up."""
_HOPELESS = 20
"""Failed requests after which a server is given up that never answered one well: at once where each answer
says that the request is wrong, else after the grace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What stood at one moment."""

    when: int
    account: Account | None
    usages: tuple[Usage, ...]


@dataclass(slots=True, kw_only=True)
class Course:
    """A load on its way, and what has been seen of it."""

    driven: Driving
    session: CanSend | CanDrive
    load: Load
    tape: Tape
    every: int = 1
    """Of so many answers, one is drawn: the rule that decides looks at a million at most."""
    looks: list[_Look] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)
    """When the requests ended whose latency was drawn, in blocks."""
    answered: int = 0
    """Of those from which is drawn."""
    failed: int = 0
    """Requests that ended otherwise than well since one was last answered."""
    wrong: int = 0
    """Those of them of which the server says that the request is wrong."""
    counted: int = 0
    """Requests of the steady phase that ended, failed ones included."""
    slowest: float = 0.0
    """Seconds that the slowest answer took."""
    limit: float = math.inf
    """Seconds after which it ends, whatever was answered."""
    waiting: int = 0
    """Requests on their way, and those that are due and not sent."""
    ending: str = ""
    """Why there is nothing more to come."""
    steady: float | None = None
    """When the steady phase began."""
    steady_look: _Look | None = None
    """What stood then."""
    begin: float = field(init=False)
    heard: float = field(init=False)
    """When an answer last came."""

    def __post_init__(self) -> None:
        """Begin now."""
        self.begin = self.heard = perf_counter()

    def paced(self, subject: Subject, plan: Plan) -> Paced | None:
        """Draw until there is enough; None where too little was answered to say anything."""
        if self.load.requests is not None:
            self.every = math.ceil(self.load.requests / MOST)
        within = _within(plan, self.load)
        self.limit = within.max_time
        try:
            return pace(
                self.draw,
                plan=within,
                clock=perf_counter,
                interrupted=lambda: bool(self.ending) or subject.interrupted(),
                watch=self.watching(timing_loop.reporting(subject, "latency")),
            )
        except _Over:
            return None

    def watching(self, tell: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Look at the counters when the steady phase begins."""

        def watch(progress: Progress) -> None:
            if progress.phase == _STEADY and self.steady is None:
                self.steady = perf_counter()
                self.look()
                self.steady_look = self.looks[-1]
                if self.load.requests is None and self.load.duration is not None:
                    self.every = max(1, math.ceil(self.rate * self.load.duration / MOST))
            tell(progress)

        return watch

    def draw(self, n: int) -> Samples:
        """Wait until so many more requests were answered; give their latencies in seconds.

        Gives fewer where the load is over, and raises _Over where not one was ever answered.
        """
        import numpy as np  # noqa: PLC0415 - dear at start-up

        found: list[Samples] = []
        while sum(map(len, found)) < n and not self.ending:
            taken = self.driven.take(_WAIT)
            now = perf_counter()
            self.waiting = taken.backlog + taken.in_flight
            self.tape.add(taken.records)
            fine = taken.records.chosen(taken.records.fine)
            self.count(taken.records, fine, now)
            if len(fine) and now - self.begin > self.load.ramp:
                drawn = slice(-self.answered % self.every, None, self.every)
                found.append((fine.end - fine.due)[drawn] * NANO)
                self.ends.append(fine.end[drawn].copy())  # or the others would stay, too
                self.answered += len(fine)
            self.look_again(now)
            self.ending = self.over(now, ended=taken.ended, drawn=any(map(len, found)))
        if not self.ends:
            raise _Over
        return np.concatenate([statistics.blank(0), *found])

    def count(self, ended: Records, fine: Records, now: float) -> None:
        """Count what ended, and what of it was answered well."""
        if self.steady_look is not None:
            self.counted += int((ended.due >= self.steady_look.when).sum())
        if len(fine):
            self.heard, self.failed, self.wrong = now, 0, 0
            self.slowest = max(self.slowest, float((fine.end - fine.sent).max()) * NANO)
        else:
            self.failed += len(ended)
            self.wrong += int((ended.outcome == Outcome.CLIENT_ERROR).sum())

    def go_on(self) -> None:
        """Stay under load for the sake of others, and keep what is answered."""
        taken = self.driven.take(_WAIT)
        self.waiting = taken.backlog + taken.in_flight
        self.tape.add(taken.records)
        self.answered += int(taken.records.fine.sum())
        self.look_again(perf_counter())

    def over(self, now: float, *, ended: bool, drawn: bool) -> str:
        """Say why nothing more is to come, or nothing."""
        if ended:
            return _TRACE_END
        if now - self.heard > self.load.timeout + _GRACE or self.hopeless(now):
            return SILENCE
        if self.load.requests is not None and self.counted >= self.load.requests:
            return _REQUESTS
        if now - self.begin >= self.limit:
            return _TIME_LIMIT
        if drawn and self.load.duration is not None and self.steady is not None:
            return _DURATION if now - self.steady >= self.load.duration else ""
        return ""

    def hopeless(self, now: float) -> bool:
        """Say whether so many requests failed that nothing good is to be expected."""
        asked = self.load.requests
        if self.heard > self.begin:
            return asked is not None and self.failed >= max(asked, _HOPELESS)
        if asked is not None and self.failed >= asked:
            return True
        patient = now - self.begin <= _GRACE and self.wrong < self.failed
        return self.failed >= _HOPELESS and not patient

    def look_again(self, now: float) -> None:
        """Look at the counters, if the last look was long ago."""
        wait = min(_LOOK, _YOUNG * (now - self.begin)) / NANO
        if not self.looks or monotonic_ns() - self.looks[-1].when > wait:
            self.look()

    def look(self) -> None:
        """Look at the server's counters and the drivers'."""
        when = monotonic_ns()
        usages = tuple(self.driven.usage())
        self.looks.append(_Look(when=when, account=_account(self.session), usages=usages))

    @property
    def rate(self) -> float:
        """Answers in a second, so far."""
        return self.answered / max(perf_counter() - self.begin, _WAIT)

    def silence(self) -> str:
        """Say that the server has stopped to answer."""
        told, waited = self.heard - self.begin, perf_counter() - self.heard
        return (
            f"the server answered for {format_quantity(told, SECONDS, 2)}, and then nothing well for "
            f"{format_quantity(waited, SECONDS, 2)}, when the load was ended"
        )

    def stop(self) -> Ending:
        """End it; what is on its way is waited for, but not a queue that has grown long."""
        queued = self.waiting > _DRAIN * self.rate
        drain = max(_DRAIN, 2 * self.slowest) if self.load.closed else _DRAIN
        ending = self.driven.stop(min(drain, self.load.timeout) if queued else self.load.timeout)
        self.tape.add(ending.records)
        return ending

    def window(
        self, paced: Paced | None, *, since: int, samples: int, unsent: int
    ) -> tuple[Window, Account | None]:
        """Cut the steady window, between two looks at the counters if that costs little of it.

        It begins at `since` (nanoseconds of the monotonic clock), when others are steady, too, or later.
        """
        begun = max(since, self.begun(paced))
        first, last = self.between(begun)
        begin = max(first.when, begun)
        window = Window(
            records=self.tape,
            begin=begin,
            end=last.when,
            load=self.load,
            samples=samples,
            clients=_busy(first, last),
            backlog=unsent,
            how=self.how(paced, begin),
        )
        told = first.account is not None and last.account is not None and begin == first.when
        return window, last.account.since(first.account) if told else None  # type: ignore[union-attr, arg-type]

    def measured(self, window: Window, paced: Paced | None, since: int) -> Window:
        """Cut the window to as many requests as were asked for, where a number was asked for.

        The server's account is of whole looks at its counters, so it stays with the wider window.
        """
        if self.load.requests is None or self.steady_look is None:
            return window
        begin = max(since, self.steady_look.when)
        return replace(window, begin=begin, how=self.how(paced, begin)).first(self.load.requests)

    def begun(self, paced: Paced | None) -> int:
        """Say when the steady phase began."""
        import numpy as np  # noqa: PLC0415 - dear at start-up

        if paced is None:
            return self.looks[0].when
        ends = np.concatenate(self.ends)
        return int(ends[min(paced.warmup_runs, len(ends) - 1)])

    def between(self, begun: int) -> tuple[_Look, _Look]:
        """Choose the looks at the two ends of the window: such as told something, if there are any near."""
        last = self.looks[-1]
        near = _LOST * (last.when - begun)
        after = [look for look in self.looks[:-1] if 0 <= look.when - begun <= near] or self.looks[:1]
        first = next((look for look in after if look.account is not None), after[0])
        before = [look for look in self.looks if last.when - look.when <= near / 2 and look.when > first.when]
        return first, next((look for look in reversed(before) if look.account is not None), last)

    def how(self, paced: Paced | None, begin: int) -> dict[str, Any]:
        """Tell how the window was found, as a Distribution tells it."""
        unmet: tuple[str, ...]
        stop, unmet = str(Stop.TIME_LIMIT), ("too few requests were answered",)
        if paced is not None:
            stop, unmet = self.ending or str(paced.stop), paced.unmet
            if self.load.requests is not None:
                unmet = (f"{self.counted:,} of {self.load.requests:,} requests",)
            if self.ending and self.ending != _TIME_LIMIT:
                unmet = ()
        elif self.ending:
            stop, unmet = self.ending, ()
        first = min((int(part.due.min()) for part in self.tape.parts()), default=begin)
        return {
            "stop": stop,
            "unmet": unmet,
            "warmup_dropped": len(Chosen(records=self.tape, holds=lambda part: part.due < begin)),
            "warmup_time": max(0.0, (begin - first) * NANO),
            "clock": "monotonic_ns",
            **timing_loop.clock_facts(),
        }


class _Over(Exception):
    """Nothing more is to come."""


def _within(plan: Plan, load: Load) -> Plan:
    """Ask for what the load says: so many requests, or so long a window, whatever the precision.

    When to stop is then for the load to say, and the plan only sets the longest time.
    """
    longest = plan.max_time + load.ramp
    if load.duration is not None:  # the warm-up may take a third of it
        longest = load.ramp + 1.5 * load.duration + 1.0
    elif load.requests is None:
        return replace(plan, max_time=longest)
    return replace(plan, min_time=longest, max_time=longest, max_runs=sys.maxsize, percentiles=())


def _account(session: object) -> Account | None:
    if not isinstance(session, HasServerStats):
        return None
    try:
        return session.account()
    except (OSError, ValueError):  # the server may be too busy to tell, or may not know
        return None


def _busy(first: _Look, last: _Look) -> tuple[float, ...]:
    """Give the cores that each driver kept busy between two looks."""
    return tuple(
        (after.cpu - before.cpu) / wall if (wall := after.wall - before.wall) > 0 else 0.0
        for before, after in zip(first.usages, last.usages, strict=False)
    )

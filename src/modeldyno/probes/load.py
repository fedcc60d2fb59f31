"""The probe ``load``: what a server does under a load, as its client sees it and as it tells itself.

The load runs in processes of its own; here its records are read as they come, and the rule that decides
when calls within a process have warmed up and are known well enough decides the same for requests.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic_ns, perf_counter
from typing import TYPE_CHECKING, Any, cast

from modeldyno import outputs
from modeldyno.core import breakdown, served
from modeldyno.core.account import Account
from modeldyno.core.doubt import Doubt, of_distribution
from modeldyno.core.load import Load
from modeldyno.core.measurement import Distribution, Measurement, observed
from modeldyno.core.pacing import Stop, pace
from modeldyno.core.records import COLUMNS, Outcome, Records, joined
from modeldyno.core.result import Artifact, Failure, FailureKind
from modeldyno.core.served import NANO, Window
from modeldyno.core.units import SECONDS, format_quantity
from modeldyno.loadgen import Driving, Usage
from modeldyno.ports import CanDrive, CanSend, HasServerStats, IsServed, Pass
from modeldyno.probes import timer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.core.pacing import Paced, Progress
    from modeldyno.core.plan import Plan
    from modeldyno.core.statistics import Samples
    from modeldyno.core.target import Reply
    from modeldyno.ports import Feed, Subject

needs = IsServed
pass_ = Pass.TIMED
_WAIT = 0.1
"""Seconds between two looks at what has ended."""
_LOOK = 0.5
"""Seconds between two looks at the server's counters."""
_DRAIN = 1.0
"""Seconds of the server's work that may be waiting at the end, to be waited for."""
_LOST = 0.5
"""Share of the steady window that may be given up for it to begin with a look at the counters."""
_STEADY = "steady"
"""The phase of pacing that is measured."""
_SILENCE, _TRACE_END, _DURATION = "no answers", "end of the trace", "duration"
"""Reasons to stop that a call within a process does not have."""
_GRACE = 2.0
"""Seconds beyond the timeout of a request after which a server that answers nothing is given up."""


def measure(subject: Subject, plan: Plan) -> Iterator[Measurement | Doubt | Failure | Artifact]:
    """Put the load on the server until its latency is known to the plan's precision; then let it drain."""
    session, load = cast("CanSend | CanDrive", subject.session), subject.load or Load()
    with _driving(session, subject.feeds, replace(load, requests=None), plan.seed) as (driven, messages):
        course = _Course(driven=driven, session=session, load=load)
        paced = course.paced(subject, _within(plan, load))
        course.look()
        ending = driven.stop(course.patience())
    records = joined([*course.parts, ending.records])
    samples = session.samples if isinstance(session, CanDrive) else subject.samples
    window, account = course.window(records, paced, samples=samples)
    found = list(served.measurements(window))
    yield from found
    yield from _client(window)
    said = _said(ending.faults, session)
    yield from served.doubts(window, said)
    void = served.void(window)
    if account is None and isinstance(session, HasServerStats):
        yield _NO_ACCOUNT
    elif account is not None and void != served.SATURATED:  # or what it did is not what was due
        yield from _accounted(account, window)
    if paced is not None and not void:
        yield from _unsure(found, paced, plan, load)
    if messages == 1:
        yield _REPEATED
    yield from _outcome(records, ending.replies, session, said)
    if course.ending == _SILENCE and records.fine.any():
        yield Failure(where="load", kind=FailureKind.SERVER, message=course.silence())
    if gone := getattr(session, "ended", lambda: "")():
        yield Failure(where="load", kind=FailureKind.SERVER, message=f"the server ended by itself: {gone}")
    if isinstance(failure := getattr(driven, "failure", None), Exception):
        yield Failure(
            where="load", kind=FailureKind.SERVER, message=f"{type(failure).__name__}: {failure}".rstrip(": ")
        )
    if path := subject.observation.records:
        yield write(records, Path(path))


@contextmanager
def _driving(
    session: CanSend | CanDrive, feeds: Sequence[Feed], load: Load, seed: int
) -> Iterator[tuple[Driving, int]]:
    """Begin the load; give it, and how many distinct requests it has."""
    if isinstance(session, CanDrive):
        from modeldyno.loadgen.threads import threads  # noqa: PLC0415 - only a server is sent to

        calls = session.calls()
        with threads(calls, load, seed=seed) as driven:
            yield driven, len(calls)
    else:
        from modeldyno.loadgen.crew import driving  # noqa: PLC0415 - only a server is sent to

        target = session.target(feeds)
        with driving(target, load, seed=seed) as driven:
            yield driven, len(target.messages)


def _within(plan: Plan, load: Load) -> Plan:
    """Ask for what the load says: so many requests, or so long a window, whatever the precision."""
    if load.requests is not None:
        plan = replace(plan, min_runs=load.requests, max_runs=load.requests)
    if load.duration is None:
        return replace(plan, max_time=plan.max_time + load.ramp)
    # The warm-up may take a third of it; when to stop is for the load to say, not for the plan.
    longest = load.ramp + 1.5 * load.duration + 1.0
    return replace(plan, min_time=longest, max_time=longest, percentiles=())


class _Over(Exception):
    """Nothing more is to come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What stood at one moment."""

    when: int
    account: Account | None
    usages: tuple[Usage, ...]
    backlog: int


@dataclass(slots=True, kw_only=True)
class _Course:
    """A load on its way, and what has been seen of it."""

    driven: Driving
    session: CanSend | CanDrive
    load: Load
    parts: list[Records] = field(default_factory=list)
    looks: list[_Look] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)
    """When the requests ended whose latency was drawn, in blocks."""
    backlog: int = 0
    in_flight: int = 0
    ending: str = ""
    """Why there is nothing more to come."""
    steady: float | None = None
    """When the steady phase began."""
    begin: float = field(default_factory=perf_counter)
    heard: float = field(default_factory=perf_counter)
    """When an answer last came."""

    def paced(self, subject: Subject, plan: Plan) -> Paced | None:
        """Draw until there is enough; None where too little was answered to say anything."""
        try:
            return pace(
                self.draw,
                plan=plan,
                clock=perf_counter,
                interrupted=lambda: bool(self.ending) or subject.interrupted(),
                watch=self.watching(timer.reporting(subject, "latency")),
            )
        except _Over:
            return None

    def watching(self, tell: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Look at the counters when the steady phase begins."""

        def watch(progress: Progress) -> None:
            if progress.phase == _STEADY and self.steady is None:
                self.steady = perf_counter()
                self.look()
            tell(progress)

        return watch

    def draw(self, n: int) -> Samples:
        """Wait until so many more requests were answered; give their latencies in seconds."""
        import numpy as np  # noqa: PLC0415 - dear at start-up

        found: list[Samples] = []
        while sum(map(len, found)) < n:
            taken = self.driven.take(_WAIT)
            now = perf_counter()
            self.backlog, self.in_flight = taken.backlog, taken.in_flight
            self.parts.append(taken.records)
            fine = taken.records.chosen(taken.records.fine)
            settled = now - self.begin > self.load.ramp
            if len(fine):
                self.heard = now
            if len(fine) and settled:
                found.append((fine.end - fine.due) * NANO)
                self.ends.append(fine.end)
            if not self.looks or monotonic_ns() - self.looks[-1].when > _LOOK / NANO:
                self.look()
            if taken.ended:
                self.ending = _TRACE_END
            elif now - self.heard > self.load.timeout + _GRACE:
                self.ending = _SILENCE
            elif found and self.long_enough(now):
                self.ending = _DURATION
            if self.ending:
                break
        if not found:
            raise _Over
        return np.concatenate(found)

    def long_enough(self, now: float) -> bool:
        """Say whether the steady phase has lasted as long as the load says."""
        if self.load.duration is None or self.steady is None:
            return False
        return now - self.steady >= self.load.duration

    def look(self) -> None:
        """Look at the server's counters and the drivers'."""
        when = monotonic_ns()
        self.looks.append(
            _Look(
                when=when,
                account=_account(self.session),
                usages=tuple(self.driven.usage()),
                backlog=self.backlog,
            )
        )

    def silence(self) -> str:
        """Say that the server has stopped to answer."""
        told, waited = self.heard - self.begin, perf_counter() - self.heard
        return (
            f"the server answered for {format_quantity(told, SECONDS, 2)}, and then nothing well for "
            f"{format_quantity(waited, SECONDS, 2)}, when the load was ended"
        )

    def patience(self) -> float:
        """Give the seconds to wait for what is on its way: a queue that has grown long is not waited for."""
        rate = sum(map(len, self.ends)) / max(perf_counter() - self.begin, _WAIT)
        return _DRAIN if self.in_flight + self.backlog > _DRAIN * rate else self.load.timeout

    def window(self, records: Records, paced: Paced | None, *, samples: int) -> tuple[Window, Account | None]:
        """Cut the steady window, from a look at the counters after the warm-up to the last one."""
        import numpy as np  # noqa: PLC0415 - dear at start-up

        first, last = self.looks[0], self.looks[-1]
        if paced is not None:
            ends = np.concatenate(self.ends)
            begun = int(ends[min(paced.warmup_runs, len(ends) - 1)])
            after = [look for look in self.looks if 0 <= look.when - begun <= _LOST * (last.when - begun)]
            first = after[0] if after else first
            begin = max(first.when, begun)
        else:
            begin = first.when
        window = Window(
            records=records,
            begin=begin,
            end=last.when,
            load=self.load,
            samples=samples,
            clients=_busy(first, last),
            backlog=last.backlog,
            how=self._how(paced, records, begin),
        )
        told = first.account is not None and last.account is not None and begin == first.when
        return window, last.account.since(first.account) if told else None  # type: ignore[union-attr, arg-type]

    def _how(self, paced: Paced | None, records: Records, begin: int) -> dict[str, Any]:
        unmet: tuple[str, ...]
        stop, unmet = str(Stop.TIME_LIMIT), ("too few requests were answered",)
        if paced is not None:
            stop, unmet = str(paced.stop), paced.unmet
            if self.load.requests is not None and paced.stop in {Stop.CONVERGED, Stop.SAMPLE_LIMIT}:
                stop, unmet = "requests", ()
        if self.ending:
            stop, unmet = self.ending, ()
        return {
            "stop": stop,
            "unmet": unmet,
            "warmup_dropped": int((records.due < begin).sum()),
            "warmup_time": max(0.0, (begin - int(records.due.min())) * NANO) if len(records) else 0.0,
            "clock": "monotonic_ns",
            **timer.clock_facts(),
        }


def _unsure(found: list[Measurement], paced: Paced, plan: Plan, load: Load) -> Iterator[Doubt]:
    """Give the doubts of the latency: of its course, and of what is told of it.

    How long a load lasts is no matter of the plan where the load says it.
    """
    latency = next((m.value for m in found if m.metric == "latency"), None)
    longer = "--duration" if load.duration is not None else "--requests" if load.requests is not None else ""
    doubts = list(timer.course_doubts("latency", paced))
    if isinstance(latency, Distribution):
        doubts += of_distribution("latency", latency, plan.percentiles)
    for each in doubts:
        advice = each.advice.replace("--max-time", longer) if longer else each.advice
        yield replace(each, advice=advice)


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


def _client(window: Window) -> Iterator[Measurement]:
    """Say what a request cost the client."""
    count = int(((window.records.sent >= window.begin) & (window.records.sent < window.end)).sum())
    if count and window.clients:
        yield observed("client_time", sum(window.clients) * window.seconds / count)


def _accounted(account: Account, window: Window) -> Iterator[Measurement | Doubt]:
    done = window.done()
    if not len(done):
        return
    service = float((done.end - done.sent).mean()) * NANO
    yield from breakdown.measurements(account, service)
    yield from breakdown.doubts(account, service, len(done))


_NO_ACCOUNT = Doubt(
    code="no-account",
    seen="the server's own statistics could not be had at both ends of the steady window",
    advice="look at its log, or at the address of its metrics",
)
_REPEATED = Doubt(
    code="repeated-request",
    seen="every request was the same",
    advice="give more data with --input, unless the server is known to cache nothing",
)


def _said(faults: Sequence[Reply], session: CanSend | CanDrive) -> str:
    """Give the server's own words on the first request that it failed to answer well, if it had any."""
    for reply in faults:
        try:
            session.arrays(reply)
        except ValueError as error:
            return str(error)
    return ""


def _outcome(
    records: Records, replies: Sequence[Reply], session: CanSend | CanDrive, said: str
) -> Iterator[Failure]:
    """Tell what was wrong: nothing was answered, or an answer is none."""
    if len(records) and not records.fine.any():
        worst = Outcome(int(records.outcome[0])).word
        yield Failure(
            where="load",
            kind=FailureKind.SERVER,
            message=f"none of {len(records):,} requests was answered well; the first one ended as {worst}"
            f"{said and f': {said}'}",
        )
    wrong: dict[str, None] = {}
    for reply in replies:
        try:
            wrong |= dict.fromkeys(outputs.faults(session.arrays(reply)))
        except ValueError as error:
            wrong[f"an answer cannot be read: {error}"] = None
    for message in wrong:
        yield Failure(where="load", kind=FailureKind.INVALID_OUTPUT, message=message)


def write(records: Records, path: Path) -> Artifact:
    """Write every request: a column each in ``.npz``, or else a line of CSV or JSON each.

    Times are nanoseconds of the monotonic clock; those of streams tell of their pieces, too.
    """
    import hashlib  # noqa: PLC0415 - rarely needed

    import numpy as np  # noqa: PLC0415 - dear at start-up

    columns = {name: getattr(records, name) for name in COLUMNS}
    if records.pieces:
        columns["pieces"] = np.array([len(pieces) for pieces in records.pieces])
        for name, place in (("first_piece", 0), ("last_piece", -1)):
            columns[name] = np.array([pieces[place] if pieces else 0 for pieces in records.pieces])
    if path.suffix == ".npz":
        np.savez_compressed(path, **columns)
    else:
        words = [Outcome(int(each)).word for each in records.outcome]
        lists = {name: column.tolist() for name, column in columns.items()} | {"outcome": words}
        rows = zip(*lists.values(), strict=True)
        with path.open("w", encoding="utf-8") as file:
            if path.suffix == ".jsonl":
                file.writelines(json.dumps(dict(zip(lists, row, strict=True))) + "\n" for row in rows)
            else:
                file.write(",".join(lists) + "\n")
                file.writelines(",".join(map(str, row)) + "\n" for row in rows)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Artifact(name="records", path=str(path), digest=f"sha256:{digest}")

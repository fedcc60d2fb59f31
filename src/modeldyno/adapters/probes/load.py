"""The probe ``load``: what a server does under a load, as its client sees it and as it tells itself.

The load runs in processes of its own; here its records are read as they come, and the rule that decides
when calls within a process have warmed up and are known well enough decides the same for requests.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, cast

from modeldyno.adapters.probes import timing_loop
from modeldyno.adapters.probes.load_monitor import SILENCE, Course
from modeldyno.core.load import latency_breakdown, load_analysis
from modeldyno.core.load.load_analysis import NANO
from modeldyno.core.load.multi_model import at
from modeldyno.core.load.request_log import Outcome
from modeldyno.core.metrics.doubt import Doubt, of_distribution
from modeldyno.core.metrics.measurement import Distribution, Measurement, observed
from modeldyno.core.metrics.stop_rule import Paced
from modeldyno.core.result.result import Artifact, Failure, FailureKind
from modeldyno.core.spec.load_spec import Load
from modeldyno.data import outputs
from modeldyno.interfaces import CanDrive, CanSend, HasServerStats, IsServed, MayEnd, Pass
from modeldyno.loadgen import Ending
from modeldyno.loadgen.arrivals import unused_of_trace
from modeldyno.loadgen.record_spool import Tape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.load.load_analysis import Window
    from modeldyno.core.load.request_log import Parted
    from modeldyno.core.load.request_target import Reply
    from modeldyno.core.load.server_stats import Account
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.interfaces import Feed, Subject
    from modeldyno.loadgen import Driving

needs = IsServed
pass_ = Pass.TIMED


def measure(subject: Subject, plan: Plan) -> Iterator[Measurement | Doubt | Failure | Artifact]:
    """Put the load on the server until its latency is known to the plan's precision; then let it drain.

    Where there are models beside it, each is under its own load until the last of them is known well enough;
    the steady window of all begins when the last of them is steady.
    """
    with ExitStack() as tapes:
        driven = list(_driven(subject, plan, tapes))
        since = max(each.course.begun(each.paced) for each in driven)
        for each in driven:
            found = _told(each, plan, since)
            yield from (at(each.name, seen) for seen in found) if each.name else found
        if path := subject.observation.records:
            from modeldyno.loadgen.record_export import write  # noqa: PLC0415 - few want them

            yield write(driven[0].course.tape, Path(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Driven:
    """A load that has come to its end."""

    name: str
    """Of the model, where it is beside another."""
    samples: int
    """In a request."""
    course: Course
    paced: Paced | None
    ending: Ending
    messages: int
    """Distinct requests."""


def _driven(subject: Subject, plan: Plan, tapes: ExitStack) -> Iterator[_Driven]:
    """Put every model under its load, all at the same time."""
    everyone = (("", subject), *subject.beside)
    known = [Event() for _ in everyone]

    def drive(place: int, tape: Tape) -> _Driven:
        name, each = everyone[place]
        session, load = cast("CanSend | CanDrive", each.session), each.load or Load()
        try:
            with _driving(session, each.feeds, replace(load, requests=None), plan.seed) as (driven, messages):
                course = Course(driven=driven, session=session, load=load, tape=tape)
                paced = course.paced(each, plan)
                known[place].set()
                while not all(other.is_set() for other in known):
                    course.go_on()
                course.look()
                ending = course.stop()
        finally:
            known[place].set()  # whatever went wrong, nobody is to wait for it
        samples = session.samples if isinstance(session, CanDrive) else each.samples
        return _Driven(
            name=name, samples=samples, course=course, paced=paced, ending=ending, messages=messages
        )

    first, *others = [tapes.enter_context(Tape()) for _ in everyone]
    if not others:
        yield drive(0, first)
        return
    with ThreadPoolExecutor(len(others)) as pool:
        beside = [pool.submit(drive, place, tape) for place, tape in enumerate(others, 1)]
        yield drive(0, first)
        yield from (each.result() for each in beside)


def _told(driven: _Driven, plan: Plan, since: int) -> Iterator[Measurement | Doubt | Failure]:
    """Give what a load showed from a time on."""
    course, ending = driven.course, driven.ending
    whole, account = course.window(driven.paced, since=since, samples=driven.samples, unsent=ending.unsent)
    window = course.measured(whole, driven.paced, since)
    said = _said(ending.faults, course.session) or ending.failure
    yield from _shown(window, driven.paced, plan, said)
    if account is None and isinstance(course.session, HasServerStats):
        yield _NO_ACCOUNT
    elif (
        account is not None and load_analysis.void(window) != load_analysis.SATURATED
    ):  # or what it did is not what was due
        yield from _accounted(account, whole)
    if driven.messages == 1:
        yield _REPEATED
    if course.load.trace and (unused := unused_of_trace(course.load.trace)):
        yield Doubt(
            code="trace-reduced",
            seen=f"the trace also tells {', '.join(unused)} of its requests, which were not used: only when "
            "they were due",
            advice="give requests of such sizes with --input, or their lengths with the knobs of the server",
        )
    yield from _outcome(course.tape, ending.replies, course.session, said)
    yield from _end(course)


def _shown(window: Window, paced: Paced | None, plan: Plan, said: str) -> Iterator[Measurement | Doubt]:
    """Give what the steady window shows, and what is to be doubted of it."""
    latency = None
    for found in load_analysis.measurements(window):
        latency = found.value if found.metric == "latency" else latency
        yield found
    yield from _client(window)
    yield from load_analysis.doubts(window, said)
    if paced is not None and not load_analysis.void(window):
        yield from _unsure(latency, paced, plan, window.load)


def _end(course: Course) -> Iterator[Failure]:
    """Tell of a load that ended otherwise than was meant."""
    wrong = (
        course.silence() if course.ending == SILENCE and _answered(course.tape) else "",
        f"the server ended by itself: {gone}" if (gone := _gone(course.session)) else "",
    )
    yield from (Failure(where="load", kind=FailureKind.SERVER, message=each) for each in wrong if each)


def _answered(records: Parted) -> bool:
    return any(part.fine.any() for part in records.parts())


def _gone(session: object) -> str:
    return session.ended() if isinstance(session, MayEnd) else ""


@contextmanager
def _driving(
    session: CanSend | CanDrive, feeds: Sequence[Feed], load: Load, seed: int
) -> Iterator[tuple[Driving, int]]:
    """Begin the load; give it, and how many distinct requests it has."""
    if isinstance(session, CanDrive):
        from modeldyno.loadgen.thread_load import threads  # noqa: PLC0415 - only a server is sent to

        calls = session.calls()
        with threads(calls, load, seed=seed) as driven:
            yield driven, len(calls)
    else:
        from modeldyno.loadgen.driver_pool import driving  # noqa: PLC0415 - only a server is sent to

        target = session.target(feeds)
        with driving(target, load, seed=seed) as driven:
            yield driven, len(target.messages)


def _unsure(latency: object, paced: Paced, plan: Plan, load: Load) -> Iterator[Doubt]:
    """Give the doubts of the latency: of its course, and of what is told of it.

    How long a load lasts is no matter of the plan where the load says it.
    """
    longer = "--duration" if load.duration is not None else "--requests" if load.requests is not None else ""
    doubts = list(timing_loop.course_doubts("latency", paced))
    if isinstance(latency, Distribution):
        doubts += of_distribution("latency", latency, plan.percentiles)
    for each in doubts:
        advice = each.advice.replace("--max-time", longer) if longer else each.advice
        yield replace(each, advice=advice)


def _client(window: Window) -> Iterator[Measurement]:
    """Say what a request cost the client."""
    if (count := len(window.sent())) and window.clients:
        yield observed("client_time", sum(window.clients) * window.seconds / count)


def _accounted(account: Account, window: Window) -> Iterator[Measurement | Doubt]:
    done, total = window.done(), sum(int((part.end - part.sent).sum()) for part in window.done().parts())
    if count := len(done):
        service = total * NANO / count
        yield from latency_breakdown.measurements(account, service)
        yield from latency_breakdown.doubts(account, service, count)


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
    records: Parted, replies: Sequence[Reply], session: CanSend | CanDrive, said: str
) -> Iterator[Failure]:
    """Tell what was wrong: nothing was answered, or an answer is none."""
    ended = [Outcome(int(part.outcome[0])) for part in records.parts()]
    if ended and not _answered(records):
        count = sum(map(len, records.parts()))
        yield Failure(
            where="load",
            kind=FailureKind.SERVER,
            message=f"none of {count:,} requests was answered well; the first one ended as {ended[0].word}"
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

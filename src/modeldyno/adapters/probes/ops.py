"""The probe ``ops``: what runs within a call, operator by operator, and what of it is needless."""

from __future__ import annotations

from hashlib import file_digest
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import observed
from modeldyno.core.result.result import Artifact
from modeldyno.core.result.trace_data import Activity
from modeldyno.core.stats.units import BYTES, format_quantity
from modeldyno.core.trace.op_events import executed
from modeldyno.core.trace.redundant_ops import wastes
from modeldyno.interfaces import HasFlow, HasOperators, Pass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.metrics.measurement import Measurement
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.trace.op_events import WatchedCalls
    from modeldyno.interfaces import Subject

needs = HasOperators
pass_ = Pass.SECOND

SCOPE = "ops"
MOST_CALLS = 10
"""Calls that are watched at most: enough for a mean, and few enough to hold all that happens in them."""
MOST_EVENTS = 100_000
"""Events that are held at once, as far as one call does not have more by itself."""
SHARE = 0.25
"""Part of the time limit that the watched calls may take."""
TRACED = 3
"""Calls in a trace."""
LARGEST = 256 * 2**20
"""Bytes of a trace at most, before it is compressed; Perfetto opens no more in a browser."""
_EVENT = 600
"""Bytes that one event takes in a trace, about."""


def measure(subject: Subject, plan: Plan) -> Iterator[Measurement | Doubt | Activity | Artifact]:
    """Watch a few calls, follow the data through one, and write a trace if one is asked for."""
    session: object = subject.session  # which has capabilities that its type does not tell
    assert isinstance(session, HasOperators)
    plain = _plain(subject, plan)
    # The first watched call pays for what a profiler sets up; it tells how many more to ask for.
    first = session.operators(subject.feeds[0], 1, None)
    found = first
    if not subject.interrupted():
        found = session.operators(subject.feeds[0], _calls(first, plan), None)
    plain += _plain(subject, plan)
    yield observed("pass_overhead", median(found.times) / median(plain), scope=SCOPE)
    yield Activity(executed=executed(found))
    if found.hidden:
        yield _HIDDEN
    if not subject.interrupted():
        yield from _needless(subject)
    if subject.observation.trace and not subject.interrupted():
        yield _traced(session, subject, Path(subject.observation.trace), first)


def _plain(subject: Subject, plan: Plan) -> list[float]:
    """Time a few calls that nobody watches, seconds."""
    times: list[float] = []
    while not times or (len(times) < MOST_CALLS and sum(times) < SHARE * plan.max_time):
        begin = perf_counter()
        subject.calls[0]()
        times.append(perf_counter() - begin)
        if subject.interrupted():
            break
    return times


def _calls(first: WatchedCalls, plan: Plan) -> int:
    """Say how many calls to watch, by what one takes and how much happens in it."""
    by_time = SHARE * plan.max_time / max(first.times[0], 1e-6)
    by_size = MOST_EVENTS / max(1, len(first.occurrences))
    return max(1, min(MOST_CALLS, int(by_time), int(by_size)))


_HIDDEN = Doubt(
    code="unseen-layers",
    seen="the model, or a part of it, is compiled: its operators are told as those of the whole, and "
    "needless copies are not looked for",
    advice="run it with --set compile=off to see which module runs what",
)


def _needless(subject: Subject) -> Iterator[Activity | Doubt]:
    session: object = subject.session
    if not isinstance(session, HasFlow):
        return
    try:
        flow = session.flow(subject.feeds[0])
    except Exception as error:  # noqa: BLE001 - a model that does not bear to be followed was measured all the same
        yield Doubt(
            code="not-followed",
            seen=f"the data could not be followed through a call ({type(error).__name__}: {error})"[:500],
            advice="nothing, if needless copies are of no interest",
        )
        return
    if flow is not None:
        yield Activity(wastes=wastes(flow))


def _traced(session: HasOperators, subject: Subject, path: Path, first: WatchedCalls) -> Artifact | Doubt:
    size = _EVENT * max(1, len(first.occurrences))
    calls = max(1, min(TRACED, LARGEST // size))
    if size > LARGEST:
        return _untraced(
            f"one call has {len(first.occurrences):,} events, more than the "
            f"{format_quantity(LARGEST, BYTES, 3)} that a trace may have"
        )
    try:
        session.operators(subject.feeds[0], calls, path)
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return _untraced(f"{error.strerror or error}: {path}")
    return Artifact(name="trace", path=str(path), digest=f"sha256:{digest}")


def _untraced(why: str) -> Doubt:
    return Doubt(
        code="no-trace",
        seen=f"no trace was written: {why}",
        advice="give --trace a file in a directory that can be written to; the summary needs no trace",
    )

"""The probe ``ops``: the operators that run within a call, and which of them are redundant."""

from __future__ import annotations

from hashlib import file_digest
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from modeldyno.base.clock import perf_counter
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.result.result import Artifact
from modeldyno.base.result.trace_data import TraceReport
from modeldyno.base.stats.units import BYTES, format_quantity
from modeldyno.engine.interfaces.probe import Pass
from modeldyno.engine.interfaces.session import HasOperators, LocalSession
from modeldyno.engine.trace.op_events import operator_times, sum_occurrences
from modeldyno.engine.trace.redundant_ops import find_redundant_ops

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.engine.interfaces.probe import ProbeContext
    from modeldyno.engine.trace.op_events import WatchedCalls

needs = HasOperators
pass_ = Pass.SECOND

SCOPE = "ops"
ENOUGH_CALLS, MOST_CALLS = 10, 100
"""Watched calls that are enough for a mean, and how many there are at most, if they are short."""
SHORT, FEW_EVENTS = 1.0, 10_000
"""Seconds and events of all watched calls up to which there are more than enough."""
MOST_EVENTS = 100_000
"""Maximum of events that are kept at once, unless a single call has more."""
SHARE = 0.25
"""Share of the time limit that the watched calls may take."""
TRACED = 3
"""Calls in a trace."""
LARGEST = 256 * 2**20
"""Maximum bytes of a trace before compression; Perfetto opens no more in a browser."""
_EVENT_BYTES = 600
"""Approximate bytes of one event in a trace."""


def measure(subject: ProbeContext, plan: Plan) -> Iterator[Measurement | Doubt | TraceReport | Artifact]:
    """Record a few calls, follow the data flow of one, and write a trace if requested."""
    session: object = subject.session  # whose type does not show all of its capabilities
    assert isinstance(session, HasOperators)
    plain_times = _time_plain_calls(subject, plan)
    # The first watched call includes the profiler's set-up; it determines how many more to make.
    first = session.operators(subject.feeds[0], 1, None)
    watched = first
    if not subject.interrupted():
        watched = session.operators(subject.feeds[0], _call_count(first, plan), None)
    plain_times += _time_plain_calls(subject, plan)
    yield observed_number("pass_overhead", median(watched.times) / median(plain_times), scope=SCOPE)
    yield from _divide_calls(watched, plain_times)
    yield TraceReport(executed=sum_occurrences(watched), tick=watched.tick)
    if watched.hidden:
        yield _HIDDEN
    if not subject.interrupted():
        yield from _redundant_ops(subject, median(plain_times))
    if subject.observation.trace and not subject.interrupted():
        yield _write_trace(session, subject, Path(subject.observation.trace), first)


def _divide_calls(watched: WatchedCalls, plain_times: list[float]) -> Iterator[Measurement]:
    """Yield what of each watched call is in operators, what is outside of them, and calls without a profiler.

    With kernels on a device, what they take at the same time as the host is not outside of them.
    """
    inside = operator_times(watched)
    outside = [max(0.0, total - part) for total, part in zip(watched.times, inside, strict=True)]
    samples = {"operator_time": inside, "dispatch_time": outside, "unwatched_time": plain_times}
    for metric, seconds in samples.items():
        yield Measurement(metric=metric, value=Distribution.of(seconds), scope=SCOPE)


def _time_plain_calls(subject: ProbeContext, plan: Plan) -> list[float]:
    """Return the seconds of a few calls without a profiler."""
    times: list[float] = []
    spent = 0.0
    while not times or (_wants_more(len(times), spent) and spent < SHARE * plan.max_time):
        begin = perf_counter()
        subject.calls[0]()
        times.append(perf_counter() - begin)
        spent += times[-1]
        if subject.interrupted():
            break
    return times


def _wants_more(calls: int, seconds: float) -> bool:
    return calls < (MOST_CALLS if seconds < SHORT else ENOUGH_CALLS)


def _call_count(first: WatchedCalls, plan: Plan) -> int:
    """Choose the number of calls to watch from the time and the events of one."""
    seconds, events = max(first.times[0], 1e-6), max(1, len(first.occurrences))
    short = min(MOST_CALLS, SHORT / seconds, FEW_EVENTS / events)
    bounds = (max(ENOUGH_CALLS, short), SHARE * plan.max_time / seconds, MOST_EVENTS / events)
    return max(1, int(min(bounds)))


_HIDDEN = Doubt(
    code="unseen-layers",
    seen="the model, or a part of it, is compiled: its operators are not attributed to modules, and "
    "redundant operators are not searched for",
    advice="run it with `compile=off` to see which module runs what",
)


def _redundant_ops(subject: ProbeContext, plain: float) -> Iterator[TraceReport | Doubt]:
    """Yield the redundant operators; their times are parts of a plain call of `plain` seconds."""
    session = subject.session
    assert isinstance(session, LocalSession)
    try:
        flow = session.flow(subject.feeds[0])
    except Exception as error:  # noqa: BLE001 - the measurements stand without the data flow
        yield Doubt(
            code="not-followed",
            seen=f"the data flow of a call could not be recorded ({type(error).__name__}: {error})"[:500],
            advice="nothing to do if redundant operators are of no interest",
        )
        return
    if flow is not None:
        yield TraceReport(wastes=find_redundant_ops(flow.within(plain)))


def _write_trace(
    session: HasOperators, subject: ProbeContext, path: Path, first: WatchedCalls
) -> Artifact | Doubt:
    size = _EVENT_BYTES * max(1, len(first.occurrences))
    calls = max(1, min(TRACED, LARGEST // size))
    if size > LARGEST:
        return _no_trace_doubt(
            f"one call has {len(first.occurrences):,} events, more than the "
            f"{format_quantity(LARGEST, BYTES, 3)} that a trace may have"
        )
    try:
        session.operators(subject.feeds[0], calls, path)
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return _no_trace_doubt(f"{error.strerror or error}: {path}")
    return Artifact(name="trace", path=str(path), digest=f"sha256:{digest}")


def _no_trace_doubt(reason: str) -> Doubt:
    return Doubt(
        code="no-trace",
        seen=f"no trace was written: {reason}",
        advice="name a file in a writable directory with `trace`; the summary needs no trace",
    )

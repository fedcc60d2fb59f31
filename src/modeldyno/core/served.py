"""What a load showed: from the records of its requests to measurements, and to reasons to doubt them.

The steady window is cut by one rule: a request belongs to it when it was due in it, and is followed to its
end even where that comes later, so that slow ones are not left out; rates count what ended in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from modeldyno.core import statistics
from modeldyno.core.doubt import Doubt
from modeldyno.core.drift import find_drift
from modeldyno.core.load import Load
from modeldyno.core.measurement import Distribution, Interval, Measurement, observed
from modeldyno.core.records import Outcome, Records
from modeldyno.core.units import CORES, RATE, SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.records import Column
    from modeldyno.core.statistics import Samples

NANO = 1e-9
SATURATED, CLIENT_LIMITED = "saturated", "client-limited"
_GRID = 64
"""Parts of the window whose counts tell how certain a rate is."""
_GROWTH, _SLOW_GROWTH, _FEW = 0.05, 0.01, 10
"""Shares of what was due that are not done at the end: evidently too much; too much if latency rises with it;
and a number of requests that says nothing."""
_RISE = 0.5
"""Rise of the latency over the window, as a fraction of its median, that shows a growing queue."""
_BUSY = 0.9
"""Cores: a driver that is busier than this may hold its requests up."""
_IDLE = 0.1
"""Share of a closed loop's slots that may be idle, and of the service time that sending may lag behind."""
_LAG = 1e-3
"""Seconds of lag that are no reason to doubt, whatever the server takes."""
_MEDIAN, _TAIL = 0.5, 0.99


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """The steady part of a load."""

    records: Records
    """Of the whole load, drain included."""
    begin: int
    """Nanoseconds of the monotonic clock."""
    end: int
    load: Load
    samples: int = 1
    """Samples in a request."""
    clients: tuple[float, ...] = ()
    """Cores that each driver kept busy."""
    backlog: int = 0
    """Requests that were due at the end and had not been sent."""
    how: Mapping[str, Any] = field(default_factory=dict)
    """How the window was found: what a Distribution tells beside its samples."""

    @property
    def seconds(self) -> float:
        """Its length."""
        return max(self.end - self.begin, 1) * NANO

    def due(self) -> Records:
        """Give the requests that were due in it."""
        return self.records.chosen((self.records.due >= self.begin) & (self.records.due < self.end))

    def sent(self) -> Records:
        """Give those that were sent in it, whenever they were due and however they ended."""
        return self.records.chosen((self.records.sent >= self.begin) & (self.records.sent < self.end))

    def done(self) -> Records:
        """Give those that were answered well in it."""
        ended = (self.records.end >= self.begin) & (self.records.end < self.end)
        return self.records.chosen(ended & self.records.fine)


def void(window: Window) -> str:
    """Say why no latency of this load is a claim: ``saturated``, ``client-limited``, or nothing.

    Where the client held requests up, nothing is known of the server, whatever its queue looks like.
    """
    if any(_limits(window)):
        return CLIENT_LIMITED
    return SATURATED if _growth(window) else ""


def measurements(window: Window) -> Iterator[Measurement]:
    """Give every number of a load; latencies are of the requests that were answered well."""
    due, done = window.due(), window.done()
    fine = due.chosen(due.fine)
    why = void(window)
    # What had to be given up took at least as long as it was waited for, and more is not claimed of it.
    waited = due.chosen(due.fine | (due.outcome == Outcome.CANCELLED)) if why == SATURATED else fine
    if why and not len(waited):  # what was due in the window was held up beyond its end
        waited = done
    if len(waited):
        yield from _times(window, waited, why)
    yield from _rates(window, due, done, why)
    settled = int((due.outcome != Outcome.CANCELLED).sum())
    yield observed("error_rate", 1 - len(fine) / settled if settled else 0.0)
    for outcome in Outcome:
        count = int((due.outcome == outcome).sum())
        if count:
            yield observed("requests", count, scope=outcome.word)
    if retried := int(due.retries.sum()):
        yield observed("requests", retried, scope="retried")
    yield observed("in_flight", _in_flight(window))
    for number, cores in enumerate(window.clients):
        yield observed("client_cpu", cores, scope=f"driver {number}")


def doubts(window: Window, said: str = "") -> Iterator[Doubt]:
    """Give the reasons not to trust what a load showed; `said` is what the server says of a failure."""
    limits = list(_limits(window))
    yield from limits
    if not limits and (growth := _growth(window)):
        yield Doubt(
            code=SATURATED,
            seen=f"{growth}: latency rises as long as the load lasts, and has no steady value",
            advice="lower the rate; find the largest that holds with --find-load",
        )
    if not limits:
        yield from _late(window)
    due = window.due()
    if lost := int((~due.fine & (due.outcome != Outcome.CANCELLED)).sum()):
        wrong = (each for each in Outcome if each not in {Outcome.OK, Outcome.CANCELLED})
        words = {each.word: int((due.outcome == each).sum()) for each in wrong}
        named = ", ".join(f"{count:,} {word}" for word, count in words.items() if count)
        yield Doubt(
            code="failed-requests",
            seen=f"{lost:,} of {len(due):,} requests failed: {named}; they are in no latency"
            f"{said and f' ({said})'}",
            advice="read the rate of errors beside the latency",
        )


def _times(window: Window, fine: Records, why: str) -> Iterator[Measurement]:
    order = statistics.load_numpy().argsort(fine.due, kind="stable")
    ended, sent = fine.end[order], fine.sent[order]
    columns = {
        "latency": ended - fine.due[order],
        "service_time": ended - sent,
        "send_lag": sent - fine.due[order],
    }
    for metric, column in columns.items():
        yield _spread(window, metric, column * NANO, why if metric == "latency" else "")
    if fine.pieces:
        yield from _streamed(window, fine, why)


def _streamed(window: Window, fine: Records, why: str) -> Iterator[Measurement]:
    """Give the times of answers that came in pieces, each of which bears one token or several.

    The first byte of an answer often comes before the prompt is read: a role, or the head alone. So the
    first token is the first piece, and an answer without one has none.
    """
    np = statistics.load_numpy()
    counts = np.array([len(pieces) for pieces in fine.pieces])
    said = fine.chosen(counts > 0)
    if len(said):
        first = np.array([pieces[0] for pieces in said.pieces])
        yield _spread(window, "time_to_first_token", (first - said.due) * NANO, why)
    gaps = [np.diff(pieces) for pieces in said.pieces if len(pieces) > 1]
    if gaps:
        yield _spread(window, "inter_chunk_latency", np.concatenate(gaps) * NANO, "")
    # Tokens that came all at once have no time of their own.
    several = fine.chosen((fine.tokens > 1) & (counts > 1))
    if not len(several):
        return
    times = np.array([pieces[-1] - pieces[0] for pieces in several.pieces])
    yield _spread(window, "time_per_output_token", times / (several.tokens - 1) * NANO, "")
    if all(len(pieces) == count for pieces, count in zip(several.pieces, several.tokens, strict=True)):
        gaps = [np.diff(pieces) for pieces in several.pieces]
        yield _spread(window, "inter_token_latency", np.concatenate(gaps) * NANO, "")


def _spread(window: Window, metric: str, seconds: Samples, why: str) -> Measurement:
    return Measurement(metric=metric, value=Distribution.of(seconds, void=why, **window.how))


def _rates(window: Window, due: Records, done: Records, why: str) -> Iterator[Measurement]:
    np = statistics.load_numpy()
    each = np.ones(len(done))
    yield _rate(window, "throughput", done.end, window.samples * each)
    yield _rate(window, "request_rate", done.end, each)
    if (told := done.tokens > 0).any():
        yield _rate(window, "token_rate", done.end[told], done.tokens[told])
    if not window.load.closed and why != CLIENT_LIMITED:  # or what was due has not been told
        yield observed("offered_rate", (len(due) + window.backlog) / window.seconds)
    if window.load.within is not None:
        good = done.end - done.due <= window.load.within / NANO
        yield _rate(window, "goodput", done.end[good], each[good])


def _rate(window: Window, metric: str, ends: Column, each: Column) -> Measurement:
    """Count `each` per second, with an interval from how the counts of equal parts of the window vary."""
    np = statistics.load_numpy()
    counts, _ = np.histogram(ends, bins=_GRID, range=(window.begin, window.end), weights=each)
    scale = _GRID / window.seconds
    low, high = statistics.mean_interval(counts.astype(float))
    value = float(each.sum()) / window.seconds
    interval = Interval(low=min(value, low * scale), high=max(value, high * scale))
    return observed(metric, value, interval=interval)


def _in_flight(window: Window) -> float:
    """Give the mean number of requests on their way: their time within the window over its length."""
    np = statistics.load_numpy()
    sent, end = window.records.sent, window.records.end
    within = np.minimum(end, window.end) - np.maximum(sent, window.begin)
    return float(within[(within > 0) & (sent > 0)].sum()) * NANO / window.seconds


def _growth(window: Window) -> str:
    """Say by how much the work that is not done grew, where that shows an overload; else nothing.

    In a closed loop nothing can grow.
    """
    if window.load.closed:
        return ""
    due = window.due()
    before = _outstanding(window, window.begin)
    growth = _outstanding(window, window.end) + window.backlog - before
    arrived = len(due) + window.backlog
    if growth <= max(_FEW, _SLOW_GROWTH * arrived):
        return ""
    if growth <= _GROWTH * arrived and not _rising(due):
        return ""
    return f"of {arrived:,} requests that were due, {growth:,} more were waiting at the end than before"


def _outstanding(window: Window, when: int) -> int:
    records = window.records
    return int(((records.due < when) & (records.end >= when)).sum())


def _rising(due: Records) -> bool:
    """Say whether the latency rises from the beginning of the window to its end."""
    np = statistics.load_numpy()
    fine = due.chosen(due.fine)
    order = np.argsort(fine.due, kind="stable")
    drift = find_drift((fine.end - fine.due)[order] * NANO)
    return drift is not None and drift.size > _RISE


def _limits(window: Window) -> Iterator[Doubt]:
    """Find signs that the client, not the server, set the pace."""
    busiest = max(window.clients, default=0.0)
    late = _lateness(window)
    if busiest > _BUSY and (late or window.load.closed):
        yield _limited(f"a driver kept {format_quantity(busiest, CORES, 2)} busy, which is all that one can")
    elif late:
        yield _limited(late)


def _lateness(window: Window) -> str:
    """Say how the client held requests up, where it did so to most of them.

    Waiting for a slot is no lateness of ours.
    """
    sent = window.sent()
    if not len(sent):
        return ""
    done = window.done()
    service = statistics.quantile((done.end - done.sent) * NANO, _MEDIAN) if len(done) else 0.0
    lag = statistics.quantile((sent.sent - sent.due) * NANO, _MEDIAN)
    if lag <= _IDLE * service:
        return ""
    if window.load.closed:
        idle = 1 - _in_flight(window) / (window.load.slots or 1)
        return (
            f"{idle:.0%} of the slots were idle between an answer and the next request"
            if idle > _IDLE
            else ""
        )
    if window.load.concurrency is not None or lag <= _LAG:
        return ""
    rate = format_quantity(len(sent) / window.seconds, RATE, 3)
    return f"half of the requests were sent {format_quantity(lag, SECONDS, 2)} late or later, at {rate}"


def _late(window: Window) -> Iterator[Doubt]:
    """Doubt the tail of a latency in which some requests were sent late."""
    fine = _answered(window)
    if window.load.closed or window.load.concurrency is not None or not len(fine):
        return
    lag = statistics.quantile((fine.sent - fine.due) * NANO, _TAIL)
    if lag > max(_LAG, _IDLE * statistics.quantile((fine.end - fine.sent) * NANO, _TAIL)):
        yield Doubt(
            code="sent-late",
            seen=f"one request in a hundred was sent {format_quantity(lag, SECONDS, 2)} late or later, "
            "which is in the latency",
            advice="give the client a core of its own, or read the service time beside it",
        )


def _answered(window: Window) -> Records:
    due = window.due()
    return due.chosen(due.fine)


def _limited(seen: str) -> Doubt:
    return Doubt(
        code=CLIENT_LIMITED,
        seen=f"{seen}: what was measured is the client, and tells nothing of the server",
        advice="add processes with --drivers, give the client cores of its own, or lower the load",
    )

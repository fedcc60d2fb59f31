"""What a load showed: from the records of its requests to measurements, and to reasons to doubt them.

The steady window is cut by one rule: a request belongs to it when it was due in it, and is followed to its
end even where that comes later, so that slow ones are not left out; rates count what ended in it. What is
counted is counted of all requests; times of more than a million are those of a sample of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from modeldyno.core.load.request_log import Chosen, Outcome, Parted, Records, sample, thinning
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Distribution, Interval, Measurement, observed
from modeldyno.core.spec.load_spec import Load
from modeldyno.core.stats import statistics
from modeldyno.core.stats.drift import find_drift
from modeldyno.core.stats.units import CORES, RATE, SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.core.load.request_log import Column
    from modeldyno.core.stats.statistics import Samples

NANO = 1e-9
SATURATED, CLIENT_LIMITED = "saturated", "client-limited"
_BINS = 4096
"""Parts of the window in which requests are counted to find the first so many."""
_GRID = 64
"""Parts of the window whose counts tell how certain a rate is."""
_GROWTH, _SLOW_GROWTH, _FEW = 0.05, 0.01, 10
"""Shares of what was due that are not done at the end: evidently too much; too much if latency rises with it;
and a number of requests that says nothing."""
_RISE = 0.4
"""Rise of the latency over the window, as a fraction of its end, that shows a growing queue."""
_BUSY = 0.9
"""Cores: a driver that is busier than this may hold its requests up."""
_IDLE = 0.1
"""Share of a closed loop's slots that may be idle, and of the service time that sending may lag behind."""
_LAG = 1e-3
"""Seconds of lag that are no reason to doubt, whatever the server takes."""
_MEDIAN, _TAIL = 0.5, 0.99
_GLANCE = 200_000
"""Requests that are enough for a reason to doubt."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """The steady part of a load."""

    records: Parted
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

    def due(self) -> Chosen:
        """Give the requests that were due in it."""
        return self._chosen(lambda part: self._holds(part.due))

    def sent(self) -> Chosen:
        """Give those that were sent in it, whenever they were due and however they ended."""
        return self._chosen(lambda part: self._holds(part.sent))

    def done(self) -> Chosen:
        """Give those that were answered well in it."""
        return self._chosen(lambda part: self._holds(part.end) & part.fine)

    def first(self, count: int) -> Window:
        """Cut it to the first so many requests that were due in it: from the first of them to the next after.

        All of those due at the same time belong to it together, as those of a burst are.
        """
        dues = _first_due(self.due(), count + 1, (self.begin, self.end))
        if dues.size <= count:
            return self
        later = dues[dues > dues[count - 1]]
        end = later[0] if later.size else dues[count - 1] + 1
        return replace(self, begin=int(dues[0]), end=int(end), backlog=0)

    def _chosen(self, holds: Callable[[Records], Column]) -> Chosen:
        return Chosen(records=self.records, holds=holds)

    def _holds(self, times: Column) -> Column:
        within: Column = (times >= self.begin) & (times < self.end)
        return within


def _first_due(records: Parted, count: int, span: tuple[int, int]) -> Column:
    """Give when the first so many were due, in order, and some that were due shortly after them.

    They are counted in narrow bins first, so that what comes later takes no memory.
    """
    np = statistics.load_numpy()
    edges = np.linspace(*span, _BINS + 1)
    counts = np.zeros(_BINS)
    for part in records.parts():
        counts += np.histogram(part.due, edges)[0]
    last = edges[min(int(np.searchsorted(counts.cumsum(), count)) + 1, _BINS)]
    dues = [part.due[part.due <= last] for part in records.parts()]
    found: Column = np.sort(np.concatenate(dues)) if dues else np.empty(0, "int64")
    return found


def void(window: Window) -> str:
    """Say why no latency of this load is a claim: ``saturated``, ``client-limited``, or nothing.

    Where the client held requests up, nothing is known of the server, whatever its queue looks like.
    """
    if any(_limits(window)):
        return CLIENT_LIMITED
    return SATURATED if _growth(window) else ""


def measurements(window: Window) -> Iterator[Measurement]:
    """Give every number of a load; latencies are of the requests that were answered well."""
    why = void(window)
    yield from _times(window, _told(window, why), why)
    yield from _rates(window, why)
    ends, retried = _tally(window.due())
    settled = sum(ends.values()) - ends[Outcome.CANCELLED]
    if settled:
        yield observed("error_rate", 1 - ends[Outcome.OK] / settled)
    for outcome, count in ends.items():
        if count:
            yield observed("requests", count, scope=outcome.word)
    if retried:
        yield observed("requests", retried, scope="retried")
    yield observed("in_flight", _in_flight(window))
    for number, cores in enumerate(window.clients):
        yield observed("client_cpu", cores, scope=f"driver {number}")


def _tally(records: Parted) -> tuple[dict[Outcome, int], int]:
    """Count how requests ended, and how often any was sent again."""
    ends, retried = dict.fromkeys(Outcome, 0), 0
    for part in records.parts():
        counts = statistics.load_numpy().bincount(part.outcome, minlength=len(Outcome)).tolist()
        ends = {outcome: ends[outcome] + counts[outcome] for outcome in Outcome}
        retried += int(part.retries.sum())
    return ends, retried


def _told(window: Window, why: str) -> Records:
    """Give the requests whose times are told.

    Of an overload also those that had to be given up: they took at least as long as was waited for them,
    and more is not claimed of it. Where what was due in the window was held up beyond its end, those
    that were done in it.
    """
    due = window.due()
    waited = due.where(lambda part: part.fine | (part.outcome == Outcome.CANCELLED))
    told = sample(waited if why == SATURATED else due.where(_fine))
    return sample(window.done()) if why and not len(told) else told


def _fine(part: Records) -> Column:
    return part.fine


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
    ends, _ = _tally(window.due())
    wrong = {each: n for each, n in ends.items() if n and each not in {Outcome.OK, Outcome.CANCELLED}}
    if wrong:
        named = ", ".join(f"{count:,} {each.word}" for each, count in wrong.items())
        yield Doubt(
            code="failed-requests",
            seen=f"{sum(wrong.values()):,} of {sum(ends.values()):,} requests failed: {named}; "
            f"they are in no latency{said and f' ({said})'}",
            advice="read the rate of errors beside the latency",
        )
    if (each := thinning(window.due().where(_fine))) > 1:
        yield Doubt(
            code="thinned",
            seen=f"there were too many requests to keep the times of all: one of every {each} was drawn at "
            "random, and the slowest",
            advice="what is counted is counted of all; have all times in a file with --records",
        )


def _times(window: Window, told: Records, why: str) -> Iterator[Measurement]:
    if not len(told):
        return
    order = statistics.load_numpy().argsort(told.due, kind="stable")
    yield _spread(window, "latency", (told.end - told.due)[order] * NANO, why)
    yield _spread(window, "service_time", (told.end - told.sent)[order] * NANO, "")
    yield _spread(window, "send_lag", (told.sent - told.due)[order] * NANO, "")
    if told.pieces:
        yield from _streamed(window, told, why)


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


def _rates(window: Window, why: str) -> Iterator[Measurement]:
    np = statistics.load_numpy()
    done = window.done()
    yield _rate(window, "throughput", done, lambda part: np.full(len(part), window.samples))
    yield _rate(window, "request_rate", done, lambda part: np.ones(len(part)))
    told = done.where(lambda part: part.tokens > 0)
    if len(told):
        yield _rate(window, "token_rate", told, lambda part: part.tokens)
    if not window.load.closed and why != CLIENT_LIMITED:  # or what was due has not been told
        yield observed("offered_rate", (len(window.due()) + window.backlog) / window.seconds)
    if (within := window.load.within) is not None:
        good = done.where(lambda part: part.end - part.due <= within / NANO)
        yield _rate(window, "goodput", good, lambda part: np.ones(len(part)))


def _rate(window: Window, metric: str, done: Parted, each: Callable[[Records], Column]) -> Measurement:
    """Sum `each` up per second, with an interval from how the sums of equal parts of the window vary."""
    np = statistics.load_numpy()
    sums = np.zeros(_GRID)
    for part in done.parts():
        within = (window.begin, window.end)
        sums += np.histogram(part.end, bins=_GRID, range=within, weights=each(part))[0]
    scale = _GRID / window.seconds
    low, high = statistics.mean_interval(sums)
    value = float(sums.sum()) / window.seconds
    interval = Interval(low=min(value, low * scale), high=max(value, high * scale))
    return observed(metric, value, interval=interval)


def _in_flight(window: Window) -> float:
    """Give the mean number of requests on their way: their time within the window over its length."""
    np = statistics.load_numpy()
    total = 0
    for part in window.records.parts():
        within = np.minimum(part.end, window.end) - np.maximum(part.sent, window.begin)
        total += int(within[(within > 0) & (part.sent > 0)].sum())
    return total * NANO / window.seconds


def _growth(window: Window) -> str:
    """Say by how much the work that is not done grew, where that shows an overload; else nothing.

    In a closed loop nothing can grow.
    """
    if window.load.closed:
        return ""
    before = _outstanding(window, window.begin)
    growth = _outstanding(window, window.end) + window.backlog - before
    arrived = len(window.due()) + window.backlog
    if growth <= max(_FEW, _SLOW_GROWTH * arrived):
        return ""
    if growth <= _GROWTH * arrived and not _rising(window):
        return ""
    return f"of {arrived:,} requests that were due, {growth:,} more were waiting at the end than before"


def _outstanding(window: Window, when: int) -> int:
    return len(Chosen(records=window.records, holds=lambda part: (part.due < when) & (part.end >= when)))


def _rising(window: Window) -> bool:
    """Say whether the latency rises from the beginning of the window to its end."""
    fine = sample(window.due().where(_fine), _GLANCE)
    order = statistics.load_numpy().argsort(fine.due, kind="stable")
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
    held = window.load.closed or window.load.concurrency is not None
    if not held and window.backlog > max(_FEW, _SLOW_GROWTH * len(window.due())):
        return f"{window.backlog:,} requests that were due had not been sent at the end"
    sent, done = sample(window.sent(), _GLANCE), sample(window.done(), _GLANCE)
    if not len(sent) or (window.load.closed and not len(done)):  # slots that fail pause
        return ""
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
    rate = format_quantity(len(window.sent()) / window.seconds, RATE, 3)
    return f"half of the requests were sent {format_quantity(lag, SECONDS, 2)} late or later, at {rate}"


def _late(window: Window) -> Iterator[Doubt]:
    """Doubt the tail of a latency in which some requests were sent late."""
    fine = sample(window.due().where(_fine), _GLANCE)
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


def _limited(seen: str) -> Doubt:
    return Doubt(
        code=CLIENT_LIMITED,
        seen=f"{seen}: what was measured is the client, and tells nothing of the server",
        advice="add processes with --drivers, give the client cores of its own, or lower the load",
    )

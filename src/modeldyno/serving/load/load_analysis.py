"""Derive measurements, and reasons to doubt them, from the request log of a load.

Counts are of all requests; times of more than a million requests are those of a sample. What belongs to the
window is said in `steady_window`, how rates are counted in `load_rates`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import (
    CLIENT_LIMITED,
    FEWEST_WINDOWS,
    SATURATED,
    Distribution,
    Measurement,
    observed_number,
    ratio_number,
)
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.stats import statistics
from modeldyno.base.stats.drift import find_drift
from modeldyno.base.stats.units import CORES, RATE, SECONDS, format_quantity
from modeldyno.engine.interfaces.server_stats import ServedWindow
from modeldyno.serving.load.answer_times import answer_time
from modeldyno.serving.load.load_rates import count_parts, rate_doubts, rates
from modeldyno.serving.load.request_log import (
    FilteredRecords,
    RecordParts,
    Records,
    sample_records,
    sampling_step,
)
from modeldyno.serving.load.steady_window import NANO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.stats.statistics import Samples
    from modeldyno.engine.interfaces.server_stats import CounterReading, ServerCounters
    from modeldyno.serving.load.request_log import Column, PieceTimes
    from modeldyno.serving.load.steady_window import SteadyWindow

_GROWTH, _SLOW_GROWTH, _FEW = 0.05, 0.01, 10
"""Share of due requests not done at the end that shows an overload; the share that shows one if latency rises
with it; and a number of requests that is too small to say anything."""
_RISE = 0.4
"""Rise of the latency over the window, as a share of its value at the end, that shows a growing queue."""
_BUSY = 0.9
"""Cores: a driver busier than this may delay its requests."""
_IDLE = 0.1
"""Largest share of a closed loop's slots that may be idle, and of the service time that sending may lag."""
_LAG = 1e-3
"""Seconds of send lag that raise no doubt, whatever the service time."""
_MEDIAN, _TAIL = 0.5, 0.99
_DOUBT_SAMPLE = 200_000
"""Requests sampled to decide on a doubt."""


def void_reason(window: SteadyWindow) -> str:
    """Return why no latency of this load is valid: ``saturated``, ``client-limited``, or empty.

    If the client delayed requests, its queue says nothing about the server.
    """
    if any(_client_limits(window)):
        return CLIENT_LIMITED
    return SATURATED if _backlog_growth(window) else ""


def measurements(window: SteadyWindow) -> Iterator[Measurement]:
    """Yield all measurements of a load; latencies are of the requests that were answered well."""
    why = void_reason(window)
    yield from _latencies(window, _timed_requests(window, why), why)
    yield from rates(window, why)
    outcomes, retried = _count_outcomes(window.due())
    settled = sum(count for each, count in outcomes.items() if each is RequestOutcome.OK or each.is_failure)
    if settled:
        yield observed_number("error_rate", 1 - outcomes[RequestOutcome.OK] / settled)
    for outcome, count in outcomes.items():
        if count:
            yield observed_number("requests", count, scope=outcome.word)
    if retried:
        yield observed_number("requests", retried, scope="retried")
    yield from _client_costs(window)


def _count_outcomes(records: RecordParts) -> tuple[dict[RequestOutcome, int], int]:
    """Count requests by outcome, and the retries."""
    outcomes, retried = dict.fromkeys(RequestOutcome, 0), 0
    for part in records.parts():
        counts = statistics.load_numpy().bincount(part.outcome, minlength=len(RequestOutcome)).tolist()
        outcomes = {outcome: outcomes[outcome] + counts[outcome] for outcome in RequestOutcome}
        retried += int(part.retries.sum())
    return outcomes, retried


def request_times(window: SteadyWindow) -> Iterator[Measurement]:
    """Yield the times of the requests that were answered well so far, while the load goes on."""
    yield from _latencies(window, _timed_requests(window, ""), "")


def _timed_requests(window: SteadyWindow, why: str) -> Records:
    """Return the requests whose times are reported.

    In an overload these include the requests cancelled at the end: they took at least as long as the wait
    for them. If all requests due in the window were delayed beyond its end, it is those done in it.
    """
    due = window.due()
    answered_or_cancelled = due.where(lambda part: part.fine | (part.outcome == RequestOutcome.CANCELLED))
    timed = sample_records(answered_or_cancelled if why == SATURATED else due.where(_is_ok))
    return sample_records(window.done()) if why and not len(timed) else timed


def _is_ok(part: Records) -> Column:
    return part.fine


def doubts(window: SteadyWindow, server_message: str = "") -> Iterator[Doubt]:
    """Yield the reasons to doubt a load; `server_message` is the server's message about a failure."""
    limits = list(_client_limits(window))
    yield from limits
    growth = "" if limits else _backlog_growth(window)
    if growth:
        yield Doubt(
            code=SATURATED,
            seen=f"{growth}: latency rises as long as the load lasts, and has no steady value",
            advice="lower the rate; find the largest load that holds with `find_load`",
        )
    if not limits:
        yield from _late_sends(window)
    ends, _ = _count_outcomes(window.due())
    wrong = {each: n for each, n in ends.items() if n and each.is_failure}
    if wrong:
        named = ", ".join(f"{count:,} {each.word}" for each, count in wrong.items())
        yield Doubt(
            code="failed-requests",
            seen=f"{sum(wrong.values()):,} of {sum(ends.values()):,} requests failed: {named}; "
            f"they are not in the latency{server_message and f' ({server_message})'}",
            advice="read the error rate together with the latency",
        )
    yield from rate_doubts(window, CLIENT_LIMITED if limits else SATURATED if growth else "")
    if not limits and not growth:
        yield from _unanswered(window, ends[RequestOutcome.CANCELLED])
    if (each := sampling_step(window.due().where(_is_ok))) > 1:
        yield Doubt(
            code="thinned",
            seen=f"there were too many requests to keep all their times: one of every {each} was drawn at "
            "random, plus the slowest",
            advice="counts are of all requests; write all times to a file with `records`",
        )


def _unanswered(window: SteadyWindow, count: int) -> Iterator[Doubt]:
    """Doubt a load that ended before requests of its window: the slowest are those that are missing."""
    parts = window.due().where(lambda part: part.outcome == RequestOutcome.CANCELLED).parts()
    longest = max((int((part.end - part.due).max()) for part in parts if len(part)), default=0)
    if count:
        yield Doubt(
            code="unanswered",
            seen=f"{count:,} of {len(window.due()):,} requests had no answer when the load ended, one "
            f"of them after {format_quantity(longest * NANO, SECONDS, 2)}; they are not in the latency",
            advice="allow more time with `max_time`",
        )


def _latencies(window: SteadyWindow, records: Records, why: str) -> Iterator[Measurement]:
    if not len(records):
        return
    records = records.at(statistics.load_numpy().argsort(records.due, kind="stable"))
    yield _distribution(window, "latency", (records.end - records.due) * NANO, why)
    yield _distribution(window, "service_time", (records.end - records.sent) * NANO, "")
    yield _distribution(window, "send_lag", (records.sent - records.due) * NANO, "")
    if records.pieces is not None:
        yield from _stream_times(window, records, why)


def _stream_times(window: SteadyWindow, records: Records, why: str) -> Iterator[Measurement]:
    """Yield the times of streamed answers, whose chunks carry one or more tokens each.

    The first byte of an answer often comes before the prompt is processed: a role, or the head alone. So the
    first token is the first non-empty chunk, and an answer without one has none.
    """
    np = statistics.load_numpy()
    assert records.pieces is not None
    for metric, void in _STREAM_TIMES.items():
        if metric == "time_to_first_output_token" and not records.reasoning.any():
            continue  # it is the time to the first token
        times = answer_time(metric, records)
        yield from _distribution_of_some(window, metric, times[~np.isnan(times)] * NANO, why if void else "")
    pace = answer_time("time_per_output_token", records)
    yield from _distribution_of_some(window, "user_token_rate", 1 / (pace[pace > 0] * NANO), "")
    parts = count_parts(window)
    yield from _gaps(window, "inter_chunk_latency", records.pieces, parts)
    # Tokens that all came at once have no time per token.
    multi_token = records.chosen((records.tokens > 1) & (records.pieces.counts > 1))
    if multi_token.pieces is not None and (multi_token.pieces.counts == multi_token.tokens).all():
        yield from _gaps(window, "inter_token_latency", multi_token.pieces, parts)


_STREAM_TIMES = {
    "time_to_first_token": True, "first_token_service_time": False, "time_to_first_output_token": True,
    "time_per_output_token": False, "normalized_latency": True,
}  # fmt: skip
"""Metric to whether it counts from when a request was due, and is void where the latency is."""


def _gaps(window: SteadyWindow, metric: str, pieces: PieceTimes, parts: int) -> Iterator[Measurement]:
    """Yield the gaps between pieces in the order of time, in as many blocks as the window has parts.

    Gaps of one answer are alike, and so are those of all answers at one time; see
    `statistics.clustered_size`.
    """
    np = statistics.load_numpy()
    gaps, when = pieces.gaps()
    if not gaps.size:
        return
    order = np.argsort(when, kind="stable")
    edges = np.linspace(when.min(), when.max() + 1, parts + 1)
    blocks = (tuple(np.histogram(when, edges)[0].tolist()),)
    yield _distribution(window, metric, gaps[order] * NANO, "", blocks=blocks)


def _distribution_of_some(
    window: SteadyWindow, metric: str, values: Samples, why: str
) -> Iterator[Measurement]:
    if values.size:
        yield _distribution(window, metric, values, why)


def _distribution(window: SteadyWindow, metric: str, values: Samples, why: str, **more: Any) -> Measurement:
    return Measurement(metric=metric, value=Distribution.of(values, void=why, **window.how, **more))


def served_windows(readings: Sequence[CounterReading], window: SteadyWindow) -> list[ServedWindow]:
    """Return what the server counted from each reading to the next, and the requests answered meanwhile.

    One that does not count requests has answered ours.
    """
    np = statistics.load_numpy()
    edges = [reading.when for reading in readings]
    answers, service = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    for part in window.done().parts():
        places = np.searchsorted(edges, part.end, side="right") - 1
        inside = (places >= 0) & (places < answers.size)
        answers += np.bincount(places[inside], minlength=answers.size)
        seconds = (part.end - part.sent)[inside] * NANO
        service += np.bincount(places[inside], weights=seconds, minlength=answers.size)
    return [
        ServedWindow(account=_account(before, after, int(n)), answers=int(n), service=float(seconds))
        for (before, after), n, seconds in zip(pairwise(readings), answers, service, strict=True)
    ]


def _account(before: CounterReading, after: CounterReading, answers: int) -> ServerCounters:
    account = after.counters.since(before.counters)
    return account if after.counters.requests else replace(account, requests=answers)


def _client_costs(window: SteadyWindow) -> Iterator[Measurement]:
    """Yield the cores that each driver kept busy, and the processor time of all of them per request."""
    np = statistics.load_numpy()
    drivers = window.drivers if all(len(each.cpu) >= FEWEST_WINDOWS for each in window.drivers) else ()
    for number, cores in enumerate(window.clients):
        scope = f"driver {number}"
        if drivers and sum(drivers[number].wall) > 0:
            yield ratio_number("client_cpu", drivers[number].cpu, drivers[number].wall, scope=scope)
        else:
            yield observed_number("client_cpu", cores, scope=scope)
    sent = np.sum([driver.sent for driver in drivers], axis=0)
    if sent.sum() > 0:
        yield ratio_number("client_time", np.sum([driver.cpu for driver in drivers], axis=0), sent)
    elif window.clients and (count := len(window.sent())):
        yield observed_number("client_time", sum(window.clients) * window.seconds / count)


def _backlog_growth(window: SteadyWindow) -> str:
    """Describe by how much the backlog grew, if that shows an overload; else return an empty string.

    In a closed loop the backlog cannot grow.
    """
    if window.load.closed:
        return ""
    before = _outstanding(window, window.begin)
    growth = _outstanding(window, window.end) + window.backlog - before
    arrived = len(window.due()) + window.backlog
    if growth <= max(_FEW, _SLOW_GROWTH * arrived):
        return ""
    if growth <= _GROWTH * arrived and not _is_latency_rising(window):
        return ""
    return f"of {arrived:,} requests that were due, {growth:,} more were waiting at the end than before"


def _outstanding(window: SteadyWindow, when: int) -> int:
    return len(
        FilteredRecords(records=window.records, holds=lambda part: (part.due < when) & (part.end >= when))
    )


def _is_latency_rising(window: SteadyWindow) -> bool:
    """Return whether the latency rises over the window."""
    records = sample_records(window.due().where(_is_ok), _DOUBT_SAMPLE)
    order = statistics.load_numpy().argsort(records.due, kind="stable")
    drift = find_drift((records.end - records.due)[order] * NANO)
    return drift is not None and drift.size > _RISE


def _client_limits(window: SteadyWindow) -> Iterator[Doubt]:
    """Yield doubts if the client, not the server, set the pace."""
    busiest = max(window.clients, default=0.0)
    late = _send_delay(window)
    if busiest > _BUSY and (late or window.load.closed):
        yield _client_limited(
            f"a driver kept {format_quantity(busiest, CORES, 2)} busy, which is the most it can use"
        )
    elif late:
        yield _client_limited(late)


def _send_delay(window: SteadyWindow) -> str:
    """Describe how the client delayed most of the requests; empty if it did not.

    Waiting for a slot is not counted as delay.
    """
    if not window.load.holds_back and window.backlog > max(_FEW, _SLOW_GROWTH * len(window.due())):
        return f"{window.backlog:,} requests that were due had not been sent at the end"
    sent, done = sample_records(window.sent(), _DOUBT_SAMPLE), sample_records(window.done(), _DOUBT_SAMPLE)
    if not len(sent) or (window.load.closed and not len(done)):  # slots pause after a failure
        return ""
    service = statistics.quantile((done.end - done.sent) * NANO, _MEDIAN) if len(done) else 0.0
    lag = statistics.quantile((sent.sent - sent.due) * NANO, _MEDIAN)
    if lag <= _IDLE * service or window.load.prefill_concurrency is not None:
        return ""
    if window.load.closed:
        late = float((sent.sent - sent.due).mean()) * NANO * len(window.sent()) / window.seconds
        idle = late / (window.load.slots or 1)  # a slot whose user thinks is none
        return (
            f"{idle:.0%} of the slots were idle between an answer and the next request"
            if idle > _IDLE
            else ""
        )
    if window.load.holds_back or lag <= _LAG:
        return ""
    rate = format_quantity(len(window.sent()) / window.seconds, RATE, 3)
    return f"half of the requests were sent {format_quantity(lag, SECONDS, 2)} late or later, at {rate}"


def _late_sends(window: SteadyWindow) -> Iterator[Doubt]:
    """Yield a doubt if some requests in the tail of the latency were sent late."""
    records = sample_records(window.due().where(_is_ok), _DOUBT_SAMPLE)
    if window.load.holds_back or not len(records):
        return
    lag = statistics.quantile((records.sent - records.due) * NANO, _TAIL)
    if lag > max(_LAG, _IDLE * statistics.quantile((records.end - records.sent) * NANO, _TAIL)):
        yield Doubt(
            code="sent-late",
            seen=f"one request in a hundred was sent {format_quantity(lag, SECONDS, 2)} late or later, "
            "which is part of the latency",
            advice="give the client a core of its own, or look at the service time as well",
        )


def _client_limited(evidence: str) -> Doubt:
    return Doubt(
        code=CLIENT_LIMITED,
        seen=f"{evidence}: what was measured is the client, and tells nothing of the server",
        advice="add processes with `drivers`, give the client its own cores, or lower the load",
    )

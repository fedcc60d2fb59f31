"""Convert the report of another load generator into a Result.

If the report has every request, these become Records, and all metrics are derived from them as for our own
loads. Otherwise the reported figures are kept as they are, without intervals. Each definition that differs
from ours becomes a doubt.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.job import IMPORTED, Job
from modeldyno.base.job.knob import KnobValue
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.metrics.metric import METRICS
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.result.result import Environment, Fact, Failure, FailureKind, Result
from modeldyno.base.stats import statistics
from modeldyno.base.stats.drift import find_drift
from modeldyno.serving.load import load_analysis
from modeldyno.serving.load.request_log import COLUMNS, PieceTimes, Records
from modeldyno.serving.load.steady_window import NANO, SteadyWindow

if TYPE_CHECKING:
    from collections.abc import Iterator

MICRO, MILLI = 1e-6, 1e-3
"""In seconds: units of time in other tools' reports."""
_LATEST = 2**62
"""Nanoseconds: the year 2116 of a wall clock."""
_LARGEST = 1e15
"""In base units: no count, rate or time of a load is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFile:
    """A file written by another tool, read once."""

    path: Path
    text: str
    documents: tuple[Any, ...] = ()
    """The content: one JSON document, or one for each line of JSON Lines; empty for other text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRequest:
    """One request as another tool reports it; times in nanoseconds of any one clock."""

    sent: int
    end: int
    """Time of the last byte, or the tool's nearest equivalent."""
    due: int | None = None
    """None if the tool does not report it."""
    outcome: RequestOutcome = RequestOutcome.OK
    tokens: int = -1
    """Tokens of the answer as counted by the server; -1 if unknown."""
    pieces: tuple[int, ...] = ()
    """When the non-empty chunks of a streamed answer arrived."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForeignLoad:
    """One load as another tool reports it."""

    tool: str
    version: str = ""
    model: str = ""
    url: str = ""
    """URL of the server; empty if unknown."""
    created: str = ""
    """UTC start time, ISO 8601; empty if unknown."""
    load: Load
    config: Mapping[str, KnobValue] = field(default_factory=dict)
    software: Mapping[str, Fact] = field(default_factory=dict)
    requests: Sequence[ForeignRequest] = ()
    window: tuple[int, int] | None = None
    """Start and end of the steady window on the requests' clock; None: from the first request to the last."""
    samples: int = 1
    """Samples per request."""
    untold: frozenset[str] = frozenset()
    """Metrics that would be wrong if derived from these requests."""
    figures: tuple[Measurement, ...] = ()
    """Numbers that the tool reports; a metric derived from the requests takes precedence."""
    due_elsewhere: bool = False
    """Whether another file of the tool says when requests were due: without it nothing counts from then."""
    gaps: tuple[Doubt, ...] = ()
    """Definitions of the tool that differ from ours."""


def reported_value(
    metric: str, value: float | None, statistic: str = "", scale: float = 1.0
) -> Iterator[Measurement]:
    """Yield a reported number in the unit of `scale` as a measurement; nothing if it is absent or NaN.

    The statistic of a distribution without samples is stored as the scope.
    """
    if value is not None and math.isfinite(value) and value >= 0:
        yield observed_number(metric, value * scale, scope=statistic)


def foreign_result(report: ForeignLoad, *, id: str, origin: str, digest: str) -> Result:  # noqa: A002 - as in a Result
    """Make a Result of a load that another tool measured.

    Args:
        report: the load.
        id: id of the Result.
        origin: the file that it was read from.
        digest: digest of that file's content.
    """
    window = _window(report)
    derived = () if window is None else tuple(_derived(report, window))
    figures = tuple(_merged_figures(tuple(_counted_from(report)), derived))
    for figure in (*derived, *figures):
        _check_possible(figure)
    url = f"{report.url}#{report.model}" if report.model else report.url
    return Result(
        id=id,
        created=report.created,
        job=Job(
            model=ModelRef(
                scheme="url" if report.url else "", locator=url if report.url else report.model or origin
            ),
            backend=IMPORTED,
            config=dict(report.config),
            probes=("load",),
            load=report.load,
            name=report.model or report.tool,
        ),
        environment=Environment(
            software={report.tool: report.version or "of unknown version", **report.software},
            conditions={"imported_from": origin, "content": digest},
        ),
        measurements=(*derived, *figures),
        doubts=tuple(_doubts(report, window, figures, origin)),
        failures=tuple(_failures(report)),
    )


def _check_possible(figure: Measurement) -> None:
    """Refuse a figure of a damaged report that nothing can have measured.

    Raises:
        RequestError: it is negative, or larger than anything that is measured.
    """
    value = figure.value
    if isinstance(value, Distribution):
        numbers = [float(end) for run in value.arrays() for end in (run.min(), run.max())]
    else:
        numbers = [float(value)]
    for number in numbers:
        if not 0 <= number <= _LARGEST:
            raise RequestError(f"{figure.metric} is {number:g}, which nothing can have measured.")


def _counted_from(report: ForeignLoad) -> Iterator[Measurement]:
    """Yield the figures of a report, those of first tokens under the name that says from when they count."""
    for figure in report.figures:
        if figure.metric != "time_to_first_token":
            yield figure
            continue
        yield replace(figure, metric="first_token_service_time")
        if not report.due_elsewhere:
            yield figure


def _merged_figures(figures: Sequence[Measurement], derived: Sequence[Measurement]) -> Iterator[Measurement]:
    """Yield each reported number once, and none of a metric whose samples are known."""
    derived_metrics = {measurement.metric for measurement in derived}
    sampled_metrics = {
        measurement.metric for measurement in figures if isinstance(measurement.value, Distribution)
    }
    unique = {
        (measurement.metric, measurement.scope): measurement
        for measurement in figures
        if measurement.metric not in derived_metrics
    }
    yield from (
        measurement
        for measurement in unique.values()
        if not measurement.scope or measurement.metric not in sampled_metrics
    )


def foreign_records(requests: Sequence[ForeignRequest]) -> Records:
    """Convert requests to columns; a request without a due time is due when it is sent."""
    np = statistics.load_numpy()
    requests = sorted(requests, key=lambda request: request.end)
    for request in requests:
        if (
            not 0
            <= (request.sent if request.due is None else request.due)
            <= request.sent
            <= request.end
            < _LATEST
        ):
            raise RequestError(
                f"A request is due, sent and ended at {request.due}, {request.sent} and {request.end} ns."
            )
        times = (request.sent, *request.pieces)
        if any(second < first for first, second in pairwise(times)) or times[-1] >= _LATEST:
            raise RequestError(f"The pieces of a request sent at {request.sent} ns are out of order.")
    values = {
        "due": [request.sent if request.due is None else request.due for request in requests],
        "sent": [request.sent for request in requests],
        "first": [request.pieces[0] if request.pieces else request.end for request in requests],
        "end": [request.end for request in requests],
        "outcome": [int(request.outcome) for request in requests],
        "tokens": [request.tokens for request in requests],
    }
    count, streamed = len(requests), any(request.pieces for request in requests)
    columns = {
        name: np.asarray(values[name], dtype) if name in values else np.zeros(count, dtype)
        for name, dtype in COLUMNS.items()
    }
    return Records(**columns, pieces=PieceTimes.of([each.pieces for each in requests]) if streamed else None)


def _window(report: ForeignLoad) -> SteadyWindow | None:
    """Return the steady window of the load; None if there are no requests."""
    if not report.requests:
        return None
    begin, end = report.window or (
        min(request.sent if request.due is None else request.due for request in report.requests),
        max(request.end for request in report.requests) + 1,  # the last one ended in it
    )
    return SteadyWindow(
        records=foreign_records(report.requests),
        begin=begin,
        end=end,
        load=report.load,
        samples=report.samples,
        how={"stop": IMPORTED, "clock": report.tool},
    )


def _derived(report: ForeignLoad, window: SteadyWindow) -> Iterator[Measurement]:
    """Yield the metrics of our own loads that the requests allow to derive."""
    excluded = set(report.untold)
    if not _has_due_times(report):
        excluded |= {"send_lag"} if report.load.closed else {"send_lag", "latency", "offered_rate", "goodput"}
    yield from (
        measurement
        for measurement in load_analysis.measurements(window)
        if measurement.metric not in excluded
    )


def _has_due_times(report: ForeignLoad) -> bool:
    """Return whether the due times of the requests are known."""
    return any(request.due is not None for request in report.requests)


def _doubts(
    report: ForeignLoad,
    window: SteadyWindow | None,
    figures: Sequence[Measurement],
    origin: str,
) -> Iterator[Doubt]:
    version = f" {report.version}" if report.version else ""
    yield Doubt(
        code="imported",
        seen=f"{report.tool}{version} measured it ({origin}): the machine and its other load are not known",
        advice="measure it with modeldyno load before claiming that one is better than the other",
    )
    if not _has_due_times(report):
        closed = "" if report.load.closed else "; in an open loop that hides the waiting time in the client"
        yield Doubt(
            code="from-send",
            seen=f"{report.tool} counts from when a request was sent, not from when it was due{closed}",
            advice="compare service_time, which we count from the sending, too",
        )
    without_samples = dict.fromkeys(
        measurement.metric for measurement in figures if measurement.scope and measurement.row.spread
    )
    if without_samples:
        yield Doubt(
            code="no-samples",
            seen=f"{report.tool} reports only statistics of {', '.join(without_samples)}, without samples: "
            "they have no interval",
            advice=f"have {report.tool} write every request, and import that file",
        )
    if window is None:
        yield from report.gaps
        return
    if report.window is None:
        yield Doubt(
            code="whole-load",
            seen=f"{report.tool} reports no steady window: the times include the first requests, and the "
            "rates the last ones, when fewer were in flight",
            advice="make the load long, or let the tool exclude a warm-up",
        )
    yield from report.gaps
    yield from load_analysis.doubts(window)
    yield from _drift_doubts(window)


def _drift_doubts(window: SteadyWindow) -> Iterator[Doubt]:
    """Yield a doubt if the service time drifts during the load."""
    for part in window.due().where(lambda part: part.fine).parts():
        drift = find_drift(((part.end - part.sent) * NANO)[part.sent.argsort(kind="stable")])
        if drift is not None:
            yield Doubt(
                code="drift",
                seen=f"service_time: a {drift.kind} of {drift.size:+.1%} was seen in the load",
                advice="exclude the warm-up, or look for throttling, another process or a growing cache",
            )


def _failures(report: ForeignLoad) -> Iterator[Failure]:
    outcomes = [request.outcome for request in report.requests]
    if outcomes and RequestOutcome.OK not in outcomes:
        yield Failure(
            where="load",
            kind=FailureKind.SERVER,
            message=f"none of {len(outcomes):,} requests was answered well",
        )


_STATUS = re.compile(r"\b([45]\d\d)\b")
_PHRASES = {status.phrase.lower(): status.value for status in HTTPStatus}
_ERRORS = (
    (("timeout", "timed out"), RequestOutcome.TIMEOUT),
    (("cancel",), RequestOutcome.CANCELLED),
    (("connecterror", "connectorerror", "refused", "connection attempts failed"), RequestOutcome.REFUSED),
    (("disconnected", "remoteprotocol", "incomplete", "payloaderror"), RequestOutcome.TRUNCATED),
    (("reset", "readerror", "broken pipe"), RequestOutcome.RESET),
)
"""Words in an error of a client, in lower case, to the outcome; the first that fits."""
_OVERLOADED = frozenset({429, 503})
_CLIENT_CLOSED = 499


def outcome_of_code(code: int) -> RequestOutcome:
    """Return the outcome of a request that ended with an HTTP status of 400 or more."""
    if code in _OVERLOADED:
        return RequestOutcome.REJECTED
    if code == _CLIENT_CLOSED:
        return RequestOutcome.CANCELLED
    return RequestOutcome.CLIENT_ERROR if code // 100 == 4 else RequestOutcome.SERVER_ERROR


def outcome_of_error(text: str) -> RequestOutcome:
    """Return the outcome of a request by the error that a tool kept of it, else server-error."""
    if text.strip().lower() in _PHRASES:
        return outcome_of_code(_PHRASES[text.strip().lower()])
    lowered = text.lower()
    if ("status" in lowered or "error '" in lowered) and (match := _STATUS.search(text)):
        return outcome_of_code(int(match[1]))
    fitting = (outcome for words, outcome in _ERRORS if any(word in lowered for word in words))
    return next(fitting, RequestOutcome.SERVER_ERROR)


def definition_doubt(metric: str, how: str, advice: str = "") -> Doubt:
    """Return the doubt that another tool defines a metric differently."""
    assert metric in METRICS
    return Doubt(
        code="other-definition",
        seen=f"{metric}: {how}",
        advice=advice or "compare it only with figures of the same tool",
    )

"""What another load generator says of one load, in our words, and the Result that it makes.

Where it tells of every request, these become Records, and everything is derived from them as it is from our
own; else its figures stand as it told them, without an interval. What its definitions have otherwise than
ours is a doubt each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.core.load import load_analysis
from modeldyno.core.load.request_log import COLUMNS, Outcome, Records
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Distribution, Measurement, observed
from modeldyno.core.metrics.metric import METRICS
from modeldyno.core.result.result import Environment, Fact, Failure, FailureKind, Result
from modeldyno.core.spec.job import Job
from modeldyno.core.spec.knob import KnobValue
from modeldyno.core.spec.load_spec import Load
from modeldyno.core.spec.model_ref import ModelRef
from modeldyno.core.stats import statistics
from modeldyno.core.stats.drift import find_drift
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

BACKEND = "imported"
"""The backend of a Result that another tool has measured."""
NANO = load_analysis.NANO
MICRO, MILLI = 1e-6, 1e-3
"""Seconds in the units that other tools write times in."""
_LATEST = 2**62
"""Nanoseconds: the year 2116 of a wall clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A file of another tool, read once."""

    path: Path
    text: str
    documents: tuple[Any, ...] = ()
    """What it holds: one where it is JSON, one a line where its lines are; none where it is other text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One request, as another tool tells of it; times in nanoseconds of any one clock."""

    sent: int
    end: int
    """Its last byte, or what the tool takes for it."""
    due: int | None = None
    """None where the tool does not tell it."""
    outcome: Outcome = Outcome.OK
    tokens: int = -1
    """Of the answer, as the server counts them; -1 where nobody did."""
    pieces: tuple[int, ...] = ()
    """When the pieces of a streamed answer came that bear something."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Imported:
    """One load, as another tool reports it."""

    tool: str
    version: str = ""
    model: str = ""
    url: str = ""
    """Where the server was; empty where the tool does not tell."""
    created: str = ""
    """Time of UTC when it began, ISO 8601; empty where the tool does not tell."""
    load: Load
    config: Mapping[str, KnobValue] = field(default_factory=dict)
    software: Mapping[str, Fact] = field(default_factory=dict)
    requests: Sequence[Told] = ()
    window: tuple[int, int] | None = None
    """Ends of the steady part, by the clock of the requests; None: from the first request to the last."""
    samples: int = 1
    """Samples in a request."""
    untold: frozenset[str] = frozenset()
    """Metrics that the requests, as they are told, would give wrongly."""
    figures: tuple[Measurement, ...] = ()
    """What the tool says in numbers; where requests tell the same metric, that holds."""
    gaps: tuple[Doubt, ...] = ()
    """What its definitions have otherwise than ours."""


def figure(
    metric: str, value: float | None, statistic: str = "", scale: float = 1.0
) -> Iterator[Measurement]:
    """Give a number as it was told, in the unit of `scale`; nothing where it was not told, or is none.

    The statistic of a distribution whose samples are not known stands at the scope of its name.
    """
    if value is not None and math.isfinite(value) and value >= 0:
        yield observed(metric, value * scale, scope=statistic)


def result(found: Imported, *, id: str, origin: str, digest: str) -> Result:  # noqa: A002 - as in a Result
    """Make a Result of what another tool says.

    Args:
        found: what it says.
        id: of the Result.
        origin: the file that it was read from.
        digest: of that file's content.
    """
    window = _window(found)
    measured = () if window is None else tuple(_measured(found, window))
    figures = tuple(_apart(found.figures, measured))
    url = f"{found.url}#{found.model}" if found.model else found.url
    return Result(
        id=id,
        created=found.created,
        job=Job(
            model=ModelRef(
                scheme="url" if found.url else "", locator=url if found.url else found.model or origin
            ),
            backend=BACKEND,
            config=dict(found.config),
            probes=("load",),
            load=found.load,
            name=found.model or found.tool,
        ),
        environment=Environment(
            software={found.tool: found.version or "of unknown version", **found.software},
            conditions={"imported_from": origin, "content": digest},
        ),
        measurements=(*measured, *figures),
        doubts=tuple(_doubts(found, window, figures, origin)),
        failures=tuple(_failures(found)),
    )


def _apart(figures: Sequence[Measurement], measured: Sequence[Measurement]) -> Iterator[Measurement]:
    """Give each figure once, and none of a metric whose samples are known."""
    known = {each.metric for each in measured}
    sampled = {each.metric for each in figures if isinstance(each.value, Distribution)}
    once = {(each.metric, each.scope): each for each in figures if each.metric not in known}
    yield from (each for each in once.values() if not each.scope or each.metric not in sampled)


def records(requests: Sequence[Told]) -> Records:
    """Make columns of requests; what is due at no known time is due when it is sent."""
    np = statistics.load_numpy()
    requests = sorted(requests, key=lambda each: each.end)
    for each in requests:
        if not 0 <= (each.sent if each.due is None else each.due) <= each.sent <= each.end < _LATEST:
            raise RequestError(
                f"A request is due, sent and ended at {each.due}, {each.sent} and {each.end} ns."
            )
    told = {
        "due": [each.sent if each.due is None else each.due for each in requests],
        "sent": [each.sent for each in requests],
        "first": [each.pieces[0] if each.pieces else each.end for each in requests],
        "end": [each.end for each in requests],
        "outcome": [int(each.outcome) for each in requests],
        "tokens": [each.tokens for each in requests],
    }
    count, streamed = len(requests), any(each.pieces for each in requests)
    columns = {
        name: np.asarray(told[name], dtype) if name in told else np.zeros(count, dtype)
        for name, dtype in COLUMNS.items()
    }
    return Records(**columns, pieces=tuple(each.pieces for each in requests) if streamed else ())


def _window(found: Imported) -> load_analysis.Window | None:
    """Give the steady part of the load; None where there are no requests."""
    if not found.requests:
        return None
    begin, end = found.window or (
        min(each.sent if each.due is None else each.due for each in found.requests),
        max(each.end for each in found.requests) + 1,  # the last one ended in it
    )
    return load_analysis.Window(
        records=records(found.requests),
        begin=begin,
        end=end,
        load=found.load,
        samples=found.samples,
        how={"stop": BACKEND, "clock": found.tool},
    )


def _measured(found: Imported, window: load_analysis.Window) -> Iterator[Measurement]:
    """Derive what our own load would, but for what the requests do not tell."""
    untold = set(found.untold)
    if not _due(found):
        untold |= {"send_lag"} if found.load.closed else {"send_lag", "latency", "offered_rate", "goodput"}
    yield from (each for each in load_analysis.measurements(window) if each.metric not in untold)


def _due(found: Imported) -> bool:
    """Say whether it is told when requests were due."""
    return any(each.due is not None for each in found.requests)


def _doubts(
    found: Imported, window: load_analysis.Window | None, figures: Sequence[Measurement], origin: str
) -> Iterator[Doubt]:
    version = f" {found.version}" if found.version else ""
    yield Doubt(
        code="imported",
        seen=f"{found.tool}{version} measured it ({origin}): on which machine, and beside what, is not known",
        advice="measure it with modeldyno load before claiming that one is better than the other",
    )
    if not _due(found):
        closed = "" if found.load.closed else "; in an open loop that hides what waited in the client"
        yield Doubt(
            code="from-send",
            seen=f"{found.tool} counts from when a request was sent, not from when it was due{closed}",
            advice="compare service_time, which counts from the sending in ours, too",
        )
    told = dict.fromkeys(each.metric for each in figures if each.scope and each.row.spread)
    if told:
        yield Doubt(
            code="no-samples",
            seen=f"{found.tool} tells statistics of {', '.join(told)} without samples: they have no interval",
            advice=f"have {found.tool} write every request, and import that file",
        )
    if window is None:
        yield from found.gaps
        return
    if found.window is None:
        yield Doubt(
            code="whole-load",
            seen=f"{found.tool} tells no steady part: the first requests are in the times, and the last, "
            "when fewer were on their way, in the rates",
            advice="make it long, or let the tool leave a warm-up out",
        )
    yield from found.gaps
    yield from load_analysis.doubts(window)
    yield from _course(window)


def _course(window: load_analysis.Window) -> Iterator[Doubt]:
    """Doubt a load in which the service time drifts."""
    for part in window.due().where(lambda part: part.fine).parts():
        drift = find_drift(((part.end - part.sent) * NANO)[part.sent.argsort(kind="stable")])
        if drift is not None:
            yield Doubt(
                code="drift",
                seen=f"service_time: a {drift.kind} of {drift.size:+.1%} was seen in the load",
                advice="leave the warm-up out, or look for throttling, a neighbour or a growing cache",
            )


def _failures(found: Imported) -> Iterator[Failure]:
    outcomes = [each.outcome for each in found.requests]
    if outcomes and Outcome.OK not in outcomes:
        yield Failure(
            where="load",
            kind=FailureKind.SERVER,
            message=f"none of {len(outcomes):,} requests was answered well",
        )


def differs(metric: str, how: str, advice: str = "") -> Doubt:
    """Doubt a metric that another tool defines otherwise."""
    assert metric in METRICS
    return Doubt(
        code="other-definition",
        seen=f"{metric}: {how}",
        advice=advice or "compare it only with figures of the same tool",
    )

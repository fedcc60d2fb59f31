"""Reconcile what two load generators say of one server: split the difference of a figure into its causes.

Of a tool whose report has every request, its figure is recomputed step by step until it is defined as ours:
by another percentile rule, without the warm-up, from when a request was due. Each step is a part of the
difference. Of a mean, the server and the client are parts of their own where both sides have an account of
the server. What is left is theirs, and chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base.document import Document
from modeldyno.base.metrics.measurement import Distribution, Interval
from modeldyno.base.metrics.metric import METRICS, fraction_of
from modeldyno.base.stats.evaluation import Evaluation, independent_difference
from modeldyno.base.stats.statistics import load_numpy, quantile
from modeldyno.serving.load.foreign_load import foreign_records
from modeldyno.serving.load.steady_window import NANO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from modeldyno.base.result.result import Result
    from modeldyno.base.stats.statistics import Samples
    from modeldyno.serving.load.foreign_load import ForeignLoad
    from modeldyno.serving.load.request_log import Records

NEAREST = "nearest rank"
RULES: Mapping[str, Callable[[Samples, float], float]] = {
    NEAREST: quantile,
    "linear interpolation": lambda samples, p: float(load_numpy().quantile(samples, p)),
    "rank n p + 1": lambda samples, p: _at(samples, int(p * samples.size)),
    "rounded rank": lambda samples, p: _at(samples, int(p * (samples.size - 1) + 0.5)),
    "cumulative share": lambda samples, p: _at(samples, int((_shares(samples) < p).sum())),
}
"""Percentile rule to the function of samples and p: that of ModelDyno; of NumPy, AIPerf and vLLM; of MLPerf
LoadGen; of perf_analyzer; of GuideLLM, whose shares are summed up in floating point."""
_REPRODUCED = 1e-4
"""Relative difference between a reported percentile, which is rounded, and one that reproduces it."""
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
_TIMES = ("service_time", "latency", "time_to_first_token", "time_per_output_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRow:
    """The difference between a figure of another tool and ours, and the parts that add up to it; seconds."""

    metric: str
    """As the tool defines it; ours is `compared`."""
    compared: str
    statistic: str
    theirs: float
    """As the tool reports it, or by its rule from its requests."""
    ours: float
    rule: float | None
    """How much of the difference is the percentile rule; None where its samples are not known."""
    warmup: float | None
    """How much is the warm-up that the tool did not leave out; None where its samples are not known."""
    definition: float
    """How much is the moment from which time counts: the sending, or when a request was due."""
    server: float | None
    """How much of a mean the server tells of itself: queue and compute; None where not both sides know it."""
    client: float | None
    """How much of a mean is outside the server: the client and its connection; None where it is not known."""
    left: float
    """What no part explains: chance, and the server and the client where they are not told apart."""
    interval: Interval | None
    """95 % interval of what is left; None where the samples of one side are not known."""

    @property
    def is_noise(self) -> bool | None:
        """Whether what is left may be chance; None if it has no interval."""
        return None if self.interval is None else self.interval.low <= 0 <= self.interval.high


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Reconciliation(Document):
    """What another tool says of a server, beside a Result of ours."""

    KIND = "reconciliation"
    tool: str
    version: str
    requests: int
    """Requests in the report; 0 if it has figures only."""
    rules: tuple[str, ...]
    """The percentile rules that give its percentiles from its requests; empty if none does."""
    dropped: float
    """Seconds of warm-up that were left out of its requests; 0 if it left out its own."""
    no_client: str
    """Why the client's part is not told apart from what is left; empty if it is."""
    sent_late: tuple[float | None, float | None]
    """Mean seconds from when a request was due to its sending, of the tool and of ours; None if not known."""
    rows: tuple[DifferenceRow, ...]
    notes: tuple[str, ...]
    """Definitions that differ and whose effect cannot be computed from its report."""


def reconcile(report: ForeignLoad, ours: Result) -> Reconciliation:
    """Split the differences between the figures of a report and those of a Result.

    Args:
        report: what another tool measured.
        ours: a load of ModelDyno on the same server, at the same load.
    """
    records = foreign_records(report.requests) if report.requests else None
    spreads = {} if records is None else _times(records, report)
    latency = ours.find("latency")
    warmup = latency.value.warmup_time if latency and isinstance(latency.value, Distribution) else 0.0
    dropped = warmup if records is not None and report.window is None else 0.0
    steady = {} if records is None else _times(_after(records, report, dropped), report)
    reported = _reported_times(report)
    rules, unlike = _matching_rules(reported, spreads)
    figures = _figures(reported, spreads, rules).items()
    made = (_row(metric, name, value, spreads, steady, ours) for (metric, name), value in figures)
    rows = [row for row in made if row is not None]
    no_client = _missing_account(report, ours)
    if not no_client:
        rows = [_with_client(row, report, ours) for row in rows]
    return Reconciliation(
        tool=report.tool,
        version=report.version,
        requests=len(report.requests),
        rules=rules,
        dropped=dropped,
        no_client=no_client,
        sent_late=(_lateness(spreads), _mean_of(ours, "send_lag")),
        rows=tuple(rows),
        notes=(
            *(f"{metric}: no rule gives its percentiles from the reported requests" for metric in unlike),
            *(doubt.seen for doubt in report.gaps if doubt.code == "other-definition"),
        ),
    )


def _row(
    metric: str,
    statistic: str,
    theirs: float,
    spreads: Mapping[str, Distribution],
    steady: Mapping[str, Distribution],
    ours: Result,
) -> DifferenceRow | None:
    """Return the parts of one difference; None if we have no such figure."""
    compared = "latency" if metric == "service_time" else metric
    same, final = ours.find(metric), ours.find(compared)
    if not (
        same and final and isinstance(same.value, Distribution) and isinstance(final.value, Distribution)
    ):
        return None
    alike, end = same.value.statistic(statistic), final.value.statistic(statistic)
    rule = warmup = interval = None
    last = theirs
    if metric in steady and metric in spreads:
        by_rank, last = spreads[metric].statistic(statistic), steady[metric].statistic(statistic)
        rule, warmup = theirs - by_rank, by_rank - last
        interval = _difference(same.value, steady[metric], statistic)
    return DifferenceRow(
        metric=metric,
        compared=compared,
        statistic=statistic,
        theirs=theirs,
        ours=end,
        rule=rule,
        warmup=warmup,
        definition=alike - end,
        server=None,
        client=None,
        left=last - alike,
        interval=interval,
    )


_SERVER = ("queue_time", "compute_input_time", "compute_time", "compute_output_time")
_OUTSIDE = "network_time"


def _missing_account(report: ForeignLoad, ours: Result) -> str:
    """Return why the server's own time is not known of both sides; empty if it is."""
    theirs = _single_figures(report).keys()
    own_metrics = {m.metric for m in ours.measurements if not m.scope}
    for name, metrics in ((f"the report of {report.tool}", theirs), ("this result", own_metrics)):
        if _OUTSIDE not in metrics or not metrics & {*_SERVER}:
            return f"{name} has no time of the server itself (queue, compute)"
    return ""


def _with_client(row: DifferenceRow, report: ForeignLoad, ours: Result) -> DifferenceRow:
    """Take the parts of the server and of the client out of what is left of a mean."""
    if (row.metric not in {"service_time", "latency"}) or row.statistic != "mean" or row.interval is not None:
        return row
    theirs = _single_figures(report)
    server, client = _excess(_SERVER, theirs, ours), _excess((_OUTSIDE,), theirs, ours)
    return replace(row, server=server, client=client, left=row.left - server - client)


def _single_figures(report: ForeignLoad) -> dict[str, float]:
    """Return the figures of a report that are one number each, by metric."""
    return {
        figure.metric: figure.value
        for figure in report.figures
        if not figure.scope and not isinstance(figure.value, Distribution)
    }


def _excess(metrics: Sequence[str], theirs: Mapping[str, float], ours: Result) -> float:
    """Return by how much the sum of some metrics is greater there than here."""
    return sum(theirs.get(name, 0.0) - (ours.number(name) or 0.0) for name in metrics)


def _lateness(spreads: Mapping[str, Distribution]) -> float | None:
    """Return how long after they were due requests were sent, on average."""
    if not {"latency", "service_time"} <= spreads.keys():
        return None
    return spreads["latency"].statistic("mean") - spreads["service_time"].statistic("mean")


def _mean_of(ours: Result, metric: str) -> float | None:
    measurement = ours.find(metric)
    return (
        measurement.value.statistic("mean")
        if measurement and isinstance(measurement.value, Distribution)
        else None
    )


def _difference(ours: Distribution, theirs: Distribution, statistic: str) -> Interval:
    """Return the 95 % interval of theirs - ours of a statistic, whose samples are independent."""
    before, after = (
        Evaluation(each.statistic(statistic), ends.low, ends.high)
        for each in (ours, theirs)
        if (ends := each.interval(statistic)) is not None
    )
    _, low, high = independent_difference(before, after, 0.95)
    return Interval(low=low, high=high)


def _figures(
    reported: Mapping[tuple[str, str], float], spreads: Mapping[str, Distribution], rules: tuple[str, ...]
) -> dict[tuple[str, str], float]:
    """Return the figures to explain: those reported, or else what its requests give by its rule."""
    rule = RULES[rules[0] if rules else NEAREST]
    figures = {key: value for key, value in reported.items() if key[1] in STATISTICS}
    for metric, spread in spreads.items():
        if all(metric != other for other, _ in reported):
            for name in STATISTICS:
                p = fraction_of(name)
                figures[metric, name] = spread.statistic(name) if p is None else rule(spread.samples(), p)
    return {key: figures[key] for key in sorted(figures, key=_place)}


def _place(key: tuple[str, str]) -> tuple[int, int]:
    return _TIMES.index(key[0]), STATISTICS.index(key[1])


def _reported_times(report: ForeignLoad) -> dict[tuple[str, str], float]:
    """Return the reported statistics of times; the latency only where it is not the service time."""
    return {
        (figure.metric, figure.reported_statistic): float(figure.value)
        for figure in report.figures
        if figure.reported_statistic
        and figure.metric in _TIMES
        and not isinstance(figure.value, Distribution)
        if figure.metric != "latency" or _has_due_times(report)
    }


def _has_due_times(report: ForeignLoad) -> bool:
    return not report.requests or any(request.due is not None for request in report.requests)


def _times(records: Records, report: ForeignLoad) -> dict[str, Distribution]:
    """Return the times of the requests that were answered well, in the order in which they were sent."""
    fine = records.chosen(records.fine)
    fine = fine.at(fine.sent.argsort(kind="stable"))
    if not len(fine):
        return {}
    spreads = {"service_time": Distribution.of((fine.end - fine.sent) * NANO)}
    if report.requests and _has_due_times(report):
        spreads["latency"] = Distribution.of((fine.end - fine.due) * NANO)
    if fine.pieces is not None and fine.pieces.counts.all():
        spreads["time_to_first_token"] = Distribution.of((fine.pieces.first() - fine.sent) * NANO)
    assert spreads.keys() <= METRICS.keys()
    return spreads


def _after(records: Records, report: ForeignLoad, dropped: float) -> Records:
    """Return the requests of the steady state: those of its window, or those sent after a warm-up."""
    begin, end = report.window or (int(records.sent.min()) + round(dropped / NANO), math.inf)
    return records.chosen((records.sent >= begin) & (records.sent < end))


def _matching_rules(
    reported: Mapping[tuple[str, str], float], spreads: Mapping[str, Distribution]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the rules that give all percentiles of each metric, and the metrics that no rule gives.

    Only metrics count whose samples are known.
    """
    fitting: dict[str, set[str]] = {}
    for (metric, statistic), value in reported.items():
        p = fraction_of(statistic)
        if metric in spreads and p is not None:
            times = spreads[metric].samples()
            fits = {name for name, rule in RULES.items() if _is_reproduced(value, rule(times, p))}
            fitting[metric] = fitting.get(metric, fits) & fits
    common = [fits for fits in fitting.values() if fits]
    rules = tuple(name for name in RULES if common and all(name in fits for fits in common))
    return rules, tuple(metric for metric, fits in fitting.items() if not fits)


def _is_reproduced(reported: float, recomputed: float) -> bool:
    return math.isclose(recomputed, reported, rel_tol=_REPRODUCED)


def _at(samples: Samples, index: int) -> float:
    """Return the sample at a place, from 0, in order of size."""
    place = min(samples.size - 1, index)
    return float(load_numpy().partition(samples, place)[place])


def _shares(samples: Samples) -> Samples:
    np = load_numpy()
    shares: Samples = np.cumsum(np.full(samples.size, 1 / samples.size))
    return shares

"""The tables of measured and computed results: rows, order, digits and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement
from modeldyno.base.metrics.metric import CALL_SCOPES, COSTS, METRICS, Query, ReportSection, fraction_of
from modeldyno.base.report.blocks import Table, make_table
from modeldyno.base.result.result import scopes
from modeldyno.base.stats.units import BYTES, FRACTION, RATE, SECONDS, format_quantity
from modeldyno.base.views.text import (
    about,
    count,
    estimate,
    estimate_with_half_width,
    figure,
    format_measurement,
    join_nonempty,
    number,
    shorten_name,
    unit_of_work,
)
from modeldyno.engine.trace.carbon import ASSUMED
from modeldyno.profiling.views.result.served import is_loaded, redundant_metrics
from modeldyno.profiling.views.result.totals import describe_total, drop_open_range, parts_of_sum

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.result.result import Result


def results(result: Result, judgements: Sequence[Judgement]) -> Iterator[Table]:
    """Yield a table of the measured and a table of the computed results."""
    measurements = _ordered(result, {j.constraint.query.metric for j in judgements})
    measured = [measurement for measurement in measurements if not measurement.row.computed]
    computed = [measurement for measurement in measurements if measurement.row.computed]
    for title, group in ((MEASURED, measured), (COMPUTED, computed)):
        rows = tuple(row for measurement in group for row in _rows(result, measurement, judgements))
        if rows:
            yield _table(title, rows)


MEASURED, COMPUTED = "Measured", "Computed from the model, not measured"
"""Titles of the two tables."""


def brief_results(result: Result, judgements: Sequence[Judgement]) -> Iterator[Table]:
    """Tabulate the main figures; a bound adds what it is of."""
    requested = {j.constraint.query.metric for j in judgements}
    unasked = _STARTING if result.job.load is not None else set()
    measurements = [
        m
        for m in _ordered(result, requested)
        if m.metric in requested
        or (m.row.section in _BRIEF and m.metric not in unasked)
        or (m.metric in _IF_ANY and m.value)
    ]
    unscoped = [m for m in measurements if not m.scope or m.reported_statistic]
    if is_loaded(result) and any(m.metric == "time_to_first_token" for m in unscoped):
        spread = [
            m
            for m in unscoped
            if m.row.unit == SECONDS and (isinstance(m.value, Distribution) or m.reported_statistic)
        ]
        yield from _percentiles(result, spread)
        unscoped = [m for m in unscoped if m not in spread or m.metric in requested]
    rows = [row for m in unscoped for row in _rows(result, m, judgements)]
    named = {str(j.constraint.query) for j in judgements}
    left_out = {f"latency.{statistic}" for statistic in _DETAILED - {*result.job.plan.percentiles}} - named
    reported = {f"{m.metric}.{m.reported_statistic}" for m in measurements if m.reported_statistic}
    rows = [row for row in rows if row[0] not in left_out - reported]
    if rows:
        yield _table("", tuple(map(_shorten_note, rows)))


def _percentiles(result: Result, measurements: Sequence[Measurement]) -> Iterator[Table]:
    """Tabulate the percentiles of several times, a line for each time."""
    names = dict.fromkeys(m.metric for m in measurements)
    rows = [
        (name, *(_percentile(result, [m for m in measurements if m.metric == name], p) for p in _SHOWN))
        for name in names
    ]
    if rows:
        yield make_table(
            "Times of answers; ± is half of the 95 % interval, about: not certified",
            ("time", *(f"{statistic}>" for statistic in _SHOWN)),
            rows,
        )


_SHOWN = ("p50", "p90", "p99")


def _percentile(result: Result, measurements: Sequence[Measurement], statistic: str) -> str:
    """Format a percentile of a time, of its samples or as another tool reported it."""
    for measurement in measurements:
        times, unit = measurement.value, measurement.row.unit
        if isinstance(times, Distribution):
            if times.void:
                return "—"
            if times.missing(statistic):
                return about(times, statistic, unit)
            return estimate_with_half_width(times.statistic(statistic), times.interval(statistic), unit)
        if measurement.reported_statistic == statistic:
            return _foreign_row(result, measurement)[1]
    return "—"


_STARTING = {"load_time", "first_call"}
"""Metrics of a start, which a load is not about."""
_IF_ANY = {"error_rate"}
"""Metrics that matter where they are not 0."""
_DETAILED = {"p95", "mean", "std", "min"}
"""Statistics of the latency that the brief table leaves out, unless they are asked for."""
_STAGES = {("latency", scope) for scope in CALL_SCOPES}
"""Measurements that have a table of their own."""
_BRIEF = {ReportSection.RESULTS, ReportSection.GENERATION}
"""Sections whose metrics the brief table shows."""
_FULL = {*_BRIEF, ReportSection.DETAILS}
_NEVER = {ReportSection.DEVICES, ReportSection.NOISE}
"""Sections whose metrics are in no table of results, even if a bound names them."""


def _shorten_note(row: tuple[str, str, str, str]) -> tuple[str, str, str, str]:
    """Shorten a note that would need a second line."""
    name, value, interval, note = row
    if len(note) > _SHORT:
        note = note.partition(", ")[0]
    return name, value, interval, note


_SHORT = 24
"""Longest note that fits the line of its figure at 80 columns."""


def _table(title: str, rows: tuple[tuple[str, str, str, str], ...]) -> Table:
    titles = ("metric", "value>", "95 % interval", "note")
    return make_table(title, titles, rows)


def _ordered(result: Result, requested: set[str]) -> list[Measurement]:
    """Return the measurements of the table in order; of static totals, only those that explain the speed."""
    modules = scopes(result)
    ranks = {name: rank for rank, name in enumerate(METRICS)}
    usual = _FULL - ({ReportSection.GENERATION} if not is_loaded(result) else set())
    redundant = redundant_metrics(result)
    measurements = (
        m
        for m in result.measurements
        if m.scope not in modules
        and (m.metric, m.scope) not in _STAGES
        and ((m.row.section in usual and m.metric not in redundant) or m.metric in requested)
        and m.row.section not in _NEVER
    )
    return sorted(measurements, key=lambda m: (ranks.get(m.metric, len(ranks)), m.metric, m.scope))


def _rows(
    result: Result, measurement: Measurement, judgements: Sequence[Judgement]
) -> Iterator[tuple[str, str, str, str]]:
    if isinstance(measurement.value, Distribution):
        for statistic in _statistics(result, measurement, judgements):
            yield _distribution_row(result, measurement, measurement.value, statistic)
    elif measurement.row.summed and measurement.scope and result.find(measurement.metric):
        return
    elif measurement.row.computed and measurement.interval is not None:
        yield (
            _query_name(measurement),
            format_measurement(drop_open_range(measurement)),
            "",
            describe_total(result, measurement),
        )
    elif measurement.reported_statistic:
        yield _foreign_row(result, measurement)
    elif measurement.value or measurement.metric not in {"trainable_parameters", "buffers"}:
        void = measurement.void
        figure = (
            ("—", "") if void else estimate(measurement.value, measurement.interval, measurement.row.unit)
        )
        yield (_query_name(measurement), *figure, void or _note(result, measurement))


def _statistics(result: Result, measurement: Measurement, judgements: Sequence[Judgement]) -> tuple[str, ...]:
    """Return the usual statistics of a metric and the requested ones."""
    usual = measurement.row.shown
    requested = {
        query.statistic
        for query in (j.constraint.query for j in judgements)
        if (query.metric, query.scope) == (measurement.metric, measurement.scope)
    } | (set(result.job.plan.percentiles) if measurement.metric == "latency" else set())
    percentiles = {name for name in (*usual, *requested) if name and name.startswith("p")}
    others = (name for name in usual if name not in percentiles)
    return (*sorted(percentiles, key=lambda name: float(name[1:])), *others)


def _distribution_row(
    result: Result, measurement: Measurement, value: Distribution, statistic: str
) -> tuple[str, str, str, str]:
    name = _query_name(measurement, statistic)
    interval = value.interval(statistic)
    if value.void:
        return name, "—", _at_least(interval, measurement.row.unit), value.void
    if missing := value.missing(statistic):
        _, span = estimate(None, interval, measurement.row.unit)
        note = f"not certified, {count(missing, 'more effective sample')} needed"
        if fraction_of(statistic) is None:
            return name, "—", span, "needs a second sample"
        return name, about(value, statistic, measurement.row.unit), span, note
    if measurement.metric == "process_memory":
        ends = estimate(None, interval, BYTES)[1]
        return name, format_quantity(value.statistic(statistic), BYTES, 3), ends, _note(result, measurement)
    unit = measurement.row.sample or unit_of_work(result)
    stop = "" if value.stop == "requests" else value.stop  # as many as were asked for
    note = join_nonempty(count(len(value), unit), stop) if statistic == "p50" else ""
    return (name, *estimate(value.statistic(statistic), interval, measurement.row.unit), note)


def _foreign_row(result: Result, measurement: Measurement) -> tuple[str, str, str, str]:
    """Return the row of a statistic that another tool reported."""
    query = Query(metric=measurement.metric, statistic=measurement.reported_statistic)
    claimed = result.ask(query).value is not None
    value, interval = estimate(number(measurement)[0], None, measurement.row.unit)
    if claimed:
        return str(query), value, interval, "reported, without samples"
    return str(query), f"about {value}", interval, "not certified, no samples"


def _at_least(interval: Interval | None, unit: str) -> str:
    """Format the lower end of an interval as ``at least``."""
    return f"at least {format_quantity(interval.low, unit, 3)}" if interval and interval.low > 0 else ""


def _note(result: Result, measurement: Measurement) -> str:
    if measurement.metric == "process_memory":
        return memory_note(result, measurement.scope)
    if measurement.metric == "cpu_utilization":
        return threads(result)
    if measurement.metric == "flops" and (reached := reached_flops(result)):
        return reached
    if measurement.metric in result.job.observation.evaluate:
        return _samples_note(result, measurement)
    once = measurement.row.unit == SECONDS and len(measurement.runs) == 1 and measurement.interval is None
    parts = parts_of_sum(result, measurement) if measurement.row.summed else ""
    if measurement.metric == "carbon":
        assumed = any(doubt.code == ASSUMED for doubt in result.doubts)
        parts = join_nonempty("of 1,000 inferences", "power assumed" if assumed else "")
    if measurement.metric in COSTS:
        parts = "of a million tokens" if measurement.metric == "token_cost" else "of a million inferences"
    return join_nonempty("measured once" if once else "", parts)


def memory_note(result: Result, scope: str = "") -> str:
    """Say what a peak of memory is above, or beside; of a server nothing is subtracted."""
    if scope:
        return {"baseline": "before loading", "idle": "loaded, before the load"}.get(scope, "")
    if result.find("process_memory", "baseline"):
        return "peak above baseline"
    idle = figure(result, "process_memory", "idle")
    return f"peak, {idle} idle" if idle else "peak"


def _samples_note(result: Result, measurement: Measurement) -> str:
    """Say how many of the labelled samples count, such as ``357 of 360 samples``."""
    total = result.number("evaluated_samples")
    if total is None:
        return ""
    share = f"{round(number(measurement)[0] * total):,} of " if measurement.row.unit == FRACTION else ""
    return f"{share}{count(round(total), 'sample')}"


def threads(result: Result) -> str:
    """Return the number of threads, as the model's process reported it or as configured."""
    actual = result.environment.conditions.get("threads")
    config = result.job.config
    requested = config.get("threads", actual)
    return "default threads" if requested is None else count(int(requested), "thread")


def reached_flops(result: Result) -> str:
    """Describe the FLOP/s of the median call, and their share of the machine's peak."""
    flops, peak = result.number("flops"), result.number("peak_flops", result.peaks_scope)
    calls = result.distribution("latency")
    if not flops or calls is None or calls.void or not calls.statistic("p50"):
        return ""
    rate = flops / calls.statistic("p50")
    of_peak = f", {rate / peak:.1%} of this machine's peak" if peak else ""
    text = format_quantity(rate, RATE, 3).removesuffix("/s").strip()
    return f"{text}{'' if text[-1].isalpha() else ' '}FLOP/s in the median call{of_peak}"


def _query_name(measurement: Measurement, statistic: str | None = None) -> str:
    """Return the query of a row, so that a reader can pass it to ``--get``."""
    return str(
        Query(
            metric=measurement.metric,
            statistic=statistic,
            scope=shorten_name(measurement.scope),
        )
    )

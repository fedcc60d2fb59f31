"""Lay out named configurations of a study in detail: each under its loads, with charts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from statistics import fmean, geometric_mean
from typing import TYPE_CHECKING

from modeldyno.base.errors import ModelDynoError, RequestError
from modeldyno.base.metrics.constraints import worst_verdict
from modeldyno.base.metrics.metric import Query, fraction_of
from modeldyno.base.report.blocks import Heading, Table, make_table, note
from modeldyno.base.report.charts import AxisScale, Plot, Series
from modeldyno.base.report.chosen_plot import ChosenPlot
from modeldyno.base.stats.units import format_quantity
from modeldyno.base.views.text import UNCERTIFIED
from modeldyno.sweeps.study.pooled_estimate import judge_candidate, shown_value
from modeldyno.sweeps.study.ranking import find_configuration
from modeldyno.sweeps.study.study import base_name
from modeldyno.sweeps.views.charts import candidates_by_load, scale_of
from modeldyno.sweeps.views.tables import BOUNDS, format_point, format_setting, format_shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.report.blocks import Block
    from modeldyno.base.result.result import Result
    from modeldyno.base.views.view_options import ViewOptions
    from modeldyno.sweeps.study.ranking import RankedConfiguration, Ranking
    from modeldyno.sweeps.study.study import Candidate, Study

_COLUMNS = (
    ("instances", "instances"), ("throughput", "throughput"),
    ("p50", "latency.p50"), ("p90", "latency.p90"), ("p95", "latency.p95"), ("p99", "latency.p99"),
    ("queue", "queue_time"), ("input", "compute_input_time"), ("model", "compute_time"),
    ("output", "compute_output_time"), ("network", "network_time"), ("batch", "formed_batch.mean"),
    ("errors", "error_rate"), ("CPU", "cpu_utilization"), ("memory", "process_memory.max"),
    ("device memory", "device_memory.max"), ("device use", "gpu_utilization.mean"), ("power", "power.mean"),
    ("tokens", "token_rate"), ("first token", "time_to_first_token.p99"),
    ("cost", "cost"), ("token cost", "token_cost"),
)  # fmt: skip
"""Columns of the loads of a configuration: title and query. A column without figures is left out."""
_OF_SERVERS = ("instances", "memory", "device memory", "device use", "power")
"""Columns that a server under load always has."""
_MISSING = dict.fromkeys(_OF_SERVERS, "unknown")
USUAL_PLOTS = (
    ChosenPlot(x="latency.p99", y="throughput", title="Throughput against p99 latency"),
    ChosenPlot(x="LOAD", y="latency.p99", title="p99 latency by load"),
    ChosenPlot(x="LOAD", y="cpu_utilization", title="Processor time by load"),
    ChosenPlot(x="LOAD", y="process_memory.max", title="Process memory by load"),
    ChosenPlot(x="LOAD", y="device_memory.max", title="Device memory by load"),
    ChosenPlot(x="LOAD", y="gpu_utilization.mean", title="Device use by load"),
    ChosenPlot(x="LOAD", y="power.mean", title="Power by load"),
)
"""Charts of named configurations, if measured; LOAD is the load, or the batch size if no load varies."""


def configuration_rows(study: Study, ranked: Ranking, names: Sequence[str]) -> list[RankedConfiguration]:
    """Return the rows of configurations by their names, each once.

    Raises:
        RequestError: the study has no such configuration.
    """
    rows = [find_configuration(study, ranked, name) for name in names]
    return [row for number, row in enumerate(rows) if row not in rows[:number]]


def configurations_title(study: Study, names: Sequence[str]) -> str:
    """Return the title of a page of some configurations."""
    numbers = [name.strip().rpartition("_")[2].removeprefix("#") for name in names]
    return ", ".join(f"{base_name(study)}_{number}" for number in numbers)


def configuration_summary(
    study: Study, rows: Sequence[RankedConfiguration], options: ViewOptions
) -> Iterator[Block]:
    """Say which configurations they are, and tabulate each under its loads."""
    for row in rows:
        settings = format_point(study.configuration(row.point)) or "the settings of the backend"
        place = "the default" if row.default else f"rank {row.rank}"
        yield note(f"{row.configuration} is {settings}; {place}")
    tables = [table for row in rows for table in load_table(study, row, options)]
    yield from tables
    cells = (cell for table in tables for line in table.rows for cell in line)
    if any(cell.startswith(UNCERTIFIED) for cell in cells):
        yield note(f"{UNCERTIFIED} marks {_UNCERTIFIED_MEANS}")


_UNCERTIFIED_MEANS = "a percentile of too few samples to be certified: the plain quantile of those measured"


def load_table(study: Study, row: RankedConfiguration, options: ViewOptions) -> Iterator[Table]:
    """Tabulate everything that was measured of a configuration, one row for each of its loads."""
    candidates = [candidate for candidate in candidates_by_load(study, row) if not candidate.failed]
    axes = _load_axes(study) or _batch_axes(study)
    figures = {title: [_figure(study, c, query, options) for c in candidates] for title, query in _COLUMNS}
    filled = {
        title: column
        for title, column in figures.items()
        if any(column) or (title in _OF_SERVERS and _load_axes(study))
    }
    if not any(map(any, figures.values())):
        return
    bounds = BOUNDS if study.goal.constraints else ()
    yield make_table(
        f"{row.configuration} under each load" if _load_axes(study) else row.configuration,
        (*(f"{title}>" for title in (*axes, *filled)), *bounds, ""),
        (
            (
                *(format_setting(study.resolved(c.point), name) for name in axes),
                *(column[place] or _MISSING.get(title, "—") for title, column in filled.items()),
                *(str(worst_verdict(judge_candidate(study, c))) for _ in bounds),
                "best" if c.point == row.point and len(candidates) > 1 else "",
            )
            for place, c in enumerate(candidates)
        ),
    )


def configuration_page(
    study: Study, rows: Sequence[RankedConfiguration], options: ViewOptions
) -> Iterator[Block]:
    """Lay out configurations with charts, in place of the page of the whole study."""
    yield Heading(title="Configurations")
    yield from configuration_summary(study, rows, options)
    chosen = options.plots or study.plots
    plots = list(plots_of(study, rows, chosen or USUAL_PLOTS, options, required=bool(chosen)))
    if plots:
        yield Heading(title="Curves")
        yield from plots


def plots_of(
    study: Study,
    rows: Sequence[RankedConfiguration],
    chosen: Sequence[ChosenPlot],
    options: ViewOptions,
    *,
    required: bool,
) -> Iterator[Plot]:
    """Draw chosen plots; each has a line for each configuration through its loads.

    Raises:
        RequestError: `required`, and nothing was measured of an axis.
    """
    axis = next(iter((*_load_axes(study), *_batch_axes(study))), "")
    for plot in chosen:
        at = replace(plot, x=axis) if plot.x == "LOAD" else plot
        series = [line for row in rows if (line := _line(study, row, at, options)).x] if at.x else []
        if series and (required or max(len(line.x) for line in series) > 1):
            yield Plot(title=str(plot), x=_scale(at.x), y=_scale(at.y), series=tuple(series))
        elif required:
            raise RequestError(f"Nothing to draw as '{plot}': no trial has both {plot.x} and {plot.y}.")


def _line(study: Study, row: RankedConfiguration, plot: ChosenPlot, options: ViewOptions) -> Series:
    points = []
    for candidate in candidates_by_load(study, row):
        x, y = (_value(study, candidate, name, options) for name in (plot.x, plot.y))
        if x is not None and y is not None:
            points.append((x, y, format_point(study.resolved(candidate.point))))
    if plot.monotonic:
        points = _growing(sorted(points))
    return Series.through(row.configuration, points, ("x", "y", "labels"))


def _growing(points: list[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Leave out the points that are not above the one before."""
    kept: list[tuple[float, float, str]] = []
    for point in points:
        if not kept or point[1] > kept[-1][1]:
            kept.append(point)
    return kept


def _load_axes(study: Study) -> list[str]:
    return [axis.name for axis in study.space.axes if axis.name in study.loads]


def _batch_axes(study: Study) -> list[str]:
    return [axis.name for axis in study.space.axes if axis.name == "batch_size"]


def _scale(name: str) -> AxisScale:
    with suppress(RequestError):
        return replace(scale_of(Query.parse(name)), label=name)
    return AxisScale(label=name)


def _figure(study: Study, candidate: Candidate, name: str, options: ViewOptions) -> str:
    """Format a figure; a percentile that is not certified is marked."""
    query = Query.parse(name)
    if text := format_shown(study, candidate, query):
        return text
    value = _value(study, candidate, name, options)
    if value is None:
        return ""
    answers = [trial.ask(query) for trial in candidate.quoted_trials]
    certified = all(answer is None or answer.value is not None for answer in answers)
    return f"{'' if certified else UNCERTIFIED}{format_quantity(value, query.unit, 3)}"


def _value(study: Study, candidate: Candidate, name: str, options: ViewOptions) -> float | None:
    """Return the value of an axis or a query: of the trials, or else of their Results."""
    if name in candidate.point:
        setting = study.resolved(candidate.point)[name]
        return float(setting) if isinstance(setting, int | float) else None
    query = Query.parse(name)
    value = shown_value(study, candidate, query)
    if value is not None or candidate.failed:
        return value
    values = [_value_of(result, query) for result in _results(candidate, options)]
    known_values = [value for value in values if value is not None]
    if not known_values or (len(known_values) < len(values) and _is_percentile(query)):
        return None
    return geometric_mean(known_values) if min(known_values) > 0 else fmean(known_values)


def _value_of(result: Result, query: Query) -> float | None:
    for text in _statistics_of(query):
        with suppress(ModelDynoError):
            if (answer := result.ask(text).value) is not None:
                return float(answer)
    return None


def _statistics_of(query: Query) -> tuple[str, ...]:
    """List what stands for a query in a Result, the best first; a mean is no percentile."""
    if query.statistic == "max":
        return (str(query),)
    if _is_percentile(query):
        return (f"{query}.raw",)
    return (str(query), f"{query.metric}.mean", query.metric)


def _is_percentile(query: Query) -> bool:
    return query.statistic is not None and fraction_of(query.statistic) is not None


def _results(candidate: Candidate, options: ViewOptions) -> list[Result]:
    """Return the stored Results of the trials that a candidate's figures come from."""
    results = (options.load_result(trial.result) for trial in candidate.quoted_trials if trial.result)
    return [result for result in results if result is not None]

"""Results of several configurations of one model: a sentence, a table, and throughput by batch size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.base.job.knob import BATCH_SIZE
from modeldyno.base.report.blocks import Block, Notice, Severity, Table, make_table
from modeldyno.base.report.charts import AxisScale, Plot, Series
from modeldyno.base.result.result import Result
from modeldyno.base.stats.units import format_quantity
from modeldyno.base.views.text import count, shorten_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_COLUMNS = (
    ("latency", "p50"), ("latency", "p99"), ("throughput", "mean"), ("process_memory", "max"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationRun:
    """A requested configuration with its Result, or why it failed."""

    configuration: Mapping[str, Any]
    result: Result | None = None
    failure: str = ""


def lay_out_configurations(tried: Sequence[ConfigurationRun]) -> Iterator[Block]:
    """Lay out the fastest configuration, the table of all, and the chart of throughput by batch size."""
    yield Notice(severity=Severity.VERDICT, text=summarize(tried))
    yield tabulate(tried)
    yield from draw(tried)


def summarize(tried: Sequence[ConfigurationRun]) -> str:
    """Summarize in one sentence: how many configurations, and which has the highest throughput."""
    rates = [(rate, run) for run in tried if (rate := _number(run, "throughput", "mean")) is not None]
    tried_text = count(len(tried), "configuration")
    if not rates:
        return f"{tried_text}, none of which could be measured."
    rate, best = max(rates, key=lambda pair: pair[0])
    throughput = format_quantity(rate, "1/s", 3).replace("/s", " samples/s")
    return f"{tried_text}; {describe(best.configuration)} has the highest throughput, {throughput}."


def tabulate(tried: Sequence[ConfigurationRun]) -> Table:
    """Tabulate the configurations in the given order, with point estimates or the failure."""
    titles = (f"{m}.{s}>" if s != "mean" else f"{m}>" for m, s in _COLUMNS)
    return make_table(
        "Configurations",
        ("configuration", *titles, "failure"),
        (
            (
                describe(run.configuration),
                *(_figure(run, metric, statistic) for metric, statistic in _COLUMNS),
                shorten_message(run.failure),
            )
            for run in tried
        ),
    )


def draw(tried: Sequence[ConfigurationRun]) -> Iterator[Plot]:
    """Draw throughput by batch size, one line per setting of the other knobs; nothing for a single size."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for run in tried:
        others = {name: run.configuration[name] for name in run.configuration if not _is_batch(name)}
        size = next((v for name, v in run.configuration.items() if _is_batch(name)), None)
        rate = _number(run, "throughput", "mean")
        if isinstance(size, int | float) and rate is not None:
            lines.setdefault(describe(others) if others else "throughput", []).append((float(size), rate))
    if len({size for points in lines.values() for size, _ in points}) < 2:
        return
    yield Plot(
        title="Throughput by batch size",
        x=AxisScale(label=BATCH_SIZE.name, logarithmic_from=1),
        y=AxisScale(label="throughput", unit="1/s"),
        series=tuple(Series.through(name, sorted(points)) for name, points in lines.items()),
    )


def describe(configuration: Mapping[str, Any]) -> str:
    """Format a configuration as its knobs: ``batch_size=8 precision=fp16``."""
    return " ".join(f"{name}={value}" for name, value in configuration.items()) or "the defaults"


def _is_batch(name: str) -> bool:
    return name in {BATCH_SIZE.name, *BATCH_SIZE.aliases}


def _number(run: ConfigurationRun, metric: str, statistic: str) -> float | None:
    return None if run.result is None else run.result.number(metric, statistic=statistic)


def _figure(run: ConfigurationRun, metric: str, statistic: str) -> str:
    number, measurement = _number(run, metric, statistic), run.result and run.result.find(metric)
    return "—" if number is None or not measurement else format_quantity(number, measurement.row.unit, 3)

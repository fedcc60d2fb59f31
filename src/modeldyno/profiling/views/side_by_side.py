"""Several documents beside each other: their verdicts, and the figures of Results in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.report.blocks import Column, Table, clean, make_table
from modeldyno.base.stats.units import format_change, format_quantity
from modeldyno.base.views.text import format_measurement, format_utc, number, short_model_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.base.result.result import Result

_STATISTICS = ("p50", "p99")


def side_by_side(results: Sequence[Result]) -> tuple[Table, Table]:
    """Show several Results in columns: what they are of, with the settings, and their figures."""
    names = short_model_names(results)
    facts = (
        ("result", [result.id[:12] for result in results]),
        ("made", [format_utc(result.created)[:16] for result in results]),
        ("backend", [result.job.backend for result in results]),
        ("processor", [str(result.environment.hardware.get("processor", "")) for result in results]),
        *_settings([result.job.config for result in results]),
    )
    figures_by_result = [dict(_figures_of_model(result)) for result in results]
    figures = dict.fromkeys(name for figures in figures_by_result for name in figures)
    return (
        Table(
            title="What they are of",
            columns=(Column(title="of"), *(Column(title=name) for name in names)),
            rows=tuple((name, *map(clean, texts)) for name, texts in facts if any(texts)),
        ),
        make_table(
            "Figures",
            ("figure", *(f"{name}>" for name in names), "difference>?"),
            (
                (name, *(text for text, _ in shown), _difference([value for _, value in shown]))
                for name in figures
                for shown in ([one.get(name, ("", None)) for one in figures_by_result],)
            ),
        ),
    )


def _settings(configs: Sequence[Mapping[str, object]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the settings that are not the same for all."""
    for name in dict.fromkeys(name for config in configs for name in config):
        texts = [str(config.get(name, "")) for config in configs]
        if len(set(texts)) > 1:
            yield name, texts


def _difference(values: Sequence[float | None]) -> str:
    """Say by how much the second of two figures differs from the first; empty where one is unknown."""
    if len(values) != 2 or values[0] is None or values[1] is None or not values[0]:
        return ""
    ratio = values[1] / values[0] - 1
    return format_change(ratio) if ratio else "same"


def _figures_of_model(result: Result) -> Iterator[tuple[str, tuple[str, float | None]]]:
    """Yield the figures of the whole model, as text and as a number if it is known."""
    for measurement in result.measurements:
        if not measurement.scope:
            yield from _figures(measurement)


def _figures(measurement: Measurement) -> Iterator[tuple[str, tuple[str, float | None]]]:
    name, value = measurement.metric, measurement.value
    if not isinstance(value, Distribution):
        full_name = f"{name}.{measurement.reported_statistic}" if measurement.reported_statistic else name
        yield full_name, (format_measurement(measurement), number(measurement)[0])
        return
    for statistic in _STATISTICS:
        text = format_quantity(value.statistic(statistic), measurement.row.unit, 3)
        text += ", not certified" if value.missing(statistic) else ""
        yield f"{name}.{statistic}", (value.void or text, value.certified(statistic))

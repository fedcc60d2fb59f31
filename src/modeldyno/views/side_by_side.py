"""Several documents beside each other: their verdicts, and the figures of Results in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.report.blocks import Align, Column, Table, clean
from modeldyno.core.stats.units import format_quantity
from modeldyno.views.text import format_measurement, format_utc, short_model_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.core.metrics.measurement import Measurement
    from modeldyno.core.result.result import Result

_STATISTICS = ("p50", "p99")


def figures(results: Sequence[Result]) -> Table:
    """Show the figures of several Results, a column each, and in the rows above them what they are of."""
    names = short_model_names(results)
    facts = (
        ("result", [result.id[:12] for result in results]),
        ("made", [format_utc(result.created)[:16] for result in results]),
        ("backend", [result.job.backend for result in results]),
        ("settings", [_settings(result.job.config) for result in results]),
        ("processor", [str(result.environment.hardware.get("processor", "")) for result in results]),
    )
    measured = [dict(_told(result)) for result in results]
    rows = dict.fromkeys(name for told in measured for name in told)
    return Table(
        title="",
        columns=(Column(title="figure"), *(Column(title=name, align=Align.RIGHT) for name in names)),
        rows=(
            *((name, *map(clean, texts)) for name, texts in facts if any(texts)),
            *((name, *(told.get(name, "") for told in measured)) for name in rows),
        ),
    )


def _told(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the figures of the whole model."""
    for measurement in result.measurements:
        if not measurement.scope:
            yield from _figures(measurement)


def _figures(measurement: Measurement) -> Iterator[tuple[str, str]]:
    label, value = measurement.row.label or measurement.metric, measurement.value
    if not isinstance(value, Distribution):
        yield f"{label} {measurement.told}".strip(), format_measurement(measurement)
        return
    for name in _STATISTICS:
        missing = value.missing(name)
        text = "not certified" if missing else format_quantity(value.statistic(name), measurement.row.unit, 3)
        yield f"{label} {name}", text


def _settings(config: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in config.items())

"""Several documents beside each other: their verdicts, and the figures of Results in columns."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from modeldyno.base.metrics.measurement import Distribution, Interval
from modeldyno.base.metrics.metric import Better
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
        ("made", [format_utc(result.created)[:16] for result in results]),
        ("backend", [result.job.backend for result in results]),
        ("processor", [str(result.environment.hardware.get("processor", "")) for result in results]),
        *_settings([result.job.config for result in results]),
        ("result", [result.id[:12] for result in results]),
    )
    by_result = [{one.name: one for one in _figures_of_model(result)} for result in results]
    figures = dict.fromkeys(name for figures in by_result for name in figures)
    return (
        Table(
            title="What they are of",
            columns=(Column(title="of"), *(Column(title=name) for name in names)),
            rows=tuple((name, *map(clean, texts)) for name, texts in facts if any(texts)),
        ),
        make_table(
            "Figures",
            ("figure", *(f"{name}>" for name in names), "difference>?", f"{BEST}?"),
            (
                (
                    name,
                    *("" if one is None else one.text for one in shown),
                    _difference([None if one is None else one.value for one in shown]),
                    _best(shown, names),
                )
                for name in figures
                for shown in ([one.get(name) for one in by_result],)
            ),
        ),
    )


BEST = "best"
"""Title of the column that names which Result is the best in a figure, as far as the intervals tell."""


class _Figure(NamedTuple):
    """A figure of a Result."""

    name: str
    text: str
    value: float | None
    """None if it is not known."""
    interval: Interval | None
    better: Better


def _best(shown: Sequence[_Figure | None], names: Sequence[str]) -> str:
    """Name the Result whose interval lies on the better side of all others; empty where none does."""
    known = [one for one in shown if one is not None]
    if len(known) < max(2, len(shown)):
        return ""
    better = known[0].better
    ends = [_ends(one) for one in known]
    for place, (low, high) in enumerate(ends):
        others = [*ends[:place], *ends[place + 1 :]]
        if better is Better.LOWER and all(high < other for other, _ in others):
            return names[place]
        if better is Better.HIGHER and all(low > other for _, other in others):
            return names[place]
    return ""


def _ends(figure: _Figure) -> tuple[float, float]:
    """Return the ends of an interval; one without any, such as one seen once, may be anything."""
    if figure.value is None or figure.interval is None:
        return -inf, inf
    return figure.interval.low, figure.interval.high


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


def _figures_of_model(result: Result) -> Iterator[_Figure]:
    """Yield the figures of the whole model."""
    for measurement in result.measurements:
        if not measurement.scope:
            yield from _figures(measurement)


def _figures(measurement: Measurement) -> Iterator[_Figure]:
    name, value, better = measurement.metric, measurement.value, measurement.row.better
    if not isinstance(value, Distribution):
        full_name = f"{name}.{measurement.reported_statistic}" if measurement.reported_statistic else name
        yield _Figure(full_name, format_measurement(measurement), *number(measurement), better)
        return
    for statistic in _STATISTICS:
        text = format_quantity(value.statistic(statistic), measurement.row.unit, 3)
        text += ", not certified" if value.missing(statistic) else ""
        certified = value.certified(statistic)
        interval = None if certified is None else value.interval(statistic)
        yield _Figure(f"{name}.{statistic}", value.void or text, certified, interval, better)

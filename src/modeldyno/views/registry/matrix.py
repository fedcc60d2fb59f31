"""How fast models are on targets, as a table, and over their versions, as a chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.report.blocks import Table, make_columns
from modeldyno.core.report.charts import AxisScale, Plot, Series
from modeldyno.core.stats.units import RATE, SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.registry.overview import SpeedRow

_TITLES = (
    "version", "target", "p50>", "p99>", "lowest latency as", "rate>", "highest rate as", "bounds", "state",
)  # fmt: skip


def speeds(rows: Sequence[SpeedRow], title: str = "") -> Table:
    """List versions on targets: the lowest latency, the highest rate, and what gives them."""
    cells = tuple(
        (
            f"{row.model}/{row.number}",
            row.target.name,
            _time(row.speed.p50),
            _time(row.speed.p99) or ("not certified" if row.speed.p50 is not None else ""),
            f"{row.figure.recipe}, {row.figure.measure.label}",
            format_quantity(row.rate, RATE, 3) if row.rate else "",
            f"{row.most.recipe}, {row.most.measure.label}" if row.rate else "",
            str(row.speed.bounds or ""),
            str(row.figure.state),
        )
        for row in rows
    )
    used = [at for at, name in enumerate(_TITLES) if name != "bounds" or any(row[at] for row in cells)]
    return Table(
        title=title,
        columns=make_columns(*(_TITLES[at] for at in used)),
        rows=tuple(tuple(row[at] for at in used) for row in cells),
    )


SHOWN = ("p50", "p99", "rate")
"""What a matrix can show of each target."""


def by_target(rows: Sequence[SpeedRow], figures: Sequence[str] = SHOWN, title: str = "") -> Table:
    """List models, and beside each how fast its newest version is on each target.

    Args:
        rows: the newest version of each model on each target.
        figures: what is shown of each of them, of `SHOWN`.
        title: of the table.
    """
    targets = {row.target.id: row.target.name for row in rows}
    row_by_place = {(row.model, row.target.id): row for row in rows}
    cells = {
        "p50": lambda row: _time(row.speed.p50),
        "p99": lambda row: _time(row.speed.p99) or ("not certified" if row.speed.p50 is not None else ""),
        "rate": lambda row: format_quantity(row.rate, RATE, 3) if row.rate else "",
    }
    titles = ["model"]
    for name in targets.values():
        titles += [*(f"{name}: {one}>" for one in figures), f"{name}: state"]
    return Table(
        title=title,
        columns=make_columns(*titles),
        rows=tuple(
            (
                model,
                *(
                    text
                    for target in targets
                    for row in [row_by_place.get((model, target))]
                    for text in (
                        ("",) * len(figures) + ("",)
                        if row is None
                        else (
                            *(cells[one](row) for one in figures),
                            str(row.speed.bounds or row.figure.state),
                        )
                    )
                ),
            )
            for model in dict.fromkeys(row.model for row in rows)
        ),
    )


def over_versions(rows: Sequence[SpeedRow]) -> Plot | None:
    """Draw the lowest median latency over the versions, a line for each target; None for a single version."""
    timed = [row for row in rows if row.speed.p50 is not None]
    if len({row.number for row in timed}) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    names = {row.target.id: row.target.name for row in timed}
    return Plot(
        title="Lowest median latency over the versions",
        x=AxisScale(label="version"),
        y=AxisScale(label="latency.p50", unit=SECONDS),
        series=tuple(
            _series(name, sorted((r for r in timed if r.target.id == target), key=lambda row: row.number))
            for target, name in names.items()
        ),
    )


def _series(name: str, rows: Sequence[SpeedRow]) -> Series:
    values = [row.speed.p50 or 0.0 for row in rows]
    ends = [row.speed.p50_interval for row in rows]
    return Series(
        name=name,
        x=tuple(float(row.number) for row in rows),
        y=tuple(values),
        labels=tuple(f"{row.figure.recipe}, {row.figure.measure.label}" for row in rows),
        low=tuple(v if end is None else end.low for v, end in zip(values, ends, strict=True)),
        high=tuple(v if end is None else end.high for v, end in zip(values, ends, strict=True)),
    )


def _time(value: float | None) -> str:
    return "" if value is None else format_quantity(value, SECONDS, 3)

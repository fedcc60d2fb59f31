from __future__ import annotations

from tests.support.sample_registry import a_figure, a_target, a_task, a_version

from modeldyno.base.metrics.constraints import Verdict
from modeldyno.registry.records.overview import FigureSpeed, SpeedRow
from modeldyno.registry.records.records import FigureState
from modeldyno.registry.views.lists import over_versions, speeds


def a_row(number: int = 1, *, p50: float | None = 0.002, bounds: Verdict | None = None) -> SpeedRow:
    figure = a_figure(a_task(a_version(number=number)), state=FigureState.FRESH)
    speed = FigureSpeed(p50=p50, p99=None, seen=(p50, p50 and 1.234 * p50), rate=500.0, bounds=bounds)
    return SpeedRow(
        model="digits", number=number, target=a_target(), figure=figure, speed=speed, most=figure, rate=500.0
    )


def test_a_percentile_that_is_not_certified_is_about_what_was_seen() -> None:
    """What was not measured at all is empty."""
    table = speeds([a_row(), a_row(2, p50=None)])

    assert [row[2:4] for row in table.rows] == [("2.00 ms", "about 2.5 ms"), ("", "")]


def test_bounds_have_a_column_if_a_policy_has_any() -> None:
    """Otherwise it would be empty in every row."""
    without, with_bounds = speeds([a_row()]), speeds([a_row(bounds=Verdict.HELD), a_row(2)])

    assert "bounds" not in {column.title for column in without.columns}
    at = [column.title for column in with_bounds.columns].index("bounds")
    assert [row[at] for row in with_bounds.rows] == ["held", ""]


def test_a_line_needs_two_versions() -> None:
    """One version is no development; versions are drawn in their order."""
    drawn = over_versions([a_row(2, p50=0.001), a_row(1)])

    assert over_versions([a_row()]) is None
    assert over_versions([a_row(), a_row(2, p50=None)]) is None
    assert drawn is not None
    assert [(line.name, line.x, line.y) for line in drawn.series] == [("here", (1.0, 2.0), (0.002, 0.001))]

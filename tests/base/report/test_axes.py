from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.report.axes import ORDERS, axes_of, draw_axis, has_room_at_left
from modeldyno.base.report.charts import AxisScale, Band, Plot, ReferenceLine, Series

LATENCY = AxisScale(label="latency", unit="s", logarithmic_from=ORDERS)
LOADS = AxisScale(label="concurrency", logarithmic_from=8)
BOUND = ReferenceLine(name="latency.p99 <= 5 ms", at=5e-3)


def ticks(scale: AxisScale, *values: float, others: tuple[float, ...] = (), tight: bool = False) -> list[str]:
    """Return the texts of the ticks of an axis."""
    axis = draw_axis(scale, values, others, tight=tight)
    assert axis is not None
    return [text for _, text in axis.ticks]


def test_a_far_bound_does_not_stretch_an_axis() -> None:
    """Points of 10 us under a bound of 5 ms keep the axis: the bound is beyond its upper edge."""
    axis = draw_axis(LATENCY, [9e-6, 10e-6, 23e-6], [BOUND.at])

    assert axis is not None
    assert (axis.title, axis.low, axis.high) == ("latency (us)", 0.0, 25.0)
    assert (axis.beyond(BOUND.at), axis.beyond(10e-6), axis.beyond(-1e-3)) == (1, 0, -1)


def test_a_near_bound_is_on_the_axis() -> None:
    """It may double a linear axis, and the ratio of a logarithmic one."""
    assert ticks(LATENCY, 0.02, 0.04, others=(0.07,))[-1] == "80"
    axis = draw_axis(LATENCY, [1e-3, 0.02], [0.3])
    assert axis is not None
    assert axis.beyond(0.3) == 0
    far = draw_axis(LATENCY, [1e-3, 0.02], [0.5])
    assert far is not None
    assert far.beyond(0.5) == 1


def test_times_over_orders_of_size_are_logarithmic() -> None:
    """From a factor of ten on, with round ticks; below it the axis is linear and begins at 0."""
    assert ticks(LATENCY, 0.001, 0.063) == ["1", "3", "10", "30"]
    assert ticks(LATENCY, 0.004, 0.02) == ["0", "5", "10", "15", "20"]
    assert ticks(LATENCY, 0.0, 5.0) == ["0", "1", "2", "3", "4", "5"]


def test_loads_that_double_have_ticks_at_powers_of_two() -> None:
    """Also where some are left out; other loads have round ticks."""
    assert ticks(LOADS, 1, 2, 4, 8, 16, 32) == ["1", "2", "4", "8", "16", "32"]
    assert ticks(LOADS, 4, 32) == ["4", "8", "16", "32"]
    assert ticks(LOADS, 1, 3, 10, 30) == ["1", "2", "5", "10", "20"]
    assert ticks(LOADS, 1, 2) == ["0", "0.5", "1", "1.5", "2"]


def test_whole_numbers_have_no_ticks_between_them() -> None:
    """Two versions have two ticks; of many some are left out."""
    versions = AxisScale(label="version", whole=True)

    assert ticks(versions, 1, 2) == ["1", "2"]
    assert ticks(versions, 1, 24) == ["5", "10", "15", "20"]
    assert ticks(versions, 7) == ["7"]


def test_results_have_their_dates_as_ticks() -> None:
    """Each date once, where its first result is; of many dates some."""
    days = AxisScale(label="result", names=("11-01", "11-01", "11-02", "11-05"))
    months = AxisScale(label="result", names=tuple(f"11-{day:02}" for day in range(1, 31)))

    assert ticks(days, 1, 2, 3, 4) == ["11-01", "11-02", "11-05"]
    assert len(ticks(months, *range(1, 31))) == 8


def test_an_axis_far_from_zero_is_zoomed_in() -> None:
    """Values within a few percent of each other fill it."""
    assert ticks(LATENCY, 9.1e-3, 9.5e-3) == ["9.1", "9.2", "9.3", "9.4", "9.5"]


@pytest.mark.parametrize(
    ("values", "ends"),
    [((), (0.0, 1.0)), ((0.0, 0.0), (0.0, 1.0)), ((3.0,), (0.0, 3.0)), ((-3.0,), (-3.0, 0.0))],
)
def test_an_axis_has_a_range_whatever_is_on_it(values: tuple[float, ...], ends: tuple[float, float]) -> None:
    """Without values, at 0, of a single one, and below 0."""
    axis = draw_axis(AxisScale(label="n"), values)

    assert axis is not None
    assert (axis.low, axis.high) == ends
    single = draw_axis(replace(LOADS, logarithmic_from=1), [4.0])
    assert single is not None
    assert single.low < 4 < single.high


def test_a_dense_line_ends_where_the_axis_does() -> None:
    """Its axis has round ticks and the ends of the values, a shaded stretch before it included."""
    line = Series(name="calls", x=tuple(map(float, range(2400))), y=(1e-3,) * 2400)
    plot = Plot(
        title="t",
        x=AxisScale(label="call"),
        y=LATENCY,
        series=(line,),
        bands=(Band(name="warm-up", low=-43.0, high=0.0),),
    )
    x, _ = axes_of(plot)

    assert x is not None
    assert (x.low, x.high) == (-43.0, 2399.0)


def test_stacked_areas_reach_up_to_their_sum() -> None:
    """The axis holds the sum of the parts, from 0."""
    parts = tuple(Series(name=name, x=(0.0, 1.0), y=(3.0, 4.0)) for name in "ab")
    _, y = axes_of(
        Plot(title="t", x=AxisScale(label="x"), y=AxisScale(label="y"), series=parts, stacked=True)
    )

    assert y is not None
    assert (y.low, y.high) == (0.0, 8.0)


def test_categories_have_no_axis_of_numbers() -> None:
    """Their ticks are their names."""
    assert draw_axis(AxisScale(label="knob", categories=("a", "b")), [0.0, 1.0]) is None


def test_a_wide_interval_does_not_stretch_an_axis() -> None:
    """An end that too few samples left far away lies beyond the edge; one that is not finite is nowhere."""
    line = Series(name="p99", x=(1.0, 2.0), y=(9e-6, 10e-6), low=(8e-6, nan), high=(8e-3, inf))
    _, y = axes_of(Plot(title="t", x=LOADS, y=LATENCY, series=(line,)))

    assert y is not None
    assert y.beyond(8e-3) == 1
    assert y.beyond(8e-6) == 0


def test_a_share_of_an_axis_is_by_ratio_where_that_is_logarithmic() -> None:
    """The middle of 1 and 100 is 10; what has no logarithm is at the low end."""
    axis = draw_axis(replace(LOADS, logarithmic_from=1), [1.0, 64.0])
    linear = draw_axis(AxisScale(label="n"), [0.0, 10.0])

    assert axis is not None
    assert axis.share(8.0) == pytest.approx(0.5)
    assert axis.share(0.0) == 0.0
    assert linear is not None
    assert linear.share(5.0) == 0.5


def test_the_name_of_a_line_stands_where_no_points_are() -> None:
    """A rising line crosses a bound at the right: its name stands at the left; of categories as well."""
    rising = Series(name="p99", x=(0.0, 1.0, 2.0), y=(0.01, 0.02, 0.05))
    plot = Plot(title="t", x=AxisScale(label="n"), y=LATENCY, series=(rising,))
    named = replace(plot, x=AxisScale(label="n", categories=("a", "b", "c")))
    falling = replace(plot, series=(replace(rising, y=(0.05, 0.02, 0.01)),))
    outside = replace(plot, series=(replace(rising, y=(nan, 0.02, nan)),))
    unnumbered = replace(plot, y=named.x, series=(rising,))

    assert has_room_at_left(plot, 0.05, *axes_of(plot))
    assert has_room_at_left(named, 0.05, *axes_of(named))
    assert not has_room_at_left(falling, 0.05, *axes_of(falling))
    assert not has_room_at_left(outside, 0.05, *axes_of(outside))
    assert not has_room_at_left(unnumbered, 0.05, *axes_of(unnumbered))


@given(
    st.lists(st.floats(min_value=1e-12, max_value=1e12), min_size=1, max_size=20),
    st.lists(st.floats(), max_size=5),
    st.sampled_from([1.0, 10.0, inf]),
    st.booleans(),
)
def test_every_point_is_on_its_axis(
    values: list[float], others: list[float], ratio: float, tight: bool
) -> None:
    """Whatever lines and intervals are beside them; ticks rise, lie on the axis, and are few."""
    axis = draw_axis(AxisScale(label="x", logarithmic_from=ratio), values, others, tight=tight)

    assert axis is not None
    assert [value for value in values if axis.beyond(value)] == []
    places = [at for at, _ in axis.ticks]
    assert places == sorted(places)
    assert all(axis.low <= at <= axis.high for at in places)
    assert len(places) <= 8


def test_a_unit_of_another_kind_is_kept() -> None:
    """Operations per byte have no larger unit."""
    axis = draw_axis(AxisScale(label="intensity", unit="FLOP/B", logarithmic_from=1), [0.5, 5000.0])

    assert axis is not None
    assert (axis.title, axis.size) == ("intensity (FLOP/B)", 1.0)

"""Where the axes of a chart begin and end, their unit, and their ticks: the same in every format.

The points decide. A reference line or the end of an interval extends an axis only while the points keep half
of it; what lies farther away is beyond the edge, where each format draws an arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, isfinite, log, log2, log10
from typing import TYPE_CHECKING

from modeldyno.base.stats.units import KINDS, display_units, format_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from modeldyno.base.report.charts import AxisScale, Plot

ORDERS = 10.0
"""Ratio from which on times have a logarithmic axis: on another, the smaller ones lie in its first tenth."""
LARGEST = 1e200
"""Numbers beyond are left out: no axis spans them."""
_TICKS, _MOST_TICKS = 6, 8
"""Steps between ticks that are aimed at, and the most ticks."""
_ZOOMED = 0.6
"""Share of the largest value above which an axis need not begin at 0, if the smallest one is above it."""
_DENSE = 60
"""Points of a line above which its axis ends where it does."""
_BINARY = 512
"""Ratio up to which powers of two have ticks of their own."""
_STEPS = ((2e3, (1,)), (30.0, (1, 3)), (4.0, (1, 2, 5)), (0.0, (1, 1.5, 2, 3, 4, 5, 6, 8)))
"""Ratio of the ends of a logarithmic axis from which on its ticks in each decade are these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnAxis:
    """An axis as it is drawn; all but `size` is in the unit of its title."""

    title: str
    size: float
    """The unit in base units."""
    low: float
    high: float
    logarithmic: bool = False
    ticks: tuple[tuple[float, str], ...] = ()

    def beyond(self, value: float) -> int:
        """Return -1 or 1 if a value in base units lies below or above the axis, else 0."""
        at, room = value / self.size, 1e-9 * (self.high - self.low)
        return (at > self.high + room) - (at < self.low - room)

    def share(self, value: float) -> float:
        """Return where a value in base units lies: 0 at the low end, 1 at the high end."""
        low, high, at = self.low, self.high, value / self.size
        if self.logarithmic:
            low, high, at = log(low), log(high), log(at) if at > 0 else log(low)
        return (at - low) / (high - low)


def axes_of(plot: Plot) -> tuple[DrawnAxis | None, DrawnAxis | None]:
    """Return the axes of a plot; None for one of categories."""
    xs = finite(x for one in plot.series for x in one.x)
    dense = any(one.joined and len(one.x) > _DENSE for one in plot.series)
    verticals = [rule.at for rule in plot.rules if rule.vertical]
    x = draw_axis(
        plot.x, xs, [*verticals, *(end for band in plot.bands for end in (band.low, band.high))], tight=dense
    )
    if plot.stacked:
        totals = finite(sum(parts) for parts in zip(*(one.y for one in plot.series), strict=False))
        return x, draw_axis(plot.y, [0.0, *totals])
    ys = finite(y for one in plot.series for y in one.y)
    ends = [end for one in plot.series for end in (*one.low, *one.high)]
    return x, draw_axis(plot.y, ys, [*ends, *(rule.at for rule in plot.rules if not rule.vertical)])


def has_room_at_left(plot: Plot, at: float, x: DrawnAxis | None, y: DrawnAxis | None) -> bool:
    """Return whether the name of a horizontal line has more room at its left end than at its right.

    Room is how far the points in the outer third of the chart are from it.
    """
    if y is None:
        return False
    places = [
        (_across(plot, x, one_x), abs(y.share(one_y) - y.share(at)))
        for one in plot.series
        for one_x, one_y in zip(one.x, one.y, strict=True)
        if isfinite(one_y)
    ]
    left = min((room for place, room in places if place < _OUTER), default=1.0)
    return left > min((room for place, room in places if place > 1 - _OUTER), default=1.0)


_OUTER = 1 / 3


def _across(plot: Plot, x: DrawnAxis | None, value: float) -> float:
    return x.share(value) if x is not None else (value + 0.5) / len(plot.x.categories)


def finite(values: Iterable[float]) -> list[float]:
    """Return the values that an axis can span; those that are nearly 0 as 0."""
    spanned = (value for value in values if isfinite(value) and abs(value) < LARGEST)
    return [value if abs(value) > 1 / LARGEST else 0.0 for value in spanned]


def draw_axis(
    scale: AxisScale, values: Sequence[float], others: Iterable[float] = (), *, tight: bool = False
) -> DrawnAxis | None:
    """Return the axis of finite values; None if they are categories.

    Args:
        scale: the quantity.
        values: of the points, in base units.
        others: of lines and intervals, which extend the axis only so far that the points keep half of it.
        tight: whether it ends where the values do, and not at a tick.
    """
    if scale.categories:
        return None
    low, high = min(values, default=0.0), max(values, default=0.0)
    is_whole, reach = scale.whole or bool(scale.names), finite(others)
    by_ratio = low > 0 and high >= scale.logarithmic_from * low
    if by_ratio:
        low, high = _extend_by_ratio(low, high, reach)
    else:
        low, high = _extend(*((low, high) if is_whole or tight else _from_zero(low, high)), reach)
    if low == high and not is_whole:
        high += 1.0
    size, name = _unit(scale, max(abs(low), abs(high)))
    title = f"{scale.label} ({name})" if name else scale.label
    low, high = low / size, high / size
    if by_ratio:
        return _logarithmic(title, size, low, high, {value / size for value in values})
    if is_whole:
        ticks = _named_ticks(scale.names) or [(at, format_number(at)) for at in _whole_ticks(low, high)]
        low, high = low - 0.5, high + 0.5
    else:
        places = _linear_ticks(low, high)
        ticks = [(at, format_number(at)) for at in places]
        low, high = (low, high) if tight else (places[0], places[-1])
    return DrawnAxis(title=title, size=size, low=low, high=high, ticks=_few(ticks, low, high))


def _few(ticks: Sequence[tuple[float, str]], low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Return the ticks between two ends; of many some."""
    between = [(at, text) for at, text in ticks if low <= at <= high]
    return tuple(between[:: ceil(len(between) / _MOST_TICKS) or 1])


def _named_ticks(names: Sequence[str]) -> list[tuple[float, str]]:
    """Return a tick for each name that differs from the one before."""
    return [(float(at), name) for at, name in enumerate(names, 1) if at == 1 or name != names[at - 2]]


def _from_zero(low: float, high: float) -> tuple[float, float]:
    """Return the ends of a linear axis: one is 0, unless all values lie far from it."""
    if 0 <= low <= _ZOOMED * high or low == high >= 0:
        return 0.0, high
    return (low, 0.0) if low == high else (low, high)


def _extend(low: float, high: float, others: Iterable[float]) -> tuple[float, float]:
    span = high - low
    near = [other for other in others if low - span <= other <= high + span]
    return min(low, *near, high), max(high, *near, low)


def _extend_by_ratio(low: float, high: float, others: Iterable[float]) -> tuple[float, float]:
    ratio = max(high / low, 2.0)
    near = [other for other in others if low / ratio <= other <= high * ratio]
    low, high = min(low, *near, high), max(high, *near, low)
    return (low, high) if high > low else (low / 2, 2 * high)


def _unit(scale: AxisScale, largest: float) -> tuple[float, str]:
    """Return the size and the name of the unit that suits the largest value of an axis."""
    if scale.unit not in KINDS:
        return 1.0, scale.unit
    _, size, name = [one for one in display_units(scale.unit) if largest >= 0.9995 * one[0]][-1]
    return size, name.strip()


# --- ticks -----------------------------------------------------------------------------------------


def _linear_ticks(low: float, high: float) -> list[float]:
    """Return multiples of a round step that enclose an axis."""
    rough = (high - low) / _TICKS
    power = 10.0 ** floor(log10(rough))
    step = next(part * power for part in (1, 2, 2.5, 5, 10) if part * power >= 0.999 * rough)
    return [float(f"{n * step:.12g}") for n in range(floor(low / step + 1e-9), ceil(high / step - 1e-9) + 1)]


def _whole_ticks(low: float, high: float) -> list[float]:
    """Return whole numbers on an axis."""
    rough = max(1.0, (high - low) / _TICKS)
    power = 10.0 ** floor(log10(rough))
    step = next(ceil(part * power) for part in (1, 2, 5, 10) if part * power >= 0.999 * rough)
    return [float(n) for n in range(ceil(low / step) * step, floor(high) + 1, step)]


def _logarithmic(title: str, size: float, low: float, high: float, values: set[float]) -> DrawnAxis:
    """Return a logarithmic axis with round ticks, or powers of two where all values are such."""
    ratio = high / low
    binary = ratio <= _BINARY and all(log2(value).is_integer() for value in values)
    room = min(1.25, max(ratio, 2.0) ** 0.1)
    low, high = low / room, high * room
    marks = _powers_of_two(values) if binary else _round_numbers(low, high, ratio)
    ticks = _few([(at, format_number(at)) for at in marks], low, high)
    return DrawnAxis(title=title, size=size, low=low, high=high, logarithmic=True, ticks=ticks)


def _powers_of_two(values: set[float]) -> list[float]:
    return [2.0**power for power in range(round(log2(min(values))), round(log2(max(values))) + 1)]


def _round_numbers(low: float, high: float, ratio: float) -> list[float]:
    parts = next(parts for least, parts in _STEPS if ratio > least)
    powers = range(floor(log10(low)), floor(log10(high)) + 1)
    numbers = (float(f"{part * 10.0**power:.6g}") for power in powers for part in parts)
    return [number for number in numbers if low <= number <= high]

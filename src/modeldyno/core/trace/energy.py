"""Energy and power: from what a counter or a power meter told to joules of one call.

The idle floor is what a device drew in the second before the model was loaded. What it draws above that
while calls are made back to back, times the mean seconds of a call, is the energy of one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Distribution, Interval, Measurement, observed
from modeldyno.core.stats.units import SECONDS, WATTS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

UPDATES = 10
"""A window must be this many times longer than a counter's period: either end is known to one period."""
DEEPEST = 0.5
"""A counter that steps down by more than this share of its span has begun anew; by less, it was reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """How a device tells what it draws."""

    period: float
    """Seconds between two updates of its counter, or between two samples of its power."""
    span: float | None = None
    """Joules at which its counter begins anew; None where it never does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a device told at one moment."""

    time: float
    """Seconds of one clock."""
    energy: float | None = None
    """Joules, as its counter stands."""
    power: float | None = None
    """Watts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What a device drew over one or several windows, on average."""

    power: float
    """Watts."""
    seconds: float
    error: float
    """Watts; either end of a window is known to half a period of the meter."""
    counted: bool
    """By a counter of energy; else sampled power was summed up over time."""
    enough: bool
    """Whether the windows are long enough for what told it."""


def draw(windows: Sequence[Sequence[Sample]], meter: Meter) -> Draw | None:
    """Average over windows, each from its first sample to its last; None where it cannot be known.

    What was drawn between two windows counts nowhere.
    """
    told = [[(s.time, s.energy) for s in window if s.energy is not None] for window in windows]
    sampled = [[(s.time, s.power) for s in window if s.power is not None] for window in windows]
    counts = [window for window in told if len(window) > 1]
    joules = [consumed([energy for _, energy in window], meter.span) for window in counts]
    known = [each for each in joules if each is not None]
    counted = bool(counts) and len(known) == len(counts)
    points = counts if counted else list(filter(None, sampled))
    seconds = sum(window[-1][0] - window[0][0] for window in points)
    if seconds <= 0:
        return None
    power = sum(known if counted else map(integral, sampled)) / seconds
    return Draw(
        power=power,
        seconds=seconds,
        error=power * meter.period * len(points) / seconds,
        counted=counted,
        enough=seconds >= UPDATES * meter.period * len(points),
    )


def consumed(counts: Sequence[float], span: float | None) -> float | None:
    """Joules from the first reading of a counter to the last, through any number of its wraps.

    None for fewer than two readings, and where the counter was set back between them: what was counted
    then is lost. Readings must come more often than the counter wraps.
    """
    if len(counts) < 2:  # noqa: PLR2004 - a difference
        return None
    steps = [b - a for a, b in pairwise(counts)]
    if any(step < 0 and (span is None or -step < DEEPEST * span) for step in steps):
        return None
    return sum(step if step >= 0 or span is None else step + span for step in steps)


def integral(points: Sequence[tuple[float, float]]) -> float:
    """Sum values (such as watts) up over their times, by trapezoids."""
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))


def measured(metric: str, scope: str, drawn: Draw) -> Measurement:
    """Give what was drawn with the interval that the ends of its window leave."""
    interval = Interval(low=drawn.power - drawn.error, high=drawn.power + drawn.error)
    return observed(metric, drawn.power, scope=scope, interval=interval)


def per_call(found: Iterable[Measurement]) -> Iterator[Measurement | Doubt]:
    """Joules that one call takes above the idle floor: of each device, and of all that have a floor.

    Needs `power` and `idle_power` at the same scopes, and `latency` (its mean) or `batch_rate`. What
    cannot be told from the floor is left out.
    """
    known = {(m.metric, m.scope): m for m in found}
    seconds = _seconds(known)
    above = {
        scope: _plus(_ends(watts), [-end for end in reversed(_ends(floor))])
        for (metric, scope), watts in known.items()
        if metric == "power" and (floor := known.get(("idle_power", scope))) is not None
    }
    if not above or seconds is None:
        return
    whole = reduce(_plus, above.values())
    taken = {scope: watts for scope, watts in {**above, "": whole}.items() if watts[0] > 0}
    for scope, watts in taken.items():
        low, joules, high = (a * b for a, b in zip(watts, seconds, strict=True))
        yield observed("energy", joules, scope=scope, interval=Interval(low=low, high=high))
    if not taken:
        yield _at_idle(list(above), whole)


_Ends = Sequence[float]
"""The lower end of an interval, the estimate, and the upper end."""


def _ends(found: Measurement) -> _Ends:
    if isinstance(found.value, Distribution):
        value, interval = found.value.statistic("mean"), found.value.interval("mean")
    else:
        value, interval = found.value, found.interval
    return (value, value, value) if interval is None else (interval.low, value, interval.high)


def _plus(a: _Ends, b: _Ends) -> _Ends:
    return [x + y for x, y in zip(a, b, strict=True)]


def _seconds(known: dict[tuple[str, str], Measurement]) -> _Ends | None:
    """Give the mean seconds of one call.

    Calls fill the timed pass but for 1 to 3 % of it, so the mean power of the pass is that of the calls.
    """
    latency, rate = known.get(("latency", "")), known.get(("batch_rate", ""))
    if latency is not None and isinstance(latency.value, Distribution) and len(latency.value):
        return [end if isfinite(end) else latency.value.statistic("mean") for end in _ends(latency)]
    if rate is None:
        return None
    return [1 / end if end > 0 else 1 / _ends(rate)[1] for end in reversed(_ends(rate))]


def _at_idle(devices: list[str], above: _Ends) -> Doubt:
    low, _, high = (format_quantity(end, WATTS, 2) for end in above)
    return Doubt(
        code="at-idle-power",
        seen=f"{', '.join(devices)} drew {low} to {high} more in the timed pass than before loading",
        advice="quieten the machine, or measure longer with --min-time; a small model may draw too little",
    )


def too_short(device: str, drawn: Draw, meter: Meter) -> Doubt:
    """Say that a window was too short to tell the energy of a device."""
    needed = format_quantity(UPDATES * meter.period, SECONDS, 2)
    return Doubt(
        code="short-window",
        seen=f"{device} was watched for {format_quantity(drawn.seconds, SECONDS, 2)} of calls, "
        f"and {needed} are needed to tell what it drew",
        advice="measure longer with --min-time",
    )


def by_samples(device: str) -> Doubt:
    """Say that the energy of a device comes from samples of its power."""
    return Doubt(
        code="sampled-power",
        seen=f"{device} tells no energy; its power was sampled and summed up over time",
        advice="read its energy as an estimate, and measure longer with --min-time",
    )

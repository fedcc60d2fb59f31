"""Energy and power: from the readings of an energy counter or power meter to joules per call.

The idle floor is the power of a device in the second before the model was loaded. The power above it during
back-to-back calls, times the mean seconds of a call, is the energy of one call; over the rate of tokens,
that of one token. Prefill and decode have one mean power: meters are too slow to tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, observed_number
from modeldyno.base.stats.units import SECONDS, WATTS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

UPDATES = 10
"""A window must be this many times longer than a meter's period: each end is known to one period."""
DEEPEST = 0.5
"""A counter that drops by more than this share of its span has wrapped around; by less, it was reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyMeter:
    """How a device reports the power that it draws."""

    period: float
    """Seconds between two updates of its counter, or between two samples of its power."""
    span: float | None = None
    """Joules at which its counter wraps around; None where it never does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterSample:
    """A reading of a device at one moment."""

    time: float
    """Seconds, by one clock for all samples."""
    energy: float | None = None
    """Joules, the reading of its counter."""
    power: float | None = None
    """Watts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDraw:
    """The average power of a device over one or several windows."""

    power: float
    """Watts."""
    seconds: float
    error: float
    """Watts; each end of a window is known to half a period of the meter."""
    counted: bool
    """Whether it comes from an energy counter, not from integrated samples of power."""
    needed: float
    """Seconds that the windows must last for the meter."""

    @property
    def enough(self) -> bool:
        """Whether the windows are long enough for the meter."""
        return self.seconds >= self.needed


def average_power_draw(windows: Sequence[Sequence[MeterSample]], meter: EnergyMeter) -> PowerDraw | None:
    """Average over windows, each from its first sample to its last; None where it cannot be computed.

    Energy between two windows is left out.
    """
    readings = [[(s.time, s.energy) for s in window if s.energy is not None] for window in windows]
    sampled = [[(s.time, s.power) for s in window if s.power is not None] for window in windows]
    counter_windows = [window for window in readings if len(window) > 1]
    joules = [consumed_joules([energy for _, energy in window], meter.span) for window in counter_windows]
    valid = [energy for energy in joules if energy is not None]
    counted = bool(counter_windows) and len(valid) == len(counter_windows)
    points = counter_windows if counted else list(filter(None, sampled))
    seconds = sum(window[-1][0] - window[0][0] for window in points)
    if seconds <= 0:
        return None
    power = sum(valid if counted else map(integrate_over_time, sampled)) / seconds
    return PowerDraw(
        power=power,
        seconds=seconds,
        error=power * meter.period * len(points) / seconds,
        counted=counted,
        needed=UPDATES * meter.period * len(points),
    )


def consumed_joules(counts: Sequence[float], span: float | None) -> float | None:
    """Return the joules from the first reading of a counter to the last, through any number of wraps.

    None for fewer than two readings, or where the counter was reset between them. Readings must come more
    often than the counter wraps.
    """
    if len(counts) < 2:
        return None
    steps = [b - a for a, b in pairwise(counts)]
    if any(step < 0 and (span is None or -step < DEEPEST * span) for step in steps):
        return None
    return sum(step if step >= 0 or span is None else step + span for step in steps)


def integrate_over_time(points: Sequence[tuple[float, float]]) -> float:
    """Integrate values (such as watts) over time by the trapezoidal rule."""
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))


def power_measurement(metric: str, scope: str, drawn: PowerDraw) -> Measurement:
    """Return the average power with the interval that follows from the uncertain ends of its window."""
    interval = Interval(low=drawn.power - drawn.error, high=drawn.power + drawn.error)
    return observed_number(metric, drawn.power, scope=scope, interval=interval)


def energy_per_call(measurements: Iterable[Measurement]) -> Iterator[Measurement | Doubt]:
    """Yield the joules above the idle floor per call, of each device and of all, and per token, of all.

    Needs `power` and `idle_power` at the same scopes, and `latency` (its mean), `batch_rate` or, for tokens,
    `token_rate`. A device whose power does not exceed its floor is left out.
    """
    by_metric = {(m.metric, m.scope): m for m in measurements}
    seconds = _seconds_per_call(by_metric)
    token_seconds = {
        scope: _seconds_of_one(rate)
        for (metric, scope), rate in by_metric.items()
        if metric == "token_rate" and rate.mean_with_ends()[1] > 0
    }
    above = {
        scope: _add_ends(watts.mean_with_ends(), [-end for end in reversed(floor.mean_with_ends())])
        for (metric, scope), watts in by_metric.items()
        if metric == "power" and (floor := by_metric.get(("idle_power", scope))) is not None
    }
    if not above or (seconds is None and not token_seconds):
        return
    total = reduce(_add_ends, above.values())
    positive = {scope: watts for scope, watts in {**above, "": total}.items() if watts[0] > 0}
    if seconds is not None:
        for scope, watts in positive.items():
            yield _joules("energy", scope, watts, seconds)
    if "" in positive:
        for scope, taken in token_seconds.items():
            yield _joules("energy_per_token", scope, positive[""], taken)
    if not positive:
        yield _idle_power_doubt(list(above), total)


_Ends = Sequence[float]
"""The lower end of an interval, the estimate, and the upper end."""


def _add_ends(a: _Ends, b: _Ends) -> _Ends:
    return [x + y for x, y in zip(a, b, strict=True)]


def _joules(metric: str, scope: str, watts: _Ends, seconds: _Ends) -> Measurement:
    low, joules, high = (a * b for a, b in zip(watts, seconds, strict=True))
    return observed_number(metric, joules, scope=scope, interval=Interval(low=low, high=high))


def _seconds_of_one(rate: Measurement) -> _Ends:
    """Return the seconds that one takes of what comes at a rate."""
    ends = rate.mean_with_ends()
    return [1 / end if end > 0 else 1 / ends[1] for end in reversed(ends)]


def _seconds_per_call(by_metric: dict[tuple[str, str], Measurement]) -> _Ends | None:
    """Return the mean seconds of one call.

    Calls fill 97 to 99 % of the timed pass, so that the mean power of the pass is that of the calls.
    """
    latency, rate = by_metric.get(("latency", "")), by_metric.get(("batch_rate", ""))
    if latency is not None and isinstance(latency.value, Distribution) and len(latency.value):
        return [end if isfinite(end) else latency.value.statistic("mean") for end in latency.mean_with_ends()]
    return None if rate is None else _seconds_of_one(rate)


def _idle_power_doubt(devices: list[str], above: _Ends) -> Doubt:
    low, _, high = (format_quantity(end, WATTS, 2) for end in above)
    return Doubt(
        code="at-idle-power",
        seen=f"{', '.join(devices)} drew {low} to {high} more in the timed pass than before loading",
        advice="quieten the machine, or measure longer with `min_time`; a small model may draw too little",
    )


def short_window_doubt(device: str, drawn: PowerDraw) -> Doubt:
    """Return the doubt that windows are too short to determine the energy of a device."""
    needed = format_quantity(drawn.needed, SECONDS, 2)
    return Doubt(
        code="short-window",
        seen=f"{device} was sampled during {format_quantity(drawn.seconds, SECONDS, 2)} of calls, "
        f"and {needed} are needed to determine its power",
        advice="measure longer with `min_time`",
    )


def sampled_power_doubt(device: str) -> Doubt:
    """Return the doubt that the energy of a device comes from samples of its power."""
    return Doubt(
        code="sampled-power",
        seen=f"{device} has no energy counter; its power was sampled and integrated over time",
        advice="read its energy as an estimate, and measure longer with `min_time`",
    )

"""Carbon: grams of CO2 equivalent of 1,000 inferences, from the power drawn and the intensity of the grid.

It is the power of all that could be read, its idle floor included, divided by the rate of inferences: of a
device that is always busy. Power that cannot be read is unknown, unless the user says what to assume.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Interval, observed_number
from modeldyno.base.stats.units import GRAMS, JOULES, WATTS, format_quantity, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.result.result import Result

ASSUMED = "assumed-power"
"""The doubt of a carbon whose power was not read."""
_UNKNOWN = "unknown-carbon"
_RATES = ("throughput", "request_rate")
_INFERENCES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """What a joule emits, and the power to assume where none can be read."""

    intensity: float
    """Grams of CO2 equivalent for a joule."""
    power: float | None = None
    """Watts; None to assume nothing."""

    @classmethod
    def parse(cls, carbon: str | None, power: str | None) -> Emission | None:
        """Read an intensity, such as ``400g/kWh``, and a power, such as ``65W``; None without an intensity.

        Raises:
            RequestError: one of them cannot be read or is not positive, or there is only a power.
        """
        watts = None if power is None else _positive("power", power, WATTS)
        if carbon is None:
            if power is not None:
                raise RequestError("`power` is assumed for carbon only; add `carbon=400g/kWh`, or drop it.")
            return None
        mass, per, energy = carbon.partition("/")
        if not per:
            raise RequestError(f"`carbon` '{carbon}' is no intensity of a grid; write 400g/kWh.")
        unit = parse_quantity(f"1{energy.strip()}", JOULES)
        return cls(intensity=_positive("carbon", mass, GRAMS) / unit, power=watts)


def _positive(name: str, text: str, unit: str) -> float:
    try:
        value = parse_quantity(text, unit)
    except RequestError as error:
        raise RequestError(f"`{name}`: {error}") from None
    if not 0 < value < inf:
        raise RequestError(f"`{name}` '{text}' must be positive.")
    return value


def with_carbon(result: Result, emission: Emission) -> Result:
    """Add the metric `carbon` to a Result, or the doubt that says why it is unknown.

    It replaces what an earlier call added.
    """
    result = replace(
        result,
        measurements=tuple(m for m in result.measurements if m.metric != "carbon"),
        doubts=tuple(doubt for doubt in result.doubts if doubt.code not in {_UNKNOWN, ASSUMED}),
    )
    rate = next((m for name in _RATES if (m := result.find(name)) is not None and m.value), None)
    read = [m for m in result.measurements if m.metric == "power" and m.scope]
    if rate is None or (not read and emission.power is None):
        lacks = "no rate of inferences was measured" if rate is None else "the power could not be read"
        doubt = Doubt(
            code=_UNKNOWN,
            seen=f"the carbon of an inference is unknown: {lacks}",
            advice="let the counters of power be read, or assume one with `power=65W`",
        )
        return replace(result, doubts=(*result.doubts, doubt))
    low, value, high = _sum([m.mean_with_ends() for m in read]) if read else [emission.power or 0.0] * 3
    slow, usual, fast = rate.mean_with_ends()
    grams = emission.intensity * _INFERENCES
    interval = Interval(
        low=grams * low / fast if isfinite(fast) else 0.0, high=grams * high / slow if slow > 0 else inf
    )
    has_interval = interval.low < interval.high  # else neither power nor rate has an interval
    carbon = observed_number("carbon", grams * value / usual, interval=interval if has_interval else None)
    doubts = result.doubts if read else (*result.doubts, _assumed(emission))
    return replace(result, measurements=(*result.measurements, carbon), doubts=doubts)


def _assumed(emission: Emission) -> Doubt:
    power = format_quantity(emission.power, WATTS, None)
    return Doubt(
        code=ASSUMED,
        seen=f"carbon is that of an assumed power of {power}, as none could be read",
        advice="let the counters of power be read, and measure again",
    )


def _sum(ends: Sequence[Sequence[float]]) -> Sequence[float]:
    return [sum(column) for column in zip(*ends, strict=True)]

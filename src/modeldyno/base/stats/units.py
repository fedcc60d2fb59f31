"""Parse and format quantities with units.

Inside the program every number is in a base unit: seconds, bytes, counts, samples per second, fractions.
Other units exist only in text that is read or shown, and only this module knows them.
A decimal prefix is a power of 1000 (MB = 10^6 bytes), a binary one a power of 1024 (MiB = 2^20).
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS = "s"
BYTES = "B"
COUNT = ""
RATE = "1/s"
FRACTION = "1"
CORES = "cores"
JOULES = "J"
WATTS = "W"
HERTZ = "Hz"
CELSIUS = "°C"
GRAMS = "g"
MONEY = "money"
"""An amount in the currency of the price that it follows from, which has no unit of its own here."""

# Smallest first: the least number shown in a unit, the unit's size, its name.
_SHOWN: dict[str, tuple[tuple[float, float, str], ...]] = {
    SECONDS: ((0.0, 1e-9, " ns"), (1e-6, 1e-6, " us"), (1e-3, 1e-3, " ms"), (1.0, 1.0, " s")),
    BYTES: (
        (0.0, 1.0, " B"),
        *((2.0 ** (10 * i), 2.0 ** (10 * i), f" {p}iB") for i, p in enumerate("KMGT", 1)),
    ),
    COUNT: ((0.0, 1.0, ""), (1e4, 1e3, " k"), (1e6, 1e6, " M"), (1e9, 1e9, " G"), (1e12, 1e12, " T")),
    RATE: ((0.0, 1.0, "/s"), (1e6, 1e6, " M/s"), (1e9, 1e9, " G/s"), (1e12, 1e12, " T/s")),
    FRACTION: ((0.0, 1e-2, "%"),),
    CORES: ((0.0, 1.0, " cores"),),
    JOULES: ((0.0, 1e-6, " uJ"), (1e-3, 1e-3, " mJ"), (1.0, 1.0, " J"), (1e3, 1e3, " kJ")),
    WATTS: ((0.0, 1e-3, " mW"), (1.0, 1.0, " W"), (1e3, 1e3, " kW")),
    HERTZ: ((0.0, 1.0, " Hz"), (1e3, 1e3, " kHz"), (1e6, 1e6, " MHz"), (1e9, 1e9, " GHz")),
    CELSIUS: ((0.0, 1.0, " °C"),),
    GRAMS: ((0.0, 1e-6, " ug"), (1e-3, 1e-3, " mg"), (1.0, 1.0, " g"), (1e3, 1e3, " kg")),
    MONEY: ((0.0, 1.0, ""),),
}
KINDS = frozenset(_SHOWN)
"""All base units."""
_WHOLE = frozenset({BYTES, COUNT})
_ZERO = {
    SECONDS: "0 s", BYTES: "0 B", COUNT: "0", RATE: "0/s", FRACTION: "0%", CORES: "0 cores",
    JOULES: "0 J", WATTS: "0 W", HERTZ: "0 Hz", CELSIUS: "0 °C", GRAMS: "0 g", MONEY: "0",
}  # fmt: skip
_PARSED: dict[str, dict[str, float]] = {
    SECONDS: {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0},
    BYTES: {
        "B": 1.0,
        **{f"{p}B": 10.0 ** (3 * i) for i, p in enumerate("kMGT", start=1)},
        "KB": 1e3,
        **{f"{p}iB": 2.0 ** (10 * i) for i, p in enumerate("KMGT", start=1)},
    },
    COUNT: {"k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12},
    RATE: {"/s": 1.0, "samples/s": 1.0, "/min": 1 / 60, "k/s": 1e3, "M/s": 1e6, "G/s": 1e9, "T/s": 1e12},
    FRACTION: {"%": 1e-2},
    CORES: {"cores": 1.0, "core": 1.0, "%": 1e-2},
    JOULES: {"uJ": 1e-6, "mJ": 1e-3, "J": 1.0, "kJ": 1e3, "Wh": 3600.0, "kWh": 3.6e6},
    WATTS: {"mW": 1e-3, "W": 1.0, "kW": 1e3},
    HERTZ: {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9},
    CELSIUS: {"°C": 1.0, "C": 1.0},
    GRAMS: {"ug": 1e-6, "mg": 1e-3, "g": 1.0, "kg": 1e3, "t": 1e6},
    MONEY: {},
}
_EXAMPLES = {
    SECONDS: "50ms", BYTES: "24GiB", COUNT: "10M", RATE: "1000/s", FRACTION: "2%", CORES: "2cores",
    JOULES: "5J", WATTS: "300W", HERTZ: "2GHz", CELSIUS: "80C", GRAMS: "2g", MONEY: "0.5",
}  # fmt: skip
"""An example of a quantity, for error messages."""
UNITS = tuple(_EXAMPLES)
"""All base units, in order."""
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>\S*)"
)
_NUMBER_AND_UNIT = re.compile(
    r"(?<=\d) (?=(?:ns|us|ms|s|[KMGT]iB|B|[kMGT]?(?:MACs|FLOPs?)|[kMGT]B?|cores|[umk]?[JWg]|[kMG]?Hz|°C)\b)"
)
_EXACT = 12
"""Digits of a number given by the user: enough for any, without the rounding error of binary fractions."""
_FEWEST, _USUAL, _MOST = 2, 3, 5
_WIDE = 100.0
_DECIMAL = {BYTES: ((3, "kB"), (6, "MB"), (9, "GB"), (12, "TB"))}
"""Powers of ten and their units, for numbers given by the user in them."""
_EXPONENT_FROM = 1e15
"""From here on a number is shown with an exponent."""


def parse_quantity(text: str, unit: str) -> float:
    """Parse `text`, such as ``50ms``, to a number in the base `unit`; a bare number is in that unit.

    Raises:
        RequestError: the text is not a number, or its unit is not one of this quantity.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        like = _EXAMPLES[unit]
        raise RequestError(f"'{text}' is not a quantity; write a number and a unit, such as {like}.")
    suffix = match["unit"]
    scale = 1.0 if suffix in {"", unit} else _PARSED[unit].get(suffix)
    if scale is None and unit == MONEY:
        raise RequestError(f"'{text}' has a unit; write the number alone, in the currency of the price.")
    if scale is None:
        allowed = ", ".join(_PARSED[unit])
        raise RequestError(f"'{suffix}' in '{text}' is not a unit here; use one of: {allowed}.")
    number = float(match["number"].replace(",", "")) * scale
    if math.isinf(number):
        raise RequestError(f"'{text}' is more than any number here; write a smaller one.")
    return number


def check_time_limit(seconds: float, name: str, *, zero: bool = False) -> float:
    """Return a time limit in seconds, unchanged.

    Args:
        seconds: the limit.
        name: what the message calls it, such as ``max_time``.
        zero: whether 0 is allowed.

    Raises:
        RequestError: it is negative, 0, more than `LONGEST`, or no number.
    """
    if not (0 < seconds <= LONGEST or (zero and seconds == 0)):
        least = "0 or more" if zero else "more than 0"
        given = format_quantity(seconds, SECONDS, None)
        raise RequestError(f"{name} is {given}: it must be {least}, and at most 20 days.")
    return seconds


def read_time(value: float | str, name: str) -> float:
    """Return a time limit in seconds, given in seconds or as text such as ``"10m"``.

    Raises:
        RequestError: the text is no time, or the time is not above 0 or too long.
    """
    return check_time_limit(parse_quantity(value, SECONDS) if isinstance(value, str) else value, name)


LONGEST = 20 * 86400.0
"""Seconds of the longest time limit: no system call waits for 2^31 milliseconds, which are 24.9 days."""


def parse_bound(text: str, unit: str) -> float:
    """Parse a bound as `parse_quantity` does; but a time, unless it is 0, and a share from 1 on need a unit.

    Otherwise the milliseconds of another tool would be read as seconds, and its 5 percent as 500.

    Raises:
        RequestError: the text is not a number, its unit is not one of this quantity, or a time or a share of
            1 or more has no unit.
    """
    bound, number = parse_quantity(text, unit), text.strip()
    if unit == SECONDS and bound and not number[-1].isalpha():
        raise RequestError(f"'{number}' has no unit; write {number}ms or {number}s.")
    if unit == FRACTION and bound >= 1 and not number.endswith("%"):
        percent = _format_exact(100 * bound)
        raise RequestError(f"'{number}' is a share without a unit; write {number}% or {percent}%.")
    return bound


def format_quantity(value: float | None, unit: str, digits: int | None = 4) -> str:
    """Format a number of base `unit` in the unit that suits its size, to `digits` significant digits.

    Without `digits` it is exact and as short as possible, as a user would write it.
    """
    if value is None:
        return "null"
    if not math.isfinite(value):
        return f"{value:g}"
    if value == 0 or (digits is not None and unit == SECONDS and abs(value) < _NO_TIME):
        return _ZERO[unit]
    scale, suffix = _suitable_unit(abs(value), unit, digits or _EXACT)
    scaled = value / scale
    if digits is None:
        decimal = (_format_exact(value / 10.0**power) + f" {name}" for power, name in _DECIMAL.get(unit, ()))
        return min((_format_exact(scaled) + suffix, *decimal), key=len)
    if scale == 1 and unit in _WHOLE and float(value).is_integer():
        return f"{value:,.0f}{suffix}"
    return _format_places(scaled, _decimal_places(scaled, digits)) + suffix


_NO_TIME = 1e-14
"""Seconds below which a time is what the rounding of a difference left."""


def format_estimate(value: float | None, low: float, high: float, unit: str) -> tuple[str, str]:
    """Format an estimate and its interval in one unit, with the digits that the interval justifies.

    The last digit shown has the place value of the first digit of the half-width; a share that is known to a
    few points has a tenth of a point, as 97.6 and 99.7% are not alike. A missing value is ``""``.
    An interval with one end is ``at least ...`` or ``at most ...``, ``not bounded`` where that end is 0, and
    ``""`` without ends. An upper end of a thousand times the value is none. Without a value, a lower end that
    the digits of the upper one would make 0 has a unit of its own.
    """
    if value and high > _NO_END * abs(value):
        high = math.inf
    ends = [end for end in (low, high) if math.isfinite(end)]
    numbers = ends if value is None else [value, *ends]
    anchor = max(map(abs, ends), default=0.0) if value is None else abs(value)
    if not anchor or not math.isfinite(anchor):
        return "" if value is None else format_quantity(value, unit), ""
    scale, suffix = _suitable_unit(anchor, unit, _USUAL)
    half = (max(numbers) - min(numbers)) / max(1, len(ends)) / scale
    places = 0 if scale == 1 and not half and unit in _WHOLE else _justified_places(anchor / scale, half)
    if unit == FRACTION and half < _FEW_POINTS:
        places = max(places, 1)
    texts = {number: _format_places(number / scale, places) for number in numbers}
    if value is None and 0 < low < high < math.inf and texts[low] == _format_places(0.0, places):
        return "", f"{format_quantity(low, unit, 2)} to {texts[high]}{suffix}"
    return "" if value is None else texts[value] + suffix, _format_interval(texts, low, high, suffix)


def format_change(ratio: float) -> str:
    """Format a relative change, candidate / baseline - 1: ``+12.3%``, ``-0.04%``, ``21x more``.

    From a factor of ten on, up or down, it is a factor, up to `FARTHEST`. ``0%`` is no change at all.
    """
    factor = 1 + ratio
    if factor >= _FACTOR or 0 < factor <= 1 / _FACTOR:
        return _format_factor(ratio)
    return f"{'+' if ratio > 0 else '-' if ratio else ''}{format_percent(abs(ratio))}"


def _format_factor(ratio: float) -> str:
    """Format a relative change as a factor: ``21x more``, ``1.25x less``."""
    factor, word = (1 + ratio, "more") if ratio > 0 else (1 / (1 + ratio), "less")
    if factor > FARTHEST:
        return f"over {FARTHEST:,}x {word}"
    places = 0 if factor >= _FACTOR else 1 if factor >= 2 else 2
    return f"{factor:,.{places}f}x {word}"


def format_percent(part: float) -> str:
    """Format a non-negative fraction to a tenth of a percent; what is less, to one digit."""
    percent = 100 * part
    if not percent:
        return "0%"
    if percent < _LEAST_PERCENT:
        return f"<{_LEAST_PERCENT}%"
    if percent < 0.05:
        return f"{percent:.1g}%"
    return f"{percent:.1f}%" if percent < 100 else f"{percent:,.0f}%"


def format_changes(low: float, high: float) -> str:
    """Format an interval of relative changes: ``-4.0 to +2.6%``, ``20x to 22x more``.

    Both ends are factors if one of them is: ``20x to 5.3x less``. An interval beyond `FARTHEST` in both
    directions is ``not bounded``.
    """
    if 1 + low < 1 / FARTHEST and 1 + high > FARTHEST:
        return NOT_BOUNDED
    in_factors = low > -1 and any("x" in format_change(end) for end in (low, high)) and low and high
    first, last = map(_format_factor if in_factors else format_change, (low, high))
    for unit in ("%", " more", " less"):
        if first.endswith(unit) and last.endswith(unit):
            return f"{first.removesuffix(unit)} to {last}"
    return f"{first} to {last}"


_FEW_POINTS = 5
"""Half-width of a share, in percent, below which it is shown to a tenth of a percent at least."""
_FACTOR = 10
"""Factor from which a change is shown as a factor."""
_NO_END = 1000
"""Multiple of an estimate beyond which an upper end says nothing, as from one effective sample."""
FARTHEST = 1_000_000
"""Factor beyond which a change is not quantified; intervals from two process starts may be as wide."""
NOT_BOUNDED = "not bounded"
"""Text of an interval that bounds nothing."""
_LEAST_PERCENT = 0.001


def _format_interval(texts: dict[float, str], low: float, high: float, suffix: str) -> str:
    if low in texts and high in texts:
        return f"{texts[low]} to {texts[high]}{suffix}"
    if low in texts:
        is_zero = not texts[low].strip("-0.")
        return NOT_BOUNDED if is_zero else f"at least {texts[low]}{suffix}"
    return f"at most {texts[high]}{suffix}" if high in texts else ""


def _justified_places(value: float, half: float) -> int:
    """Return the decimal places that a half-width justifies for a value, within limits."""
    if not half:
        return _decimal_places(value, _USUAL)
    return min(_decimal_places(value, _MOST), max(_decimal_places(value, _FEWEST), _decimal_places(half, 1)))


def join_units_unbroken(text: str) -> str:
    """Join numbers and their units by no-break spaces, for text that will be wrapped."""
    return _NUMBER_AND_UNIT.sub("\N{NO-BREAK SPACE}", text)


def format_axis(values: Sequence[float], unit: str) -> tuple[str, ...]:
    """Format ascending numbers of an axis in one unit, with the digits that distinguish neighbours.

    Where they span orders of magnitude, each has the unit that suits it.
    """
    if values[-1] >= _WIDE * values[0]:
        return tuple(format_quantity(value, unit, _FEWEST) for value in values)
    scale, suffix = _suitable_unit(values[-1], unit, _USUAL)
    step = min((b - a for a, b in pairwise(values)), default=values[-1]) / scale
    places = next((n for n in range(9) if abs(step - round(step, n)) < step / 20), 9)
    return tuple(_format_places(value / scale, places) + suffix for value in values)


def plain_number(value: float) -> str:
    """Write a number so that it is read again as it is: with the digits that it needs and no exponent.

    12 digits are enough for what anybody types, and hide what arithmetic adds to it.
    """
    return format(Decimal(f"{value:.12g}"), "f")


def format_number(value: float) -> str:
    """Format a number without a unit, as the ticks of an axis show it: ``0.25``, ``1,200``, ``1e+07``."""
    if not value:
        return "0"
    return f"{value:.3g}" if not _TINY <= abs(value) < _HUGE else f"{round(value, 6):,.10g}"


_TINY, _HUGE = 1e-4, 1e6
"""From the first up to the second, a tick has no exponent."""


def display_units(unit: str) -> tuple[tuple[float, float, str], ...]:
    """Return the least number shown in a unit, the unit's size and its name, the smallest first."""
    return _SHOWN[unit]


def _suitable_unit(size: float, unit: str, digits: int) -> tuple[float, str]:
    """Return the unit in which `size`, once rounded, stays below the next unit: 1 ms, never 1,000 us."""
    choices = _SHOWN[unit]
    for (_, scale, suffix), (next_from, _, _) in pairwise(choices):
        rounded = float(f"{size / scale:.{digits - 1}e}") * scale
        if max(size, rounded) < next_from * (1 - 1e-12):
            return scale, suffix
    return choices[-1][1:]


def _decimal_places(value: float, digits: int) -> int:
    """Return the decimal places that make `digits` significant digits once the value is rounded."""
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return digits - 1 - exponent


def _format_places(value: float, places: int) -> str:
    if abs(value) >= _EXPONENT_FROM:
        return f"{value:.{max(0, places + math.floor(math.log10(abs(value))))}e}"
    return f"{round(value, places):,.{max(places, 0)}f}"


def _format_exact(value: float) -> str:
    if abs(value) >= _EXPONENT_FROM:
        return repr(value)
    text = _format_places(value, _decimal_places(value, _EXACT))
    return text.rstrip("0").rstrip(".") if "." in text else text

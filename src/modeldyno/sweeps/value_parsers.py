"""Parse single values of a sweep's configuration, from a file, an option or Python."""

from __future__ import annotations

import re
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import options
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.cancellation import parse_cancellation
from modeldyno.base.job.load_spec import parse_sequence
from modeldyno.base.job.think_time import parse_think_time
from modeldyno.base.metrics.metric import canonical_statistic
from modeldyno.base.stats.units import BYTES, FRACTION, SECONDS, check_time_limit, parse_quantity
from modeldyno.profiling import request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CERTAIN = "a share between 0 and 100%, such as 95%"
"""What a certainty may be, as text."""


def parse_certainty(text: str) -> float:
    """Parse ``certain >= 95%``, or the share alone."""
    match = re.fullmatch(r"\s*(?:certain\s*(?:>=?)\s*)?(?P<share>[\d.]+\s*%?)\s*", text)
    if match is None:
        raise RequestError(f"`certain` '{text}' is not a certainty; write `certain=95%`.")
    return parse_quantity(match["share"], FRACTION)


def as_list(value: Any) -> list[Any]:
    """Return the items of a list, a single value as a list, or an empty list."""
    if value is None or value == "":
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def as_text(value: Any) -> str | None:
    """Return a value as text; None if it is empty."""
    return None if value is None or value == "" else str(value)


def parse_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return one of the known words; UnknownName for any other."""
    if str(value) not in choices:
        raise UnknownName.among(f"value of {name}:", str(value), choices)
    return str(value)


def read_quantity(value: Any, unit: str, read: Callable[[str, str], float] = parse_quantity) -> float:
    """Parse text with a unit; a number is in base units."""
    if isinstance(value, bool | list | dict):
        raise RequestError(f"{value} is not a quantity; write a number and a unit.")
    return float(value) if isinstance(value, int | float) else read(str(value), unit)


def parse_integer(value: Any) -> int:
    """Parse a whole number."""
    try:
        return int(str(value))
    except ValueError:
        raise RequestError(f"'{value}' is not a whole number.") from None


def parse_number(value: Any) -> float:
    """Parse a number without a unit."""
    with suppress(ValueError):
        if isfinite(number := float(str(value))):
            return number
    raise RequestError(f"'{value}' is not a number.")


def quantity_parser(unit: str) -> Callable[[Any], float]:
    """Return a function that parses quantities of a base unit."""
    return lambda value: read_quantity(value, unit)


def _parse_time(value: Any, *, zero: bool = False) -> float:
    return check_time_limit(read_quantity(value, SECONDS), "the time", zero=zero)


# --- parsers by key --------------------------------------------------------------------------------

_PARSERS: dict[str, Callable[[Any], Any]] = {
    SECONDS: lambda value: _parse_time(value, zero=True),
    FRACTION: quantity_parser(FRACTION),
    BYTES: lambda value: int(read_quantity(value, BYTES)),
    options.COUNT: parse_integer,
    options.STATISTIC: lambda value: canonical_statistic(str(value)),
    options.SEQUENCE: parse_sequence,
    options.PAUSE: parse_think_time,
    options.SHARE_AND_TIME: parse_cancellation,
    options.CORES: lambda value: value if isinstance(value, tuple) else request.parse_cores(str(value)),
}
"""Parser of each kind of option."""
PLANNED = {row.field: _PARSERS[row.kind] for row in options.PLAN if row.in_file}
LOADED: dict[str, Callable[[Any], Any]] = {
    "concurrency": parse_integer,
    "replay": lambda value: str(Path(str(value)).expanduser().absolute()),
    "replay_speed": parse_number,
    "replay_window": _parse_time,
    **{row.field: _PARSERS[row.kind] for row in options.LOAD},
}
BUDGETED: dict[str, Callable[[Any], Any]] = {
    "max_time": _parse_time,
    "max_trials": parse_integer,
    "curves": parse_integer,
    "bisect": parse_integer,
    "certain": lambda value: read_quantity(value, FRACTION, lambda text, _unit: parse_certainty(text)),
}

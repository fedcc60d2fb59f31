"""Single values among the words of a sweep: what stands in a file, an option or Python, as it is meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from modeldyno.core.stats.units import BYTES, FRACTION, SECONDS, parse_quantity
from modeldyno.errors import RequestError, UnknownName
from modeldyno.profiling import request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CERTAIN = "a share between 0 and 100%, such as 95%"
"""What a certainty may be, in words."""


def certainty(text: str) -> float:
    """Read ``certain >= 95%``, or the share alone."""
    match = re.fullmatch(r"\s*(?:certain\s*(?:>=?)\s*)?(?P<share>[\d.]+\s*%?)\s*", text)
    if match is None:
        raise RequestError(f"--until '{text}' says no certainty; write --until 'certain >= 95%'.")
    return parse_quantity(match["share"], FRACTION)


def several(given: Any) -> list[Any]:
    """Give the items of a list, or the one that there is."""
    if given is None or given == "":
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def text(given: Any) -> str | None:
    """Give what was told; None where it is empty."""
    return None if given is None or given == "" else str(given)


def chosen(name: str, given: Any, known: Iterable[str]) -> str:
    """Give one of the known words; UnknownName for another."""
    if str(given) not in known:
        raise UnknownName.among(f"value of {name}:", str(given), known)
    return str(given)


def quantity(given: Any, unit: str, read: Callable[[str, str], float] = parse_quantity) -> float:
    """Read text with a unit; a number is in base units."""
    if isinstance(given, bool | list | dict):
        raise RequestError(f"{given} is no quantity; write a number and a unit.")
    return float(given) if isinstance(given, int | float) else read(str(given), unit)


def whole(given: Any) -> int:
    """Read a whole number."""
    try:
        return int(str(given))
    except ValueError:
        raise RequestError(f"'{given}' is no whole number.") from None


def number(given: Any) -> float:
    """Read a number without a unit."""
    try:
        return float(str(given))
    except ValueError:
        raise RequestError(f"'{given}' is no number.") from None


def of(unit: str) -> Callable[[Any], float]:
    """Give a function that reads quantities of a base unit."""
    return lambda given: quantity(given, unit)


# --- how the parts of a sweep are read -----------------------------------------------------------------

PLANNED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("min_time", "max_time", "timeout"), of(SECONDS)),
    **dict.fromkeys(("min_runs", "max_runs", "min_warmup", "seed"), whole),
    "precision": of(FRACTION),
    "memory_limit": lambda given: int(quantity(given, BYTES)),
    "target": str,
    "pin": lambda given: tuple(given) if isinstance(given, tuple) else request.cores(str(given)),
}
LOADED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("duration", "ramp", "timeout"), of(SECONDS)),
    **dict.fromkeys(("concurrency", "requests", "retries", "drivers"), whole),
}
BUDGETED: dict[str, Callable[[Any], Any]] = {
    "max_time": of(SECONDS),
    "max_trials": whole,
    "certain": lambda given: quantity(given, FRACTION, lambda text, _unit: certainty(text)),
}

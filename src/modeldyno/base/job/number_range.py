"""Ranges of numbers as they are typed: ``1..4``, ``1..9:2``, ``1..64*2``."""

from __future__ import annotations

import math
import re
from itertools import islice
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBER = r"-?\d+(?:\.\d+)?"
_RANGE = re.compile(rf"(?P<low>{_NUMBER})\.\.(?P<high>{_NUMBER})(?:(?P<by>[:*])(?P<step>\d+(?:\.\d+)?))?")
_MOST = 10_000
"""Most numbers of a range."""
_DIGITS = 12
"""Decimals of a number: 0.1 + 2 x 0.1 is slightly more than 0.3."""


def parse_range(text: str) -> tuple[int | float, ...] | None:
    """Return the numbers of a range, both ends among them if a step reaches them; None if it is no range.

    Raises:
        RequestError: it does not rise, or has too many numbers.
    """
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        return None
    low, high = _parse_number(match["low"]), _parse_number(match["high"])
    step = _parse_number(match["step"] or "1")
    grows = step > 1 and low > 0 if match["by"] == "*" else step > 0
    if low > high or not grows:
        raise RequestError(f"'{text}' is not a rising range.")
    numbers = _multiply(low, high, step) if match["by"] == "*" else _add(low, high, step)
    expanded = tuple(islice(numbers, _MOST + 1))
    if len(expanded) > _MOST:
        raise RequestError(f"'{text}' has more than {_MOST:,} values; take larger steps.")
    return expanded


def _add(low: float, high: float, step: float) -> Iterator[int | float]:
    count = math.floor((high - low) / step + 1e-9)
    return (round(low + index * step, _DIGITS) for index in range(count + 1))


def _multiply(low: float, high: float, factor: float) -> Iterator[int | float]:
    while low <= high:
        yield round(low, _DIGITS)
        low *= factor


def _parse_number(text: str) -> int | float:
    return float(text) if "." in text else int(text)

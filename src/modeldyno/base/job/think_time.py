"""How long a user thinks before a request: ``2s``, ``2s~0.5s``, ``2s~x1.5``, ``1s..3s``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.random_amount import RandomAmount
from modeldyno.base.stats.units import SECONDS, parse_quantity

if TYPE_CHECKING:
    from random import Random

_NUMBER, _UNIT = r"\d+(?:\.\d+)?", r"[a-z]*"
_TIME = rf"{_NUMBER}\s*{_UNIT}"
_WRITTEN = re.compile(
    rf"(?P<low>{_TIME})(?:~x(?P<factor>{_NUMBER})|~(?P<spread>{_TIME})|\.\.(?P<high>{_TIME}))?"
)
_DIGITS = "0123456789. "
_LONGEST = 86_400.0
"""Seconds that a user may think."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkTime(RandomAmount):
    """A distribution of pauses, in seconds."""

    def __str__(self) -> str:
        """Write it as it is read."""
        return self.text("s")

    def draw(self, random: Random) -> float:
        """Draw a pause in seconds; none is below 0."""
        if self.low != self.high:
            return random.uniform(self.low, self.high)
        if self.factor > 1:
            return min(_LONGEST, self.low * math.exp(math.log(self.factor) * random.gauss(0.0, 1.0)))
        return max(0.0, self.low + self.spread * random.gauss(0.0, 1.0)) if self.spread else self.low


def parse_think_time(value: object) -> ThinkTime | None:
    """Read a distribution of pauses; None stays None.

    Args:
        value: seconds, or ``2s``, ``2s~0.5s`` (normal), ``2s~x1.5`` (log-normal) or ``1s..3s`` (uniform,
            as ``1..3s``).

    Raises:
        RequestError: it is none of these, or longer than a day.
    """
    if value is None or isinstance(value, ThinkTime):
        return value
    match = _WRITTEN.fullmatch(str(value).strip())
    if match is None:
        raise RequestError(
            f"`think_time` '{value}' is not a pause; write 2s, 2s~0.5s for a normal distribution, 2s~x1.5 "
            "for a log-normal one, or 1s..3s for a uniform one."
        )
    low, high, spread = match.group("low", "high", "spread")
    if high and high[-1].isalpha() and not low[-1].isalpha():
        low += high.lstrip(_DIGITS)
    other = spread or high
    if other and other[-1].isalpha() is not low[-1].isalpha():
        raise RequestError(
            f"`think_time` '{value}' has one unit for two times; give each its own: 2s~0.5s, or 0.5s..3s."
        )
    least, most, deviation = (parse_quantity(part, SECONDS) if part else None for part in (low, high, spread))
    assert least is not None
    pause = ThinkTime(
        low=least,
        high=least if most is None else most,
        spread=deviation or 0.0,
        factor=float(match["factor"] or 1),
    )
    if not pause.low <= pause.high <= _LONGEST or pause.factor < 1:
        raise RequestError(f"`think_time` '{value}' is not a pause of at most a day; write 2s, or 1s..3s.")
    return pause

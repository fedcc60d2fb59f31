"""Which share of requests a client gives up, and when: ``5%:0.5s``, as users leave before an answer ends."""

from __future__ import annotations

import re
from dataclasses import dataclass

from modeldyno.base.errors import RequestError
from modeldyno.base.stats.units import FRACTION, SECONDS, parse_quantity, plain_number

_WRITTEN = re.compile(r"(?P<share>\d+(?:\.\d+)?\s*%?):(?P<after>\d+(?:\.\d+)?\s*[a-z]*)")
_LONGEST = 86_400.0
"""Seconds after which a request may be given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """A share of requests that the client gives up."""

    share: float
    """Above 0 and below 1: of all requests, drawn at random."""
    after: float
    """Seconds from their sending."""

    def __str__(self) -> str:
        """Write it as it is read."""
        return f"{plain_number(100 * self.share)}%:{plain_number(self.after)}s"


def parse_cancellation(value: object) -> Cancellation | None:
    """Read ``5%:0.5s``: 5 % of all requests, half a second after they were sent; None stays None.

    Raises:
        RequestError: it is no share and time, or the share is not between 0 and 100 %.
    """
    if value is None or isinstance(value, Cancellation):
        return value
    match = _WRITTEN.fullmatch(str(value).strip())
    if match is None:
        raise RequestError(
            f"`cancel` '{value}' is not a share and a time; write 5%:0.5s to give up 5 % of the requests "
            "half a second after they were sent."
        )
    given_up = Cancellation(
        share=parse_quantity(match["share"], FRACTION), after=parse_quantity(match["after"], SECONDS)
    )
    if not 0 < given_up.share < 1 or given_up.after > _LONGEST:
        raise RequestError(
            f"`cancel` '{value}' is not a share below 100% and a time of at most a day: 5%:0.5s."
        )
    return given_up

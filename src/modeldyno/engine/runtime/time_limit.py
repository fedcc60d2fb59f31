"""The time limit of a command: by when all that it starts has to be measured, or is ended."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Self

from modeldyno.base.clock import monotonic
from modeldyno.base.errors import OutOfTime
from modeldyno.base.metrics.doubt import Doubt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.metrics.measurement_plan import Plan

_GRACE, _GRACE_SHARE = 1.5, 0.1
"""Seconds, or the share of the limit if that is more, in which what runs at the limit may still end."""
_SHORTEST = 0.1
"""Seconds that a probe measures at least, however late it is."""
_MORE = 4.0
"""Factor of the time that was too short, to the limit that is advised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """Seconds that a command may take; its times are of the monotonic clock, which all processes share."""

    seconds: float
    end: float
    """When it is over."""
    name: str = "max_time"
    """The argument that sets it."""
    side_count: int = 1
    """Processes that measure in turns within it."""

    @classmethod
    def begin(cls, seconds: float | None, name: str = "max_time") -> Self | None:
        """Return the limit that begins now; None for no limit."""
        if seconds is None or seconds == inf:
            return None
        return cls(seconds=seconds, end=monotonic() + seconds, name=name)

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Self:
        """Read what the method `arguments` wrote."""
        seconds, end, name, side_count = arguments
        return cls(seconds=float(seconds), end=float(end), name=name, side_count=int(side_count))

    def arguments(self) -> tuple[str, ...]:
        """Write it for the command line of a child."""
        return (repr(self.seconds), repr(self.end), self.name, str(self.side_count))

    @property
    def left(self) -> float:
        """Seconds left; negative once it is over."""
        return self.end - monotonic()

    @property
    def is_exhausted(self) -> bool:
        """Whether what still runs is to be ended."""
        return self.left < -max(_GRACE, _GRACE_SHARE * self.seconds)

    def shorten(self, plan: Plan, probes: int) -> Plan:
        """Return the Plan of the next of so many probes, so that all of them fit into what is left."""
        return plan.within(max(_SHORTEST, self.left / (self.side_count * probes)))

    def left_out(self, what: Sequence[str]) -> Doubt:
        """Return the doubt that names what there was no time for."""
        return Doubt(
            code="out-of-time",
            seen=f"no time was left for {', '.join(what)}",
            advice=f"allow more time with `{self.name}`",
        )

    def exceeded(self, stage: str) -> OutOfTime:
        """Return the error that nothing was measured in time; `stage` is what was going on at its end."""
        spent = self.seconds - self.left
        reached = f"the stage '{stage}' had begun" if stage else "the process had only been started"
        return OutOfTime(
            f"Nothing could be measured within {self.seconds:g} s: after {spent:.0f} s {reached}; give more "
            f"time, such as --{self.name.replace('_', '-')} {_advised(spent)}."
        )


UNLIMITED = TimeLimit(seconds=inf, end=inf)
"""Of a command without a limit whose runs are parts of a whole, so that their Plans limit measuring only."""


def _advised(spent: float) -> str:
    """Return a limit within which something can be measured, as a user types it."""
    seconds = _MORE * spent
    return f"{max(5, round(seconds / 5) * 5)}s" if seconds < 120 else f"{round(seconds / 60)}m"

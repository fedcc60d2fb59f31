"""Whether a figure still holds: by software, by the rules of measuring, by its age, and by its doubts.

A stale figure that is measured again is confirmed if it is still what it was. A machine is still the same
if a small reference model, measured from time to time, takes as long as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import UNEARNED
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.comparison.change.change_test import judge_change
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.comparison.change.default_metrics import headline_queries
from modeldyno.comparison.change.gate_report import describe_change
from modeldyno.comparison.change.other_times import OtherTimes
from modeldyno.comparison.change.trend import Scatter
from modeldyno.sweeps.study.pooled_estimate import PRIOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.base.result.result import Result
    from modeldyno.registry.records.records import Fact, VariantFigure


PROTOCOL = 3
"""Number of the rules of measuring; a change of what a figure means raises it, and makes older ones stale.

2: a variant is measured with the inputs of its source. 3: a p99 counts the slow spells that a p90 shows."""

FORBIDDING = frozenset(
    {
        "interference",
        "steal",
        "throttled",
        "paging",
        "unwatched",
        "busy-peaks",
        "interrupted",
        "saturated",
        "client-limited",
        "foreign-requests",
        "foreign-models",
        "model-changed",
        "unasked-precision",
        *UNEARNED,
    }
)
"""Codes of doubts with which a figure is no claim: others used the machine, the load did not hold, or
what ran was not what was judged."""


def stale_because(
    figure: VariantFigure, software: Mapping[str, Fact], *, now: datetime, max_age: float
) -> str | None:
    """Return why a figure no longer holds on a machine; None if it does.

    Args:
        figure: what was measured, with the versions of the packages that it depends on.
        software: the versions on the machine now; a package that is not there counts as changed.
        now: with its zone.
        max_age: seconds after which a figure is too old.
    """
    changed = [
        f"{name} {version} -> {software.get(name, 'none')}"
        for name, version in figure.software.items()
        if software.get(name) != version
    ]
    if changed:
        return f"measured with other software: {', '.join(changed)}"
    if figure.protocol != PROTOCOL:
        return f"measured by other rules: protocol {figure.protocol}, now {PROTOCOL}"
    age = (now - datetime.fromisoformat(figure.taken)).total_seconds()
    if age > max_age:
        return f"measured {_age(age)} ago, and the policy allows {_age(max_age)}"
    return None


def forbidding_doubts(doubts: Iterable[Doubt]) -> tuple[Doubt, ...]:
    """Return the doubts with which a Result is no figure."""
    return tuple(doubt for doubt in doubts if doubt.code in FORBIDDING)


_DAY, _HOUR = 86400.0, 3600.0
_FEW_HOURS = 72 * _HOUR


def _age(seconds: float) -> str:
    if seconds < _HOUR:
        return format_quantity(seconds, SECONDS, 2)
    return f"{seconds / _HOUR:.0f} h" if seconds < _FEW_HOURS else f"{seconds / _DAY:.0f} days"


ENOUGH = 3
"""Readings before a change can be seen."""
_SHARE = 0.10
"""Smallest change that counts: what a machine varies from day to day by itself is less."""
_WIDTH = 5.0
"""Least change in median absolute deviations of the earlier readings."""
_TO_DEVIATION = 1.4826
"""Median absolute deviations of a normal distribution in a standard deviation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryReading:
    """The reference model, measured once on a quiet machine."""

    at: str
    """UTC, ISO 8601."""
    seconds: float
    """Median time of a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChange:
    """That the reference model has become faster or slower at once."""

    since: str
    """Time of the last reading before the change, UTC; no figure since then is sure."""
    factor: float
    """Time of a call now over that before."""

    @property
    def sentence(self) -> str:
        """Say it."""
        how = (
            f"{self.factor:.2f} times as long" if self.factor > 1 else f"{1 / self.factor:.2f} times as fast"
        )
        return f"the machine has changed: its reference model takes {how} since {self.since[:10]}"


def baseline(readings: Sequence[CanaryReading]) -> tuple[CanaryReading, ...]:
    """Return the latest readings that belong together: those after the last change, the oldest first."""
    start = 0
    for end in range(1, len(readings)):
        if _change(readings[start:end], readings[end]) is not None:
            start = end
    return tuple(readings[start:])


def machine_change(earlier: Sequence[CanaryReading], now: Sequence[CanaryReading]) -> MachineChange | None:
    """Return the change that new readings show; None if they are like the earlier ones.

    Args:
        earlier: the oldest first; only those since the last change count, and at least `ENOUGH` of them.
        now: at least two, one directly after the other: all must show the change.
    """
    usual = baseline(earlier)
    changes = [_change(usual, reading) for reading in now]
    factors = [factor for factor in changes if factor is not None]
    if len(factors) < len(changes) or not factors or len({factor > 1 for factor in factors}) > 1:
        return None
    return MachineChange(since=usual[-1].at, factor=median(factors))


def _change(earlier: Sequence[CanaryReading], reading: CanaryReading) -> float | None:
    """Return the factor of a reading over the known ones, if it is too far from them."""
    if len(earlier) < ENOUGH:
        return None
    usual = median(each.seconds for each in earlier)
    deviation = _TO_DEVIATION * median(abs(each.seconds - usual) for each in earlier)
    if abs(reading.seconds - usual) <= max(_SHARE * usual, _WIDTH * deviation):
        return None
    return reading.seconds / usual


ALIKE = 0.15
"""Largest relative change with which a figure is still what it was."""
_LEVEL = 0.90
"""Of the interval that must lie within `ALIKE`: two one-sided tests at 5 %. Each metric must pass, so that
several need no wider ones."""
_STARTS = Scatter(relative=PRIOR, degrees=1000, covers=False)
"""How figures of one process each vary from start to start: taken as known, as two do not show it."""


class Confirmed(StrEnum):
    """What measuring a stale figure again has shown."""

    CONFIRMED = "confirmed"
    """The new numbers are equivalent to the old ones."""
    CHANGED = "changed"
    """At least one surely is not."""
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A stale figure against the one that replaces it."""

    outcome: Confirmed
    before: str
    """Id of the old Result."""
    change: str
    """Each number before and after, in words."""


def confirmation(before: Result, after: Result) -> Confirmation:
    """Compare the Result of a stale figure with the new one.

    The headline numbers are judged, as `modeldyno compare` does. A model that fails by now has changed.
    """
    if after.failure is not None:
        change = f"{after.failure.where}: {after.failure.message}"
        return Confirmation(outcome=Confirmed.CHANGED, before=before.id, change=change)
    changes = [
        judge_change(query, old, new, smallest=ALIKE, level=_LEVEL, scatter=_STARTS)
        for query in headline_queries(before, after)
        if (old := before.find(query.metric)) is not None and (new := after.find(query.metric)) is not None
    ]
    # The interval knows how starts differ: only what others did to one of the two can explain a change.
    times = OtherTimes(baseline=before, candidate=after, known={change.query for change in changes})
    changes = list(times.judge(changes, changes))
    outcomes = {change.outcome for change in changes}
    if outcomes & {ChangeVerdict.WORSE, ChangeVerdict.BETTER}:
        outcome = Confirmed.CHANGED
    else:
        outcome = Confirmed.CONFIRMED if outcomes == {ChangeVerdict.SAME} else Confirmed.UNDECIDED
    sentence = "; ".join(f"{change.query}: {describe_change(change)}" for change in changes)
    return Confirmation(outcome=outcome, before=before.id, change=sentence or "nothing was measured in both")

"""Whether a figure still holds: by software, by the rules of measuring, by its age, and by its doubts."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from modeldyno.core.stats.units import SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.core.metrics.doubt import Doubt
    from modeldyno.core.registry.records import Fact, VariantFigure

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

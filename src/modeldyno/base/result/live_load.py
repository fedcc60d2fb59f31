"""A load that goes on, second by second."""

from __future__ import annotations

from dataclasses import dataclass, replace

from modeldyno.base.result.trace_data import LiveSecond

SECONDS_KEPT = 120
"""Newest seconds of a load that goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLoad:
    """A load that goes on, or has ended a moment ago."""

    id: str
    """Its own; its Result has another one."""
    created: str
    """When its first second had passed: UTC in ISO 8601."""
    name: str
    """Name of the model."""
    load: str
    """The load in words, such as ``concurrency 8``."""
    seconds: tuple[LiveSecond, ...]
    """The newest `SECONDS_KEPT`, the oldest first."""
    certified: bool = False
    """Never: a reader of the JSON shall know, too."""
    ended: bool = False
    result: str = ""
    """Id of the Result that has taken its place; empty before."""
    silent: float = 0.0
    """Seconds since it was heard of."""


def add_second(load: LiveLoad, label: str, second: LiveSecond) -> LiveLoad:
    """Return a load with one more second; a fresh process, whose seconds count from 0 again, begins anew."""
    goes_on = bool(load.seconds) and second.at > load.seconds[-1].at
    before = load.seconds[1 - SECONDS_KEPT :] if goes_on else ()
    return replace(load, load=label, seconds=(*before, second))

"""Generates load: sends a target's messages when they are due, and records what became of each.

The loop runs in processes of its own, so that neither our statistics nor a garbage collection delay a
request; they stream their records to the process that decides when to stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from modeldyno.core.load.request_log import Records
from modeldyno.core.load.request_target import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What happened since the last look."""

    records: Records
    in_flight: int
    """Sent and not ended, over all drivers."""
    backlog: int
    """Due and not sent, as the limit of requests in flight was reached, or as we were late."""
    ended: bool
    """Whether all that was asked for (requests, the trace) has been sent and has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a driver cost and how well it kept time."""

    cpu: float
    """Seconds of processor time while it drove."""
    wall: float
    """Seconds that it drove."""
    sent: int
    """Requests."""
    opened: int
    """Connections that were made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What is left to tell when a load has ended."""

    records: Records
    replies: tuple[Reply, ...]
    """The first answer and the last one to each message, to be checked."""
    usages: tuple[Usage, ...]
    """Of each driver."""
    faults: tuple[Reply, ...] = ()
    """Some answers that are failures, for what the server says in them."""
    unsent: int = 0
    """Requests that were due before it was told to send no more, and had not been sent."""
    failure: str = ""
    """What the first call raised that failed, where requests are calls of the user's code."""


class Driving(Protocol):
    """A load on its way."""

    @property
    def pids(self) -> Sequence[int]:
        """The drivers, which are no part of what is measured."""

    def take(self, wait: float) -> Taken:
        """Give what happened since the last look, at the latest after so many seconds.

        Raises RunFailed when a driver died.
        """

    def usage(self) -> Sequence[Usage]:
        """Give what each driver has cost so far, as last told by it (several times a second)."""

    def stop(self, grace: float) -> Ending:
        """Send no more, wait at most so long for what is on its way, and cancel the rest."""
